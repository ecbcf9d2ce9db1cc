//! What the control path sends, against what official libibverbs was recorded to send
//! (`golden/README.md`), on a kernel that knows all methods, only `INVOKE_WRITE`, or no ioctl at all.

use std::ffi::CStr;
use std::io;
use std::os::fd::{IntoRawFd, RawFd};
use std::path::Path;
use std::process::Command;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use oxverbs::control::kernel::{CreateCq, CreateQp, CreateSrq, Uctx, UserMr};
use oxverbs::sys::fd::UverbsFd;
use oxverbs::sys::kernel::{Kernel, KernelRef};
use uverbs_abi::RequestView;
use uverbs_abi::handle::{Ah, Cq, Mr, Mw, Pd, Qp, Srq};
use uverbs_abi::ioctl::Kind;
use uverbs_abi::object::Object;
use uverbs_abi::trace::{self, Memory, Show};
use uverbs_abi::types::{
    AccessFlags, DriverId, GidEntry, MwType, QpAttrMask, QpCap, QpState, QpType, SrqAttrMask,
};
use uverbs_abi::udata::rxe;
use uverbs_abi::write::ah::{AhAttr, GlobalRoute};
use uverbs_abi::write::frame::PlainView;
use uverbs_abi::write::qp::{ModifyQp, QpDest};

#[path = "golden/recording.rs"]
mod recording;

/// A kernel that writes down what it is asked and says yes.
#[derive(Debug)]
struct Scribe {
    /// The errno for methods that it does not know.
    refuses: Option<i32>,
    text: Mutex<String>,
}

/// This process's memory.
struct Own;

impl Memory for Own {
    fn with(&self, address: u64, len: usize, f: &mut dyn FnMut(Option<&[u8]>)) {
        let bytes = std::ptr::with_exposed_provenance(address as usize);
        // SAFETY: the driver made the address from memory of that length, exposed it, and keeps it
        // borrowed until the call that is being answered returns.
        f(Some(unsafe { std::slice::from_raw_parts(bytes, len) }));
    }
}

/// A descriptor for the caller to own.
fn new_fd() -> RawFd {
    std::fs::File::open("/dev/null").unwrap().into_raw_fd()
}

impl Kernel for Scribe {
    fn open(&self, _: &CStr, _: i32) -> io::Result<RawFd> {
        Ok(new_fd())
    }

