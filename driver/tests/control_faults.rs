//! The control path on kernels that fail, answer too little, or answer nonsense.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use oxverbs::control::kernel::{CreateCq, CreateQp, CreateSrq, DmabufMr, Uctx, UserMr};
use oxverbs::sys::errno::Errno;
use oxverbs::sys::fd::UverbsFd;
use oxverbs::sys::ioctl::WriteFraming;
use oxverbs::sys::kernel::{Kernel, KernelRef};
use uverbs_abi::RequestView;
use uverbs_abi::handle::{Ah, Cq, Mr, Mw, Pd, Qp, Srq};
use uverbs_abi::ioctl::wire::ATTR_UHW_OUT;
use uverbs_abi::object::Object;
use uverbs_abi::types::{
    AccessFlags, AdviseMrAdvice, AdviseMrFlags, CreateCqFlags, CreateQpFlags, DriverId, GidEntry,
    MwType, QpAttrMask, QpCap, QpType, ReregMrFlags, Sge, SrqAttrMask,
};
use uverbs_abi::udata::rxe;
use uverbs_abi::write::ah::AhAttr;
use uverbs_abi::write::frame::PlainView;
use uverbs_abi::write::qp::{ExModifyQp, ModifyQp};

/// What a kernel does with a request that it knows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mood {
    /// Succeeds and writes nothing.
    Silent,
    /// Fails.
    Fails(i32),
    /// Succeeds and writes this byte into every output.
    Fills(u8),
}

/// A kernel with a mood.
#[derive(Debug)]
struct Moody {
    /// The errno for methods that it does not know.
    refuses: Option<i32>,
    mood: Mutex<Mood>,
    refused: AtomicUsize,
    answered: AtomicUsize,
}

fn errno<T>(number: i32) -> io::Result<T> {
    Err(io::Error::from_raw_os_error(number))
}

/// Fills an output of the request that is being answered.
fn fill(address: u64, len: usize, byte: u8) {
    let place: *mut u8 = std::ptr::with_exposed_provenance_mut(address as usize);
    // SAFETY: the request says that `len` bytes at the address are for its kernel to write.
    unsafe { place.write_bytes(byte, len) };
}

impl Kernel for Moody {
    fn open(&self, _: &CStr, _: i32) -> io::Result<RawFd> {
        errno(libc::ENXIO)
    }

    unsafe fn ioctl(&self, _: RawFd, _: u64, arg: *mut u8) -> io::Result<i32> {
        // SAFETY: a request starts with a header of 24 bytes, in memory that is ours to read.
        let header = unsafe { std::slice::from_raw_parts(arg, 24) };
        let len = RequestView::length(header).unwrap();
        // SAFETY: the header says how long the request is; a copy, since it is written to below.
        let frame = unsafe { std::slice::from_raw_parts(arg, len) }.to_vec();
        let view = RequestView::parse(&frame).unwrap();
        let invoke = view.method() == (Object::DEVICE, 0);
        match self.refuses {
            Some(libc::ENOTTY) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return errno(libc::ENOTTY);
            }
            Some(number) if !invoke => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return errno(number);
            }
            _ => {}
        }
        if invoke && view.len() == 1 {
            return errno(libc::ENOSPC);
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        match *self.mood.lock().unwrap() {
            Mood::Silent => Ok(0),
            Mood::Fails(number) => errno(number),
            Mood::Fills(byte) => {
                let spec = view.spec().unwrap();
                for (index, attr) in view.attrs().enumerate() {
                    let kind = spec.attribute(attr.id).map(|attr| attr.kind);
                    if attr.id == ATTR_UHW_OUT || kind.is_some_and(|kind| kind.is_output()) {
                        fill(attr.data, attr.len.into(), byte);
                    } else if kind.is_some_and(|kind| kind.is_object()) {
                        let place = arg.wrapping_add(RequestView::attr_offset(index) + 8);
                        fill(place.expose_provenance() as u64, 8, byte);
                    }
                }
                Ok(0)
            }
        }
    }

    unsafe fn write(&self, _: RawFd, bytes: &[u8]) -> io::Result<usize> {
        self.answered.fetch_add(1, Ordering::Relaxed);
        match *self.mood.lock().unwrap() {
            Mood::Silent => {}
            Mood::Fails(number) => return errno(number),
            Mood::Fills(byte) => {
                let view = PlainView::parse(bytes).unwrap();
                let len = view.response_len + view.uhw_out_len;
                if len > 0 {
                    fill(view.response, len, byte);
                }
            }
        }
        Ok(bytes.len())
    }

    fn read(&self, _: RawFd, _: &mut [u8]) -> io::Result<usize> {
        errno(libc::EAGAIN)
    }

    fn mmap(&self, _: RawFd, _: usize, _: u64) -> io::Result<NonNull<u8>> {
        errno(libc::ENODEV)
    }

    unsafe fn munmap(&self, _: NonNull<u8>, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn close(&self, _: RawFd) -> io::Result<()> {
        Ok(())
    }
}

