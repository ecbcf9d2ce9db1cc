//! What queue pairs and the port count.
//!
//! All queue pairs of this process count in one set, as all of a kernel do in the set of its driver. Names are those of the
//! files that the kernel has of a port: `counters/...` of the port, `hw_counters/...` of queue pairs.

use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::q_counter::{QueryQCounterIn, QueryQCounterOut};
use wqe_format::mlx5::firmware::vport::{
    QueryVportCounterIn, QueryVportCounterOut, TrafficCounter,
};

use super::Objects;
use crate::sys::errno::Errno;

/// A counter of a port: its name, and how far it has counted.
pub type Counter = (&'static str, u64);

/// Octets are told in words of four bytes (IBTA 16.1.3.5, `PortXmitData`).
const WORD: u64 = 4;

impl Objects {
    /// The set of counters that queue pairs name. 0, which counts nothing, of a device that has none left.
    pub(super) fn counter_set(&self) -> u8 {
        if self.caps.general.max_qp_cnt() == 0 {
            return 0;
        }
        let made = self
            .counter_set
            .get_or_make(|| self.run_for_number(Opcode::ALLOC_Q_COUNTER));
        // its number has 8 bits
        made.map_or(0, |number| number as u8)
    }

    /// What a port counts. `EINVAL` if there is no such port.
    pub fn port_counters(&self, port: u8) -> Result<Vec<Counter>, Errno> {
        self.check_port(port)?;
        let mut counters = Vec::new();
        if self.caps.general.vport_counters() {
            counters.extend(self.of_port()?);
        }
        let set = self.counter_set();
        if set != 0 {
            counters.extend(self.of_set(set)?);
        }
        Ok(counters)
    }

    /// As the kernel makes them of a virtual port's (`pma_cnt_ext_assign` of `mlx5/mad.c`): RDMA, without other packets.
    fn of_port(&self) -> Result<[Counter; 8], Errno> {
        let mut input = QueryVportCounterIn::zeroed();
        input.set_opcode(Opcode::QUERY_VPORT_COUNTER.0);
        let mut output = QueryVportCounterOut::zeroed();
        self.platform
            .execute(input.as_bytes(), output.as_bytes_mut())?;
        let read = |counter: TrafficCounter<&[u8]>| (counter.packets(), counter.octets());
        let (sent, sent_to_groups) = (
            read(output.transmitted_ib_unicast()),
            read(output.transmitted_ib_multicast()),
        );
        let (received, received_of_groups) = (
            read(output.received_ib_unicast()),
            read(output.received_ib_multicast()),
        );
        Ok([
            (
                "counters/port_xmit_data",
                (sent.1 + sent_to_groups.1) / WORD,
            ),
            (
                "counters/port_rcv_data",
                (received.1 + received_of_groups.1) / WORD,
            ),
            ("counters/port_xmit_packets", sent.0 + sent_to_groups.0),
            (
                "counters/port_rcv_packets",
                received.0 + received_of_groups.0,
            ),
            ("counters/unicast_xmit_packets", sent.0),
            ("counters/unicast_rcv_packets", received.0),
            ("counters/multicast_xmit_packets", sent_to_groups.0),
            ("counters/multicast_rcv_packets", received_of_groups.0),
        ])
    }

    /// Those of a set that the device says that it has (`mlx5/counters.c`).
    fn of_set(&self, set: u8) -> Result<Vec<Counter>, Errno> {
        let mut input = QueryQCounterIn::zeroed();
        input
            .set_opcode(Opcode::QUERY_Q_COUNTER.0)
            .set_counter_set_id(set);
        let mut output = QueryQCounterOut::zeroed();
        self.platform
            .execute(input.as_bytes(), output.as_bytes_mut())?;
        let caps = &self.caps.general;
        let mut counters = vec![
            ("hw_counters/rx_write_requests", output.rx_write_requests()),
            ("hw_counters/rx_read_requests", output.rx_read_requests()),
            (
                "hw_counters/rx_atomic_requests",
                output.rx_atomic_requests(),
            ),
            ("hw_counters/out_of_buffer", output.out_of_buffer()),
        ];
        if caps.out_of_seq_cnt() {
            counters.push(("hw_counters/out_of_sequence", output.out_of_sequence()));
        }
        if caps.retransmission_q_counters() {
            counters.extend([
                ("hw_counters/duplicate_request", output.duplicate_request()),
                ("hw_counters/rnr_nak_retry_err", output.rnr_nak_retry_err()),
                ("hw_counters/packet_seq_err", output.packet_seq_err()),
                (
                    "hw_counters/implied_nak_seq_err",
                    output.implied_nak_seq_err(),
                ),
                (
                    "hw_counters/local_ack_timeout_err",
                    output.local_ack_timeout_err(),
                ),
            ]);
        }
        if caps.enhanced_error_q_counters() {
            counters.extend([
                (
                    "hw_counters/resp_local_length_error",
                    output.resp_local_length_error(),
                ),
                ("hw_counters/resp_cqe_error", output.resp_cqe_error()),
                ("hw_counters/req_cqe_error", output.req_cqe_error()),
                (
                    "hw_counters/req_remote_invalid_request",
                    output.req_remote_invalid_request(),
                ),
                (
                    "hw_counters/req_remote_access_errors",
                    output.req_remote_access_errors(),
                ),
                (
                    "hw_counters/resp_remote_access_errors",
                    output.resp_remote_access_errors(),
                ),
                (
                    "hw_counters/resp_cqe_flush_error",
                    output.resp_cqe_flush_error(),
                ),
                (
                    "hw_counters/req_cqe_flush_error",
                    output.req_cqe_flush_error(),
                ),
                (
                    "hw_counters/req_transport_retries_exceeded",
                    output.req_transport_retries_exceeded(),
                ),
                (
                    "hw_counters/req_rnr_retries_exceeded",
                    output.req_rnr_retries_exceeded(),
                ),
            ]);
        }
        let wide = counters
            .into_iter()
            .map(|(name, value)| (name, u64::from(value)));
        Ok(wide.collect())
    }
}