    unsafe fn ioctl(&self, _: RawFd, _: u64, arg: *mut u8) -> io::Result<i32> {
        // SAFETY: a request starts with a header of 24 bytes, in memory that is ours to read.
        let header = unsafe { std::slice::from_raw_parts(arg, 24) };
        let len = RequestView::length(header).unwrap();
        // SAFETY: the header says how long the request is.
        let frame = unsafe { std::slice::from_raw_parts(arg, len) };
        let view = RequestView::parse(frame).unwrap();
        let invoke = view.method() == (Object::DEVICE, 0);
        match self.refuses {
            Some(libc::ENOTTY) => return Err(io::Error::from_raw_os_error(libc::ENOTTY)),
            Some(errno) if !invoke => return Err(io::Error::from_raw_os_error(errno)),
            _ => {}
        }
        trace::ioctl(&mut *self.text.lock().unwrap(), &view, &Own, Show::Portable).unwrap();
        if invoke && view.len() == 1 {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        view.spec().unwrap().check(&view).unwrap();
        // descriptors have to be real ones; everything else may be zero
        let command = view.find(2).map(|attr| attr.data);
        for (index, attr) in view.attrs().enumerate() {
            let kind = view.spec().and_then(|spec| spec.attribute(attr.id));
            let place: *mut i32 = match (invoke, kind.map(|attr| attr.kind)) {
                (false, Some(Kind::NewFd)) => {
                    arg.wrapping_add(RequestView::attr_offset(index) + 8).cast()
                }
                (true, Some(Kind::SliceOut)) if matches!(command, Some(0 | 17)) => {
                    std::ptr::with_exposed_provenance_mut(attr.data as usize)
                }
                _ => continue,
            };
            // SAFETY: the number's place in the request, or the first field of the response.
            unsafe { place.write_unaligned(new_fd()) };
        }
        Ok(0)
    }

    unsafe fn write(&self, _: RawFd, bytes: &[u8]) -> io::Result<usize> {
        let view = PlainView::parse(bytes).unwrap();
        trace::plain(&mut *self.text.lock().unwrap(), &view, Show::Portable).unwrap();
        // the commands that answer a descriptor answer it first
        if view.response_len >= 4 && matches!(view.command, 0 | 17) {
            let place: *mut i32 = std::ptr::with_exposed_provenance_mut(view.response as usize);
            // SAFETY: the response has room for the descriptor.
            unsafe { place.write_unaligned(new_fd()) };
        }
        Ok(bytes.len())
    }

    fn read(&self, _: RawFd, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    fn mmap(&self, _: RawFd, _: usize, _: u64) -> io::Result<NonNull<u8>> {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    }

    unsafe fn munmap(&self, _: NonNull<u8>, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: the descriptor is one of ours, and its owner is done with it.
        match unsafe { libc::close(fd) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The text of `golden/scenario.c`'s calls, made by us.
fn ours(refuses: Option<i32>) -> String {
    let scribe = Arc::new(Scribe {
        refuses,
        text: Mutex::default(),
    });
    let kernel = KernelRef::Fake(scribe.clone());
    let fd = UverbsFd::open(kernel, c"/dev/infiniband/uverbs0").unwrap();
    scenario(&Uctx::new(fd, DriverId::RXE).unwrap());
    std::mem::take(&mut *scribe.text.lock().unwrap())
}

/// `::ffff:10.9.0.1`
const GID: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 9, 0, 1];

// handles as the kernel gave them to the recorded program
const PD: Pd = Pd(0);
const CQ: Cq = Cq(1);
const SRQ: Srq = Srq(2);
const QP: Qp = Qp(3);

fn scenario(uctx: &Uctx) {
    let context = uctx.get_context::<()>().unwrap();
    // libibverbs has the asynchronous events from here, too, when there is no ioctl
    let events = match context.async_event {
        Some(events) => events,
        None => uctx.alloc_async_event().unwrap(),
    };
    let event_fd = Some(std::os::fd::AsRawFd::as_raw_fd(&events));

    uctx.query_device().unwrap();
    uctx.query_device_ex::<()>().unwrap();
    uctx.query_port(1).unwrap();
    let entry = uctx.query_gid_entry(1, 1);
    let table = uctx.query_gid_table(&mut [GidEntry::default(); 16]);
    assert_eq!(entry.is_ok(), table.is_ok());
    if table.is_err() {
        // GIDs are read from sysfs then, and libibverbs asks how many ports and entries to read
        uctx.query_device().unwrap();
        uctx.query_port(1).unwrap();
    }

    uctx.alloc_pd::<()>().unwrap();
    let mr = UserMr {
        pd: PD,
        start: 0x1000_0000,
        length: 8192,
        hca_va: 0x1000_0000,
        access: AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ,
    };
    // SAFETY: no device is behind this kernel.
    unsafe { uctx.reg_mr(&mr) }.unwrap();
    uctx.dereg_mr(Mr(1)).unwrap();
    uctx.alloc_mw(PD, MwType::TYPE_2).unwrap();
    uctx.dealloc_mw(Mw(1)).unwrap();

    let channel = uctx.create_comp_channel().unwrap();
    let attr = CreateCq {
        cqe: 10,
        user_handle: 1,
        comp_channel: Some(std::os::fd::AsRawFd::as_raw_fd(&channel)),
        async_event: event_fd,
        ..CreateCq::default()
    };
    uctx.create_cq::<rxe::CreateCqResp>(&attr).unwrap();
    uctx.req_notify_cq(Cq(1), true).unwrap();
    uctx.resize_cq::<rxe::ResizeCqResp>(Cq(1), 100).unwrap();
    uctx.destroy_cq(Cq(1)).unwrap();
    let attr = CreateCq {
        cqe: 64,
        comp_channel: None,
        ..attr
    };
    uctx.create_cq::<rxe::CreateCqResp>(&attr).unwrap();

    let attr = CreateSrq {
        pd: PD,
        user_handle: 1,
        max_wr: 20,
        max_sge: 3,
        srq_limit: 0,
        async_event: event_fd,
        ..CreateSrq::default()
    };
    uctx.create_srq::<rxe::CreateSrqResp>(&attr).unwrap();
    uctx.modify_srq_rxe(SRQ, SrqAttrMask::LIMIT, 0, 5).unwrap();
    uctx.modify_srq_rxe(SRQ, SrqAttrMask::MAX_WR, 100, 0)
        .unwrap();
    uctx.query_srq(SRQ).unwrap();

    for qp_type in [QpType::RC, QpType::UC, QpType::UD] {
        queue_pair(uctx, qp_type, event_fd);
    }
    uctx.destroy_srq(SRQ).unwrap();
    uctx.destroy_cq(CQ).unwrap();
    uctx.dealloc_pd(PD).unwrap();
}

fn queue_pair(uctx: &Uctx, qp_type: QpType, async_event: Option<RawFd>) {
    use QpAttrMask as M;
    let attr = CreateQp {
        qp_type,
        pd: PD,
        send_cq: CQ,
        recv_cq: CQ,
        srq: (qp_type == QpType::RC).then_some(SRQ),
        user_handle: 1,
        cap: QpCap {
            max_send_wr: 16,
            max_recv_wr: 17,
            max_send_sge: 2,
            max_recv_sge: 3,
            max_inline_data: 32,
        },
        sq_sig_all: qp_type == QpType::UC,
        async_event,
        ..CreateQp::default()
    };
    uctx.create_qp::<rxe::CreateQpResp>(&attr).unwrap();
    let mut init = ModifyQp {
        qp_handle: QP,
        attr_mask: M::STATE | M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
        qp_state: QpState::INIT,
        port_num: 1,
        qp_access_flags: AccessFlags(7),
        ..ModifyQp::default()
    };
    if qp_type == QpType::UD {
        init.attr_mask = M::STATE | M::PKEY_INDEX | M::PORT | M::QKEY;
        init.qp_access_flags = AccessFlags::NONE;
        init.qkey = 0x11;
    }
    uctx.modify_qp(&init).unwrap();
    if qp_type == QpType::RC {
        uctx.modify_qp(&ModifyQp {
            dest: QpDest {
                dgid: GID,
                flow_label: 0x15,
                sgid_index: 1,
                hop_limit: 64,
                traffic_class: 0x16,
                sl: 1,
                is_global: 1,
                port_num: 1,
                ..QpDest::default()
            },
            qp_handle: QP,
            attr_mask: M::STATE
                | M::AV
                | M::PATH_MTU
                | M::DEST_QPN
                | M::RQ_PSN
                | M::MAX_DEST_RD_ATOMIC
                | M::MIN_RNR_TIMER,
            qp_state: QpState::RTR,
            path_mtu: 3,
            dest_qp_num: 0x12,
            rq_psn: 0x13,
            max_dest_rd_atomic: 3,
            min_rnr_timer: 12,
            ..ModifyQp::default()
        })
        .unwrap();
        uctx.modify_qp(&ModifyQp {
            qp_handle: QP,
            attr_mask: M::STATE
                | M::TIMEOUT
                | M::RETRY_CNT
                | M::RNR_RETRY
                | M::SQ_PSN
                | M::MAX_QP_RD_ATOMIC,
            qp_state: QpState::RTS,
            sq_psn: 0x14,
            max_rd_atomic: 2,
            timeout: 14,
            retry_cnt: 6,
            rnr_retry: 7,
            ..ModifyQp::default()
        })
        .unwrap();
        uctx.query_qp(QP, M::STATE | M::AV).unwrap();
    }
    if qp_type == QpType::UD {
        let mut group = [0; 16];
        group[..2].copy_from_slice(&[0xff, 0x0e]);
        group[10..].copy_from_slice(&[0xff, 0xff, 239, 1, 2, 3]);
        uctx.attach_mcast(QP, group, 0).unwrap();
        uctx.detach_mcast(QP, group, 0).unwrap();
        let attr = AhAttr {
            grh: GlobalRoute {
                dgid: GID,
                flow_label: 0x15,
                sgid_index: 1,
                hop_limit: 64,
                traffic_class: 0x16,
                ..GlobalRoute::default()
            },
            sl: 1,
            is_global: 1,
            port_num: 1,
            ..AhAttr::default()
        };
        uctx.create_ah::<rxe::CreateAhResp>(PD, 1, &attr).unwrap();
        uctx.destroy_ah(Ah(4)).unwrap();
    }
    uctx.destroy_qp(QP).unwrap();
}

/// The recorded text without its comment and without the doorbell, which is the data path's.
fn recorded(text: &str) -> String {
    let mut kept = String::new();
    let mut keep = true;
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if !line.starts_with(' ') {
            keep = !line.starts_with("IB_USER_VERBS_CMD_POST_SEND");
        }
        if keep {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

fn compare(name: &str, theirs: &str, refuses: Option<i32>) {
    let (theirs, ours) = (recorded(theirs), ours(refuses));
    for (number, (theirs, ours)) in theirs.lines().zip(ours.lines()).enumerate() {
        assert_eq!(ours, theirs, "{name}: line {number}, ours left");
    }
    assert_eq!(ours, theirs);
    let requests = theirs.lines().filter(|line| !line.starts_with(' ')).count();
    println!("{name}: {requests} requests equal");
}

#[test]
fn on_a_kernel_that_knows_all_methods() {
    compare("rxe", include_str!("golden/rxe.txt"), None);
}

#[test]
fn on_a_kernel_that_knows_invoke_write_alone() {
    let theirs = include_str!("golden/rxe-invoke-write-only.txt");
    compare("invoke-write only", theirs, Some(libc::EPROTONOSUPPORT));
}

#[test]
fn on_a_kernel_without_the_ioctl() {
    let theirs = include_str!("golden/rxe-without-ioctl.txt");
    compare("without ioctl", theirs, Some(libc::ENOTTY));
}

/// The comparison can fail.
#[test]
#[should_panic(expected = "ours left")]
fn another_kernels_recording_differs() {
    compare(
        "planted",
        include_str!("golden/rxe-without-ioctl.txt"),
        None,
    );
}

/// The recordings are still what libibverbs says: made again with the newest.
#[test]
fn recorded_again_in_the_lab() {
    let name = "oxverbs::golden::recorded_again_in_the_lab";
    if std::env::var_os("OXVERBS_LAB").is_none() {
        return test_support::skip(name, "boots QEMU: wants OXVERBS_LAB=1");
    }
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        return test_support::skip(name, "libibverbs-dev is not installed");
    }
    // the newest release; the older ones do not change any more
    let userland = lab::Userland::Sid;
    let config = lab::Config {
        userland,
        provider: lab::Provider::Official,
        ..lab::Config::default()
    };
    let mut guest = lab::Guest::boot(&config).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let build = |output: &str, arguments: &[&str]| {
        let mut cc = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
        cc.current_dir(&source)
            .args(arguments)
            .arg("-o")
            .arg(guest.work().join(output));
        assert!(cc.status().unwrap().success(), "{cc:?}");
    };
    build("record.so", &["-shared", "-fPIC", "record.c", "-ldl"]);
    build("scenario", &["scenario.c", "-libverbs"]);
    for (refuse, golden) in [
        ("", include_str!("golden/rxe.txt")),
        ("ENOTTY", include_str!("golden/rxe-without-ioctl.txt")),
        (
            "EPROTONOSUPPORT",
            include_str!("golden/rxe-invoke-write-only.txt"),
        ),
    ] {
        let step = lab::Step::new(
            format!("record {refuse}"),
            "cd /share/work; LD_PRELOAD=./record.so ./scenario",
        );
        let step = step
            .env("RECORD", "/share/work/recording")
            .env("REFUSE", refuse);
        guest.run(step).unwrap().expect_ok().unwrap();
        let file = guest.work().join("recording");
        let text = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let text = recording::describe(&text, Show::Portable).unwrap();
        assert_eq!(recorded(&text), recorded(golden), "{userland:?} {refuse}");
    }
}