fn context(refuses: Option<i32>, mood: Mood) -> (Arc<Moody>, Uctx) {
    let moody = Arc::new(Moody {
        refuses,
        mood: Mutex::new(mood),
        refused: AtomicUsize::new(0),
        answered: AtomicUsize::new(0),
    });
    let fd = UverbsFd::borrowed(KernelRef::Fake(moody.clone()), 9);
    let uctx = Uctx::new(fd, DriverId::RXE).unwrap();
    moody.refused.store(0, Ordering::Relaxed);
    moody.answered.store(0, Ordering::Relaxed);
    (moody, uctx)
}

const KERNELS: [Option<i32>; 3] = [None, Some(libc::EPROTONOSUPPORT), Some(libc::ENOTTY)];

type Verb = fn(&Uctx) -> Result<(), Errno>;

/// Every verb, with its name, and whether a kernel without methods has it.
const VERBS: &[(&str, bool, Verb)] = &[
    ("get_context", true, |u| u.get_context::<()>().map(drop)),
    ("query_device", true, |u| u.query_device().map(drop)),
    ("query_device_ex", true, |u| {
        u.query_device_ex::<()>().map(drop)
    }),
    ("query_port", true, |u| u.query_port(1).map(drop)),
    ("query_gid_table", false, |u| {
        u.query_gid_table(&mut [GidEntry::default(); 4]).map(drop)
    }),
    ("query_gid_entry", false, |u| {
        u.query_gid_entry(1, 0).map(drop)
    }),
    ("alloc_async_event", false, |u| {
        u.alloc_async_event().map(drop)
    }),
    ("create_comp_channel", true, |u| {
        u.create_comp_channel().map(drop)
    }),
    ("alloc_pd", true, |u| u.alloc_pd::<()>().map(drop)),
    ("dealloc_pd", true, |u| u.dealloc_pd(Pd(1))),
    ("reg_mr", true, |u| {
        // SAFETY: no device is behind this kernel.
        unsafe { u.reg_mr(&UserMr::default()) }.map(drop)
    }),
    ("rereg_mr", true, |u| {
        // SAFETY: no device is behind this kernel.
        unsafe { u.rereg_mr(Mr(1), ReregMrFlags::CHANGE_ACCESS, &UserMr::default()) }.map(drop)
    }),
    ("reg_dmabuf_mr", false, |u| {
        u.reg_dmabuf_mr(&DmabufMr {
            pd: Pd(1),
            offset: 0,
            length: 4096,
            iova: 0,
            fd: 5,
            access: AccessFlags::LOCAL_WRITE,
        })
        .map(drop)
    }),
    ("advise_mr", false, |u| {
        let list = [Sge::default(); 2];
        u.advise_mr(Pd(1), AdviseMrAdvice::PREFETCH, AdviseMrFlags::FLUSH, &list)
    }),
    ("query_mr", false, |u| u.query_mr(Mr(1)).map(drop)),
    ("dereg_mr", true, |u| u.dereg_mr(Mr(1))),
    ("alloc_mw", true, |u| {
        u.alloc_mw(Pd(1), MwType::TYPE_1).map(drop)
    }),
    ("dealloc_mw", true, |u| u.dealloc_mw(Mw(1))),
    ("create_cq", true, |u| {
        u.create_cq::<rxe::CreateCqResp>(&CreateCq::default())
            .map(drop)
    }),
    ("create_cq with flags", true, |u| {
        let attr = CreateCq {
            flags: CreateCqFlags::IGNORE_OVERRUN,
            ..CreateCq::default()
        };
        u.create_cq::<rxe::CreateCqResp>(&attr).map(drop)
    }),
    ("resize_cq", true, |u| {
        u.resize_cq::<rxe::ResizeCqResp>(Cq(1), 8).map(drop)
    }),
    ("req_notify_cq", true, |u| u.req_notify_cq(Cq(1), false)),
    ("destroy_cq", true, |u| u.destroy_cq(Cq(1)).map(drop)),
    ("create_qp", true, |u| {
        u.create_qp::<rxe::CreateQpResp>(&qp()).map(drop)
    }),
    ("create_qp with flags", true, |u| {
        let attr = CreateQp {
            flags: CreateQpFlags::BLOCK_MULTICAST_LOOPBACK,
            ..qp()
        };
        u.create_qp::<rxe::CreateQpResp>(&attr).map(drop)
    }),
    ("modify_qp", true, |u| u.modify_qp(&ModifyQp::default())),
    ("modify_qp_ex", true, |u| {
        u.modify_qp_ex(&ExModifyQp::default())
    }),
    ("query_qp", true, |u| {
        u.query_qp(Qp(1), QpAttrMask::STATE).map(drop)
    }),
    ("destroy_qp", true, |u| u.destroy_qp(Qp(1)).map(drop)),
    ("create_srq", true, |u| {
        u.create_srq::<rxe::CreateSrqResp>(&CreateSrq::default())
            .map(drop)
    }),
    ("modify_srq", true, |u| {
        u.modify_srq(Srq(1), SrqAttrMask::LIMIT, 0, 1)
    }),
    ("modify_srq_rxe", true, |u| {
        u.modify_srq_rxe(Srq(1), SrqAttrMask::MAX_WR, 9, 0)
            .map(drop)
    }),
    ("query_srq", true, |u| u.query_srq(Srq(1)).map(drop)),
    ("destroy_srq", true, |u| u.destroy_srq(Srq(1)).map(drop)),
    ("create_ah", true, |u| {
        u.create_ah::<rxe::CreateAhResp>(Pd(1), 1, &AhAttr::default())
            .map(drop)
    }),
    ("destroy_ah", true, |u| u.destroy_ah(Ah(1))),
    ("attach_mcast", true, |u| u.attach_mcast(Qp(1), [0; 16], 0)),
    ("detach_mcast", true, |u| u.detach_mcast(Qp(1), [0; 16], 0)),
];

