//! Datagrams.

use super::responder::{self, Message, Nak, Peer, Source};
use super::wqe::{Request, opcode};
use super::{Sender, devices_at, gather};
use crate::config::Link;
use crate::mlx5::device;
use crate::mlx5::hca::Received;
use crate::mlx5::hca::cqe::syndrome;
use crate::state::State;

/// To everyone whom the destination means; those who do not get it are nobody's error.
pub(super) fn send(st: &mut State, sender: &Sender, request: &Request) -> Result<Vec<u8>, Nak> {
    let bytes = gather(st, sender, request)?;
    let Some(to) = request.destination else {
        return Err(Nak::Syndrome(syndrome::LOCAL_QP_OP_ERR));
    };
    if bytes.len() > 128 << device::FACTS.mtu {
        return Err(Nak::Syndrome(syndrome::LOCAL_LENGTH_ERR));
    }
    let own = &st.devices[sender.peer.0];
    // A controlled key stands for the queue pair's own (IBTA 10.2.5).
    let qkey = match to.qkey {
        key if key & 0x8000_0000 != 0 => own.qps[&sender.peer.1].attr.qkey,
        key => key,
    };
    let has_grh = to.has_grh || st.config.mlx5.link == Link::Ethernet;
    let sgid = own.gids.get(usize::from(to.sgid_index)).copied();
    let gids = has_grh.then(|| (sgid.unwrap_or_default(), to.gid));
    let mut peers: Vec<Peer> = Vec::new();
    for index in 0..st.devices.len() {
        if let Some(members) = st.devices[index].groups.get(&to.gid) {
            peers.extend(members.iter().map(|qpn| (index, *qpn)));
        }
    }
    if peers.is_empty() {
        let found = devices_at(st, has_grh.then_some(&to.gid), to.lid);
        peers.extend(found.first().map(|index| (*index, to.qpn)));
    }
    let message = Message {
        received: match request.opcode {
            opcode::SEND_IMM => Received::SendImm(request.imm),
            _ => Received::Send,
        },
        payload: bytes,
        written: None,
        is_solicited: request.is_solicited,
        srqn: None,
        source: Some(Source {
            qpn: sender.peer.1,
            qkey,
            lid: match st.config.mlx5.link {
                Link::InfiniBand => device::lid(sender.peer.0),
                Link::Ethernet => 0,
            },
            sl: to.sl,
            gids,
        }),
    };
    for peer in peers {
        // Datagrams that do not arrive are nobody's error.
        let _ = responder::receive(st, peer, &message);
    }
    Ok(Vec::new())
}
