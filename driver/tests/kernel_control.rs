//! The control path against a kernel that has an RDMA device.
//!
//! Uses `OXVERBS_UVERBS` (a device node of rxe), or the first node there is. Without one, each test is
//! skipped by name; with `OXVERBS_LAB=1` the last one runs all of them in guests that have one.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use oxverbs::control::kernel::{CreateCq, CreateQp, CreateSrq, Uctx, UserMr};
use oxverbs::control::qp_state;
use oxverbs::sys::errno::Errno;
use oxverbs::sys::ioctl::WriteFraming;
use oxverbs::sys::kernel::KernelRef;
use uverbs_abi::handle::{Cq, Pd, Qp};
use uverbs_abi::types::{
    AccessFlags, CreateCqFlags, DriverId, GidEntry, GidType, MwType, QpAttrMask, QpCap, QpState,
    QpType, ReregMrFlags, SrqAttrMask,
};
use uverbs_abi::udata::rxe;
use uverbs_abi::write::ah::{AhAttr, GlobalRoute};
use uverbs_abi::write::qp::{ModifyQp, QpDest};

#[path = "kernel_control/netlink.rs"]
mod netlink;
#[path = "kernel_control/older.rs"]
mod older;

use older::Older;

/// Which kernel the real one plays (`OXVERBS_PLAY=without-ioctl` or `invoke-write-alone`).
fn played() -> Option<Older> {
    match std::env::var("OXVERBS_PLAY").ok()?.as_str() {
        "without-ioctl" => Some(Older::WithoutIoctl),
        "invoke-write-alone" => Some(Older::InvokeWriteAlone),
        other => panic!("OXVERBS_PLAY={other}"),
    }
}

fn node() -> Option<PathBuf> {
    if let Some(node) = std::env::var_os("OXVERBS_UVERBS") {
        return Some(node.into());
    }
    let mut nodes: Vec<_> = std::fs::read_dir("/dev/infiniband")
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.as_bytes().starts_with(b"uverbs"))
        })
        .collect();
    nodes.sort();
    nodes.into_iter().next()
}

/// A context, or `None` after naming the test as skipped.
fn open(test: &str) -> Option<Opened> {
    let Some(node) = node() else {
        test_support::skip(
            &format!("oxverbs::kernel_control::{test}"),
            "no uverbs device",
        );
        return None;
    };
    let path = CString::new(node.as_os_str().as_bytes()).unwrap();
    let kernel = match played() {
        Some(older) => KernelRef::Fake(Arc::new(older)),
        None => KernelRef::Linux,
    };
    let uctx = Uctx::open(kernel, &path, DriverId::RXE).unwrap();
    let info = uctx.get_context::<()>().unwrap();
    let events = match info.async_event {
        Some(events) => events,
        None => uctx.alloc_async_event().unwrap(),
    };
    // GIDs come from sysfs where the ioctl does not know them, and here from it all the same
    let gids = Uctx::open(KernelRef::Linux, &path, DriverId::RXE).unwrap();
    gids.get_context::<()>().unwrap();
    Some(Opened {
        uctx,
        gids,
        events,
        vectors: info.num_comp_vectors,
    })
}

struct Opened {
    uctx: Uctx,
    gids: Uctx,
    events: OwnedFd,
    vectors: u32,
}

impl Opened {
    fn pd(&self) -> Pd {
        self.uctx.alloc_pd::<()>().unwrap().0
    }

    fn cq(&self, cqe: u32) -> Cq {
        let attr = CreateCq {
            cqe,
            async_event: Some(self.events.as_raw_fd()),
            ..CreateCq::default()
        };
        let created = self.uctx.create_cq::<rxe::CreateCqResp>(&attr).unwrap();
        assert!(created.cqe >= cqe);
        assert!(created.udata.mi.is_present());
        created.handle
    }

    fn qp_attr(&self, qp_type: QpType, pd: Pd, cq: Cq) -> CreateQp {
        CreateQp {
            qp_type,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            user_handle: 0x1234,
            cap: QpCap {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 32,
            },
            sq_sig_all: false,
            async_event: Some(self.events.as_raw_fd()),
            ..CreateQp::default()
        }
    }

    /// A RoCE v2 GID of port 1.
    fn gid(&self) -> GidEntry {
        let mut entries = [GidEntry::default(); 256];
        let count = self.gids.query_gid_table(&mut entries).unwrap();
        *entries[..count]
            .iter()
            .find(|entry| entry.gid_type == GidType::ROCE_V2 && entry.gid[..2] != [0xfe, 0x80])
            .expect("a routable RoCE v2 GID")
    }
}

