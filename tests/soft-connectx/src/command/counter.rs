//! Counters of queue pairs and of the port.

use wqe_format::mlx5::firmware::q_counter::{
    AllocQCounterOut, DeallocQCounterIn, QueryQCounterIn, QueryQCounterOut,
};
use wqe_format::mlx5::firmware::vport::{
    QueryVportCounterIn, QueryVportCounterOut, TrafficCounter,
};

use super::owner::{self, uid};
use super::refusal::no_resources;
use super::{Reply, done};
use crate::device::Device;
use crate::port::{FrameCount, Traffic};
use crate::resources::Counter;

pub(super) fn alloc(device: &mut Device, input: &[u8]) -> Reply {
    let table = &mut device.resources.counters;
    let number = table
        .free_number()
        .ok_or(no_resources("no set of counters is left"))?;
    let set = Counter {
        uid: uid(input),
        ..Counter::default()
    };
    table.insert(number, set);
    let mut output = AllocQCounterOut::zeroed();
    // The table ends before 255.
    output.set_counter_set_id(u8::try_from(number).unwrap_or(0));
    Ok(output.into_inner().to_vec())
}

pub(super) fn dealloc(device: &mut Device, input: &[u8]) -> Reply {
    let number = u32::from(DeallocQCounterIn::new(input)?.counter_set_id());
    let table = &mut device.resources.counters;
    owner::check(input, table.get(number).map(|set| set.uid))?;
    table.remove(number);
    done()
}

pub(super) fn query(device: &mut Device, input: &[u8]) -> Reply {
    let view = QueryQCounterIn::new(input)?;
    let number = u32::from(view.counter_set_id());
    let table = &mut device.resources.counters;
    // Set 0 counts what no other set does, which is not modelled.
    let mut default = Counter::default();
    let set = if number == 0 {
        &mut default
    } else {
        owner::check(input, table.get(number).map(|set| set.uid))?;
        table.get_mut(number).unwrap_or(&mut default)
    };
    let mut output = QueryQCounterOut::zeroed();
    output
        .set_rx_write_requests(set.rx_write_requests)
        .set_rx_read_requests(set.rx_read_requests)
        .set_rx_atomic_requests(set.rx_atomic_requests)
        .set_out_of_buffer(set.out_of_buffer)
        .set_out_of_sequence(set.out_of_sequence)
        .set_duplicate_request(set.duplicate_request)
        .set_rnr_nak_retry_err(set.rnr_nak_retry_err)
        .set_packet_seq_err(set.packet_seq_err)
        .set_implied_nak_seq_err(set.implied_nak_seq_err)
        .set_local_ack_timeout_err(set.local_ack_timeout_err)
        .set_resp_local_length_error(set.resp_local_length_error)
        .set_req_cqe_error(set.req_cqe_error)
        .set_req_remote_access_errors(set.req_remote_access_errors)
        .set_req_remote_invalid_request(set.req_remote_invalid_request)
        .set_resp_remote_access_errors(set.resp_remote_access_errors)
        .set_resp_cqe_error(set.resp_cqe_error)
        .set_req_cqe_flush_error(set.req_cqe_flush_error)
        .set_resp_cqe_flush_error(set.resp_cqe_flush_error)
        .set_req_transport_retries_exceeded(set.req_transport_retries_exceeded)
        .set_req_rnr_retries_exceeded(set.req_rnr_retries_exceeded);
    if view.clear() {
        *set = Counter {
            uid: set.uid,
            ..Counter::default()
        };
    }
    Ok(output.into_inner().to_vec())
}

/// The port's counters: RDMA packets and raw frames.
pub(super) fn query_vport(device: &mut Device, input: &[u8]) -> Reply {
    let view = QueryVportCounterIn::new(input)?;
    let mut output = QueryVportCounterOut::zeroed();
    let Traffic { sent, received } = &device.port.traffic;
    let set = |mut counter: TrafficCounter<&mut [u8]>, (packets, octets)| {
        counter.set_packets(packets).set_octets(octets);
    };
    set(output.received_ib_unicast_mut(), received.unicast);
    set(output.transmitted_ib_unicast_mut(), sent.unicast);
    set(output.received_ib_multicast_mut(), received.multicast);
    set(output.transmitted_ib_multicast_mut(), sent.multicast);
    let (received, sent) = (&device.port.nic.received, &device.port.nic.sent);
    set(output.received_eth_unicast_mut(), received.unicast);
    set(output.transmitted_eth_unicast_mut(), sent.unicast);
    set(output.received_eth_multicast_mut(), received.multicast);
    set(output.transmitted_eth_multicast_mut(), sent.multicast);
    set(output.received_eth_broadcast_mut(), received.broadcast);
    set(output.transmitted_eth_broadcast_mut(), sent.broadcast);
    if view.clear() {
        device.port.traffic = Traffic::default();
        device.port.nic.received = FrameCount::default();
        device.port.nic.sent = FrameCount::default();
    }
    Ok(output.into_inner().to_vec())
}
