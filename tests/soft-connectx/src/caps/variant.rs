//! Other cards and functions that a driver may meet.
//!
//! What a variant takes away or makes smaller, software may have to do without; nothing of it may make software fail that
//! asks before it uses.

use log::info;
use wqe_format::mlx5::firmware::caps::atomic::AtomicCaps;
use wqe_format::mlx5::firmware::caps::general::CmdHcaCap;

use crate::adversary::{Adversary, Freedom};

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Card {
    /// A physical function with everything.
    Whole,
    /// A virtual function: a share of the card's resources.
    VirtualFunction,
    /// A sub-function: a small share, few event queues.
    SubFunction,
    /// A physical function whose firmware is years old.
    OldFirmware,
}

/// Changes capabilities as an adversary wants; without one they stay.
pub(super) fn apply(adversary: &mut Adversary, general: &mut [u8], atomic: &mut [u8]) {
    if !adversary.is_there() {
        return;
    }
    let card = adversary.pick(
        Freedom::Card,
        [
            Card::Whole,
            Card::VirtualFunction,
            Card::SubFunction,
            Card::OldFirmware,
        ],
    );
    info!("adversary: capabilities of {card:?}");
    let (Ok(mut general), Ok(mut atomic)) = (CmdHcaCap::new(general), AtomicCaps::new(atomic))
    else {
        return;
    };
    match card {
        Card::Whole => {}
        Card::VirtualFunction => share(adversary, &mut general, 3),
        Card::SubFunction => {
            share(adversary, &mut general, 5);
            general.set_max_num_eqs(8).set_log_max_uctx(0);
        }
        Card::OldFirmware => old(adversary, &mut general),
    }
    // The driver makes an event queue for requests of pages.
    general.set_page_request_disable(false);
    // Big-endian for good, on a card of any kind.
    if adversary.happens(Freedom::Card, 3) {
        atomic.set_supported_atomic_req_8b_endianness_mode_1(false);
        atomic.set_atomic_req_8b_endianness_mode(0);
        info!("adversary: atomics in the wire's byte order only");
    }
}

/// What a virtual function has: a quarter of each table, few event queues, and nothing to say about the card.
pub(super) fn virtual_function(general: &mut [u8]) {
    if let Ok(mut general) = CmdHcaCap::new(general) {
        smaller(&mut general, |log| log - 2);
        general
            .set_max_num_eqs(16)
            .set_page_request_disable(false)
            .set_vport_group_manager(false)
            .set_eswitch_manager(false)
            .set_port_module_event(false);
    }
}

/// Tables smaller by up to `most` powers of two.
fn share(adversary: &mut Adversary, caps: &mut CmdHcaCap<&mut [u8]>, most: u64) {
    smaller(caps, |log| {
        log - adversary.choose(Freedom::Card, most + 1) as u8
    });
}

/// Tables of other sizes.
fn smaller(caps: &mut CmdHcaCap<&mut [u8]>, mut less: impl FnMut(u8) -> u8) {
    let (qp, cq, srq) = (caps.log_max_qp(), caps.log_max_cq(), caps.log_max_srq());
    caps.set_log_max_qp(less(qp))
        .set_log_max_cq(less(cq))
        .set_log_max_srq(less(srq));
    let (mkey, pd, xrcd) = (caps.log_max_mkey(), caps.log_max_pd(), caps.log_max_xrcd());
    caps.set_log_max_mkey(less(mkey))
        .set_log_max_pd(less(pd))
        .set_log_max_xrcd(less(xrcd));
    let (qp, cq, srq) = (
        caps.log_max_qp_sz(),
        caps.log_max_cq_sz(),
        caps.log_max_srq_sz(),
    );
    caps.set_log_max_qp_sz(less(qp))
        .set_log_max_cq_sz(less(cq))
        .set_log_max_srq_sz(less(srq));
}

/// Features that came late, each there or not.
fn old(adversary: &mut Adversary, caps: &mut CmdHcaCap<&mut [u8]>) {
    let mut kept = |now: bool| now && adversary.choose(Freedom::Card, 2) == 0;
    let (bf, inline, resize) = (caps.bf(), caps.sctr_data_cqe(), caps.cq_resize());
    caps.set_bf(kept(bf))
        .set_sctr_data_cqe(kept(inline))
        .set_cq_resize(kept(resize));
    let (moderation, version, null) = (
        caps.cq_moderation(),
        caps.driver_version(),
        caps.null_mkey(),
    );
    caps.set_cq_moderation(kept(moderation))
        .set_driver_version(kept(version))
        .set_null_mkey(kept(null));
    let (windows, xrc, quiet) = (caps.imaicl(), caps.xrc(), caps.block_lb_mc());
    caps.set_imaicl(kept(windows))
        .set_xrc(kept(xrc))
        .set_block_lb_mc(kept(quiet));
    let memory = caps.device_memory();
    caps.set_device_memory(kept(memory));
    let pages = caps.pg();
    caps.set_pg(kept(pages));
    let log_max_uctx = if kept(true) { caps.log_max_uctx() } else { 0 };
    caps.set_log_max_uctx(log_max_uctx);
    let can = adversary.choose(Freedom::Compression, 3);
    let enhanced = caps.enhanced_cqe_compression();
    caps.set_cqe_compression(can > 0)
        .set_enhanced_cqe_compression(enhanced && can > 1);
}

#[cfg(test)]
mod tests {
    use super::super::{Caps, beyond};
    use super::*;
    use crate::config::{Config, LinkLayer};
    use wqe_format::mlx5::firmware::caps::CapType;

    fn caps(seed: Option<u64>) -> Caps {
        Caps::new(&Config {
            adversary: seed,
            link: LinkLayer::Ethernet,
            ..Config::default()
        })
    }

    #[test]
    fn a_variant_never_can_more_and_seeds_differ() {
        let whole = caps(None);
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 0..100 {
            let caps = caps(Some(seed));
            for (kind, layout) in [
                (CapType::GENERAL, CmdHcaCap::LAYOUT),
                (CapType::ATOMIC, AtomicCaps::LAYOUT),
            ] {
                let (most, this) = (&whole.maximum[&kind], &caps.maximum[&kind]);
                assert_eq!(beyond(layout, most, this), None, "seed {seed}");
            }
            kinds.insert(caps.maximum[&CapType::GENERAL].clone());
            // What in force is, is possible.
            let atomic = CapType::ATOMIC;
            let (most, now) = (&caps.maximum[&atomic], &caps.current[&atomic]);
            assert_eq!(beyond(AtomicCaps::LAYOUT, most, now), None);
        }
        assert!(kinds.len() > 50, "only {} different", kinds.len());
    }
}