#[test]
fn device_port_and_gids() {
    let Some(opened) = open("device_port_and_gids") else {
        return;
    };
    let uctx = &opened.uctx;
    let framing = match played() {
        Some(Older::WithoutIoctl) => WriteFraming::Plain,
        _ => WriteFraming::Invoke,
    };
    assert_eq!(uctx.write_framing(), framing);
    assert!(opened.vectors > 0);
    let old = uctx.query_device().unwrap();
    let new = uctx.query_device_ex::<()>().unwrap().attr;
    assert_eq!(new.base, old);
    assert!(new.response_length as usize >= size_of_val(&old));
    assert_eq!(old.phys_port_cnt, 1);
    let port = uctx.query_port(1).unwrap();
    assert_eq!(port.legacy_resp.state, 4, "the port is active");
    assert_eq!(port.legacy_resp.link_layer, 2, "the link is Ethernet");
    assert!(uctx.query_port(2).is_err());
    let gid = opened.gid();
    if played().is_some() {
        assert_eq!(uctx.query_gid_entry(1, 0), Err(Errno(libc::EOPNOTSUPP)));
        assert_eq!(uctx.query_gid_table(&mut []), Err(Errno(libc::EOPNOTSUPP)));
        return;
    }
    assert_eq!(uctx.query_gid_entry(1, gid.gid_index).unwrap(), gid);
    assert_ne!(gid.netdev_ifindex, 0);
    let last = port.legacy_resp.gid_tbl_len - 1;
    assert_eq!(uctx.query_gid_entry(1, last), Err(Errno(libc::ENODATA)));
    assert_eq!(uctx.query_gid_table(&mut []), Err(Errno(libc::EINVAL)));
}

#[test]
fn memory() {
    let Some(opened) = open("memory") else {
        return;
    };
    let uctx = &opened.uctx;
    let pd = opened.pd();
    let other = opened.pd();
    let buffer = vec![0u8; 8192];
    let mut mr = UserMr {
        pd,
        start: buffer.as_ptr() as u64,
        length: buffer.len() as u64,
        hca_va: buffer.as_ptr() as u64,
        access: AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ,
    };
    // SAFETY: nothing posts work that uses the region, and the buffer outlives it.
    let keys = unsafe { uctx.reg_mr(&mr) }.unwrap();
    assert_ne!(keys.lkey, 0);
    assert_eq!(uctx.dealloc_pd(pd), Err(Errno(libc::EBUSY)));
    mr.access = AccessFlags::LOCAL_WRITE;
    mr.pd = other;
    let change = ReregMrFlags::CHANGE_PD | ReregMrFlags::CHANGE_ACCESS;
    // SAFETY: as above.
    match unsafe { uctx.rereg_mr(keys.handle, change, &mr) } {
        Ok((lkey, _)) => {
            assert_ne!(lkey, 0);
            uctx.dealloc_pd(pd).unwrap();
            uctx.dereg_mr(keys.handle).unwrap();
        }
        Err(errno) => {
            assert!(
                matches!(errno, Errno(libc::EOPNOTSUPP | libc::ENOSYS)),
                "{errno}"
            );
            uctx.dereg_mr(keys.handle).unwrap();
            uctx.dealloc_pd(pd).unwrap();
        }
    }
    mr.access = AccessFlags::REMOTE_WRITE;
    // SAFETY: as above; refused anyway, for want of local write.
    let refused = unsafe { uctx.reg_mr(&mr) };
    assert_eq!(refused.unwrap_err(), Errno(libc::EINVAL));
    for mw_type in [MwType::TYPE_1, MwType::TYPE_2] {
        let mw = uctx.alloc_mw(other, mw_type).unwrap();
        uctx.dealloc_mw(mw.handle).unwrap();
        assert_eq!(uctx.dealloc_mw(mw.handle), Err(Errno(libc::ENOENT)));
    }
    uctx.dealloc_pd(other).unwrap();
    assert_eq!(uctx.dealloc_pd(other), Err(Errno(libc::ENOENT)));
}