fn qp() -> CreateQp {
    CreateQp {
        qp_type: QpType::RC,
        pd: Pd(1),
        send_cq: Cq(1),
        recv_cq: Cq(1),
        srq: Some(Srq(1)),
        user_handle: 1,
        cap: QpCap::default(),
        sq_sig_all: true,
        async_event: Some(3),
        ..CreateQp::default()
    }
}

/// The kernel's errno comes out as it is, and the kernel is not asked again: `EINTR` of a create that
/// was repeated could make two objects.
#[test]
fn errnos_come_out_and_nothing_is_repeated() {
    let mut count = 0;
    for refuses in KERNELS {
        for number in [
            libc::ENOMEM,
            libc::EINTR,
            libc::EIO,
            libc::EFAULT,
            libc::EINVAL,
        ] {
            for (name, always, verb) in VERBS {
                let (kernel, uctx) = context(refuses, Mood::Fails(number));
                let expected = if *always || refuses.is_none() {
                    (number, 1)
                } else {
                    (libc::EOPNOTSUPP, 0)
                };
                let seen = verb(&uctx).expect_err(name);
                let answered = kernel.answered.load(Ordering::Relaxed);
                assert_eq!(
                    (seen.0, answered),
                    expected,
                    "{name}, {refuses:?}, {number}"
                );
                count += 1;
            }
        }
    }
    println!("{count} failures came out exact");
}

/// The question how the kernel takes write commands fails as any other call does.
#[test]
fn a_failing_probe_is_an_error() {
    let (kernel, _) = context(None, Mood::Silent);
    assert_eq!(kernel.answered.load(Ordering::Relaxed), 0);
    for (refuses, expected) in [
        (Some(libc::ENOTTY), Ok(WriteFraming::Plain)),
        (Some(libc::EPROTONOSUPPORT), Ok(WriteFraming::Invoke)),
        (None, Ok(WriteFraming::Invoke)),
    ] {
        let (_, uctx) = context(refuses, Mood::Silent);
        assert_eq!(Ok::<_, Errno>(uctx.write_framing()), expected);
    }
    let null = UverbsFd::borrowed(KernelRef::Linux, -1);
    assert_eq!(
        Uctx::new(null, DriverId::RXE).unwrap_err(),
        Errno(libc::EBADF)
    );
}

/// What a kernel does not know is asked for once.
#[test]
fn unknown_methods_are_remembered() {
    for refuses in [libc::EPROTONOSUPPORT, libc::ENOTTY] {
        let (kernel, uctx) = context(Some(refuses), Mood::Silent);
        for _ in 0..3 {
            uctx.create_cq::<rxe::CreateCqResp>(&CreateCq::default())
                .unwrap();
            uctx.destroy_cq(Cq(0)).unwrap();
        }
        let refused = kernel.refused.load(Ordering::Relaxed);
        let expected = if refuses == libc::ENOTTY { 0 } else { 2 };
        assert_eq!(refused, expected, "after the probe of Uctx::new");
        assert_eq!(kernel.answered.load(Ordering::Relaxed), 6);
    }
}