#[test]
fn completion_queues() {
    let Some(opened) = open("completion_queues") else {
        return;
    };
    let uctx = &opened.uctx;
    let channel = uctx.create_comp_channel().unwrap();
    let mut attr = CreateCq {
        cqe: 10,
        user_handle: 7,
        comp_channel: Some(channel.as_raw_fd()),
        comp_vector: 0,
        flags: CreateCqFlags::NONE,
        async_event: Some(opened.events.as_raw_fd()),
        ..CreateCq::default()
    };
    let cq = uctx.create_cq::<rxe::CreateCqResp>(&attr).unwrap();
    uctx.req_notify_cq(cq.handle, false).unwrap();
    uctx.req_notify_cq(cq.handle, true).unwrap();
    let resized = uctx.resize_cq::<rxe::ResizeCqResp>(cq.handle, 100).unwrap();
    assert!(resized.cqe >= 100);
    assert!(resized.udata.mi.is_present());
    assert_ne!(resized.udata.mi.offset, cq.udata.mi.offset);
    let events = uctx.destroy_cq(cq.handle).unwrap();
    assert_eq!(
        (events.comp_events_reported, events.async_events_reported),
        (0, 0)
    );
    attr.comp_vector = opened.vectors;
    let refused = uctx.create_cq::<rxe::CreateCqResp>(&attr);
    assert_eq!(refused.unwrap_err(), Errno(libc::EINVAL));
    // the flag belongs to other drivers, so this is the kernel's answer and not ours
    attr.comp_vector = 0;
    attr.flags = CreateCqFlags::TIMESTAMP_COMPLETION;
    let refused = uctx.create_cq::<rxe::CreateCqResp>(&attr);
    assert!(matches!(
        refused.unwrap_err(),
        Errno(libc::EOPNOTSUPP | libc::EINVAL)
    ));
}

#[test]
fn queue_pairs_and_shared_receive_queues() {
    let Some(opened) = open("queue_pairs_and_shared_receive_queues") else {
        return;
    };
    let uctx = &opened.uctx;
    let pd = opened.pd();
    let cq = opened.cq(64);
    for qp_type in [QpType::RC, QpType::UC, QpType::UD] {
        let attr = opened.qp_attr(qp_type, pd, cq);
        let qp = uctx.create_qp::<rxe::CreateQpResp>(&attr).unwrap();
        assert!(qp.udata.sq_mi.is_present() && qp.udata.rq_mi.is_present());
        assert!(qp.cap.max_send_wr >= 16 && qp.cap.max_inline_data >= 32);
        let all = QpAttrMask(0x1f_ffff);
        let answer = uctx.query_qp(qp.handle, all).unwrap();
        assert_eq!(answer.qp_state, QpState::RESET);
        assert_eq!(answer.max_send_wr, qp.cap.max_send_wr);
        assert_eq!(uctx.destroy_qp(qp.handle).unwrap(), 0);
    }
    let attr = CreateSrq {
        pd,
        user_handle: 5,
        max_wr: 20,
        max_sge: 3,
        srq_limit: 0,
        async_event: Some(opened.events.as_raw_fd()),
        ..CreateSrq::default()
    };
    let srq = uctx.create_srq::<rxe::CreateSrqResp>(&attr).unwrap();
    assert!(srq.max_wr >= 20 && srq.max_sge >= 3);
    assert!(srq.udata.mi.is_present());
    let attr = CreateQp {
        srq: Some(srq.handle),
        sq_sig_all: true,
        ..opened.qp_attr(QpType::RC, pd, cq)
    };
    let qp = uctx.create_qp::<rxe::CreateQpResp>(&attr).unwrap();
    assert!(
        !qp.udata.rq_mi.is_present(),
        "receives come from the shared queue"
    );
    assert_eq!(
        uctx.query_qp(qp.handle, QpAttrMask::CAP)
            .unwrap()
            .sq_sig_all,
        1
    );
    let refused = uctx.modify_srq(srq.handle, SrqAttrMask::LIMIT, 0, 5);
    assert_eq!(refused, Err(Errno(libc::EINVAL)), "rxe wants its own data");
    let info = uctx
        .modify_srq_rxe(srq.handle, SrqAttrMask::LIMIT, 0, 5)
        .unwrap();
    assert!(!info.is_present(), "the queue is the same");
    assert_eq!(uctx.query_srq(srq.handle).unwrap().srq_limit, 5);
    let info = uctx
        .modify_srq_rxe(srq.handle, SrqAttrMask::MAX_WR, 100, 0)
        .unwrap();
    assert!(info.is_present());
    assert_ne!(info.offset, srq.udata.mi.offset);
    assert!(uctx.query_srq(srq.handle).unwrap().max_wr >= 100);
    assert_eq!(uctx.destroy_srq(srq.handle), Err(Errno(libc::EBUSY)));
    assert_eq!(uctx.destroy_cq(cq).unwrap_err(), Errno(libc::EBUSY));
    uctx.destroy_qp(qp.handle).unwrap();
    uctx.destroy_srq(srq.handle).unwrap();
    uctx.destroy_cq(cq).unwrap();
    uctx.dealloc_pd(pd).unwrap();
}

#[test]
fn address_handles_and_multicast() {
    let Some(opened) = open("address_handles_and_multicast") else {
        return;
    };
    let uctx = &opened.uctx;
    let pd = opened.pd();
    let cq = opened.cq(8);
    let gid = opened.gid();
    let attr = AhAttr {
        grh: GlobalRoute {
            dgid: gid.gid,
            sgid_index: gid.gid_index as u8,
            hop_limit: 64,
            ..GlobalRoute::default()
        },
        is_global: 1,
        port_num: 1,
        ..AhAttr::default()
    };
    let (ah, answer) = uctx.create_ah::<rxe::CreateAhResp>(pd, 9, &attr).unwrap();
    assert_ne!(answer.ah_num, 0);
    uctx.destroy_ah(ah).unwrap();
    let qp = uctx
        .create_qp::<rxe::CreateQpResp>(&opened.qp_attr(QpType::UD, pd, cq))
        .unwrap();
    let mut group = [0; 16];
    group[0] = 0xff;
    group[1] = 0x0e;
    group[10..12].fill(0xff);
    group[12..].copy_from_slice(&[239, 1, 2, 3]);
    uctx.attach_mcast(qp.handle, group, 0).unwrap();
    assert_eq!(uctx.destroy_qp(qp.handle), Err(Errno(libc::EBUSY)));
    uctx.detach_mcast(qp.handle, group, 0).unwrap();
    assert_eq!(
        uctx.detach_mcast(qp.handle, group, 0),
        Err(Errno(libc::EINVAL))
    );
    uctx.destroy_qp(qp.handle).unwrap();
    uctx.destroy_cq(cq).unwrap();
    uctx.dealloc_pd(pd).unwrap();
}

const STATES: [QpState; 7] = [
    QpState::RESET,
    QpState::INIT,
    QpState::RTR,
    QpState::RTS,
    QpState::SQD,
    QpState::SQE,
    QpState::ERR,
];

/// A modify with usable values of every attribute.
fn values(gid: &GidEntry, handle: Qp, peer: u32) -> ModifyQp {
    let path = QpDest {
        dgid: gid.gid,
        sgid_index: gid.gid_index as u8,
        hop_limit: 64,
        is_global: 1,
        port_num: 1,
        ..QpDest::default()
    };
    ModifyQp {
        dest: path,
        alt_dest: path,
        qp_handle: handle,
        qkey: 0x111,
        rq_psn: 1,
        sq_psn: 1,
        dest_qp_num: peer,
        path_mtu: 3,
        max_rd_atomic: 1,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
        port_num: 1,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        ..ModifyQp::default()
    }
}