fn zero_is_open() -> bool {
    // SAFETY: `F_GETFD` takes no argument and any number is allowed.
    let flags = unsafe { libc::fcntl(0, libc::F_GETFD) };
    flags >= 0
}

/// A kernel that says yes and writes nothing: zeros, no descriptor taken for 0, no panic.
#[test]
fn silence_reads_as_zero() {
    assert!(zero_is_open());
    for refuses in KERNELS {
        let (_, uctx) = context(refuses, Mood::Silent);
        for (name, always, verb) in VERBS {
            let answers_fd = match *name {
                "create_comp_channel" => true,
                "alloc_async_event" => refuses.is_none(),
                "get_context" => refuses.is_some(),
                _ => false,
            };
            let expected = if answers_fd {
                Err(Errno(libc::EPROTO))
            } else if *always || refuses.is_none() {
                Ok(())
            } else {
                Err(Errno(libc::EOPNOTSUPP))
            };
            assert_eq!(verb(&uctx), expected, "{name}, {refuses:?}");
        }
        let cq = uctx
            .create_cq::<rxe::CreateCqResp>(&CreateCq::default())
            .unwrap();
        assert_eq!((cq.handle, cq.cqe), (Cq(0), 0));
        assert!(!cq.udata.mi.is_present());
        let (ah, answer) = uctx
            .create_ah::<rxe::CreateAhResp>(Pd(1), 1, &AhAttr::default())
            .unwrap();
        assert_eq!((ah, answer.ah_num), (Ah(0), 0));
    }
    assert!(zero_is_open(), "nobody closed it");
}

/// A kernel that fills every output with ones: impossible numbers are `EPROTO`, no panic.
#[test]
fn nonsense_is_refused() {
    for refuses in KERNELS {
        let (_, uctx) = context(refuses, Mood::Fills(0xff));
        for (name, always, verb) in VERBS {
            let result = verb(&uctx);
            let impossible = match *name {
                "create_comp_channel" => true,
                "get_context" => refuses.is_some(),
                "query_gid_table" | "alloc_async_event" | "reg_dmabuf_mr" => refuses.is_none(),
                // handles of the ioctl have 64 bits of room, those of write commands 32
                "create_cq"
                | "create_cq with flags"
                | "create_qp"
                | "create_qp with flags"
                | "create_srq" => refuses.is_none(),
                _ => false,
            };
            let expected = if impossible {
                Err(Errno(libc::EPROTO))
            } else if *always || refuses.is_none() {
                Ok(())
            } else {
                Err(Errno(libc::EOPNOTSUPP))
            };
            assert_eq!(result, expected, "{name}, {refuses:?}");
        }
        let device = uctx.query_device_ex::<()>().unwrap().attr;
        assert_eq!(device.response_length, u32::MAX);
    }
}

/// A list that no attribute can hold is refused before the kernel is asked.
#[test]
fn what_cannot_be_sent_is_einval() {
    let (kernel, uctx) = context(None, Mood::Silent);
    let list = vec![Sge::default(); 65_536 / 16];
    let refused = uctx.advise_mr(Pd(1), AdviseMrAdvice::PREFETCH, AdviseMrFlags::NONE, &list);
    assert_eq!(refused, Err(Errno(libc::EINVAL)));
    let mut table = vec![GidEntry::default(); 65_536 / 32];
    assert_eq!(uctx.query_gid_table(&mut table), Err(Errno(libc::EINVAL)));
    assert_eq!(kernel.answered.load(Ordering::Relaxed), 0);
}

/// The old set of attributes is what is left of the new one where the kernel has no more.
#[test]
fn query_device_falls_back_to_the_old_set() {
    for number in [libc::EOPNOTSUPP, libc::ENOSYS] {
        let (kernel, uctx) = context(None, Mood::Fails(number));
        assert_eq!(uctx.query_device_ex::<()>().unwrap_err(), Errno(number));
        assert_eq!(
            kernel.answered.load(Ordering::Relaxed),
            2,
            "both were asked"
        );
    }
}

#[test]
fn a_borrowed_descriptor_is_shared_by_threads_and_left_open() {
    fn shared<T: Send + Sync>(_: &T) {}
    let (_, uctx) = context(None, Mood::Silent);
    shared(&uctx);
    assert_eq!(uctx.as_raw_fd(), 9);
}