/// The table of `qp_state` against the kernel's answers: every change of state with exactly what it
/// requires, with one attribute less, and with one attribute more.
#[test]
fn state_table_is_the_kernels() {
    let Some(opened) = open("state_table_is_the_kernels") else {
        return;
    };
    if played().is_some() {
        return; // the table is the same, however the question came
    }
    let uctx = &opened.uctx;
    let pd = opened.pd();
    let cq = opened.cq(64);
    let gid = opened.gid();
    let mut asked = 0;
    let mut wrong = Vec::new();
    for qp_type in [QpType::RC, QpType::UC, QpType::UD] {
        let attr = opened.qp_attr(qp_type, pd, cq);
        for from in STATES.into_iter().filter(|state| *state != QpState::SQE) {
            for to in STATES {
                let required = qp_state::rule_for(qp_type, from, to)
                    .unwrap_or_default()
                    .required;
                for mask in masks(required) {
                    let qp = uctx.create_qp::<rxe::CreateQpResp>(&attr).unwrap();
                    let mut modify = values(&gid, qp.handle, qp.qp_num);
                    lead_to(uctx, qp_type, from, &mut modify);
                    modify.attr_mask = mask;
                    modify.qp_state = to;
                    modify.cur_qp_state = from;
                    let kernel = uctx.modify_qp(&modify);
                    let ours = qp_state::check(qp_type, from, to, mask);
                    asked += 1;
                    if kernel != ours.map_err(Errno::from) {
                        wrong.push(format!(
                            "{qp_type:?} {from:?} to {to:?} with {mask:?}: the kernel says \
                             {kernel:?}, we say {ours:?}"
                        ));
                    }
                    uctx.destroy_qp(qp.handle).unwrap();
                }
            }
        }
    }
    println!("{asked} changes of state asked");
    assert!(
        wrong.is_empty(),
        "{} of {asked}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    uctx.destroy_cq(cq).unwrap();
    uctx.dealloc_pd(pd).unwrap();
}

/// `required`, each with one less, each with one more.
fn masks(required: QpAttrMask) -> Vec<QpAttrMask> {
    let base = required | QpAttrMask::STATE;
    let mut all = vec![base];
    for bit in (0..21).map(|bit| 1 << bit) {
        let mask = QpAttrMask(base.bits() ^ bit);
        // an alternate path is refused on RoCE whatever the state; without STATE another row is meant
        let elsewhere = QpAttrMask::ALT_PATH.bits() | QpAttrMask::STATE.bits();
        if bit & elsewhere == 0 {
            all.push(mask);
        }
    }
    all
}

/// Brings a queue pair in RESET to `state`.
fn lead_to(uctx: &Uctx, qp_type: QpType, state: QpState, modify: &mut ModifyQp) {
    use QpState as S;
    let way: &[S] = match state {
        S::RESET => &[],
        S::INIT => &[S::INIT],
        S::RTR => &[S::INIT, S::RTR],
        S::RTS => &[S::INIT, S::RTR, S::RTS],
        S::SQD => &[S::INIT, S::RTR, S::RTS, S::SQD],
        _ => &[S::INIT, S::ERR],
    };
    let mut from = S::RESET;
    for to in way {
        let rule = qp_state::rule_for(qp_type, from, *to).unwrap();
        modify.attr_mask = rule.required | QpAttrMask::STATE;
        modify.qp_state = *to;
        uctx.modify_qp(modify).unwrap();
        from = *to;
    }
    // a send queue that is still draining takes no other change; with nothing posted it is a moment
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        let answer = uctx.query_qp(modify.qp_handle, QpAttrMask::STATE).unwrap();
        if answer.sq_draining == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("the send queue drains for ever");
}

/// This very program, run in a guest of each kernel.
#[test]
fn in_the_lab() {
    if std::env::var_os("OXVERBS_LAB").is_none() {
        test_support::skip(
            "oxverbs::kernel_control::in_the_lab",
            "boots QEMU: wants OXVERBS_LAB=1",
        );
        return;
    }
    for kernel in [lab::Kernel::Stable, lab::Kernel::Backports] {
        let config = lab::Config {
            kernel,
            provider: lab::Provider::Official,
            ..lab::Config::default()
        };
        let program = std::env::current_exe().unwrap().canonicalize().unwrap();
        let target = config.target().canonicalize().unwrap();
        let program =
            std::path::Path::new("/oxverbs/target").join(program.strip_prefix(target).unwrap());
        let mut guest = lab::Guest::boot(&config).unwrap();
        let before = guest.resources().unwrap();
        let plays: &[&str] = match kernel {
            lab::Kernel::Stable => &["", "without-ioctl", "invoke-write-alone"],
            // 7.3 takes WRITE_CMD of INVOKE_WRITE for GET_CONTEXT's array of descriptors (both are
            // attribute 2) and answers EBADF; but a kernel that knows the array has the method
            lab::Kernel::Backports => &["", "without-ioctl"],
        };
        for play in plays {
            let step = lab::Step::program(
                format!("kernel_control {play}"),
                [program.to_str().unwrap(), "--test-threads=1", "--nocapture"],
            );
            let step = if play.is_empty() {
                step
            } else {
                step.env("OXVERBS_PLAY", play)
            };
            let outcome = guest.run(step).unwrap();
            println!("{kernel:?} {play}\n{}", outcome.stdout);
            eprintln!("{}", outcome.stderr);
            assert!(outcome.ok(), "{kernel:?} {play}");
            assert!(outcome.stdout.contains("9 passed; 0 failed"));
            let asked = outcome.stdout.contains("2520 changes of state asked");
            assert_eq!(asked, play.is_empty());
            let skips = outcome.stderr.matches("skipped: ").count();
            assert_eq!(skips, 1, "only this test skips itself in the guest");
        }
        let after = guest.resources().unwrap();
        assert_eq!(
            format!("{after:?}"),
            format!("{before:?}"),
            "objects are left"
        );
        assert!(guest.complaints().is_empty(), "{:?}", guest.complaints());
    }
}
