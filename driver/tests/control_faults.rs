//! The control path on kernels that fail, answer too little, or answer nonsense.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use oxverbs::control::kernel::{CreateCq, Uctx};
use oxverbs::sys::errno::Errno;
use oxverbs::sys::fd::UverbsFd;
use oxverbs::sys::ioctl::WriteFraming;
use oxverbs::sys::kernel::KernelRef;
use uverbs_abi::handle::{Ah, Cq, Pd};
use uverbs_abi::types::{AdviseMrAdvice, AdviseMrFlags, DriverId, GidEntry, Sge};
use uverbs_abi::udata::rxe as udata;
use uverbs_abi::write::ah::AhAttr;

use kernel::{KERNELS, Mood, context};

#[path = "control_faults/kernel.rs"]
mod kernel;
#[path = "control_faults/mlx5.rs"]
mod mlx5;
#[path = "control_faults/rxe.rs"]
mod rxe;

/// In which form a kernel has a verb.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Form {
    /// As a method and as a write command, or as a write command only.
    Any,
    /// As a method only.
    Ioctl,
}

impl Form {
    fn is_known_to(self, refuses: Option<i32>) -> bool {
        self == Self::Any || refuses.is_none()
    }
}

/// What a verb answers, as far as some answers are impossible.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Answer {
    /// Nothing that could be impossible.
    Plain,
    /// An object's handle: the ioctl has 64 bits of room for it, a write command 32.
    Object,
    /// A descriptor.
    Fd,
    /// A descriptor, by the write command only.
    FdByWrite,
    /// How many elements of a list there are.
    Count,
}

impl Answer {
    fn has_fd(self, refuses: Option<i32>) -> bool {
        self == Self::Fd || self == Self::FdByWrite && refuses.is_some()
    }
}

/// A verb by its name.
type Case = (&'static str, Form, Answer, fn(&Uctx) -> Result<(), Errno>);

fn cases() -> impl Iterator<Item = (DriverId, &'static Case)> {
    let rxe = rxe::VERBS.iter().map(|case| (DriverId::RXE, case));
    rxe.chain(mlx5::VERBS.iter().map(|case| (DriverId::MLX5, case)))
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
            for (driver, (name, form, _, verb)) in cases() {
                let (kernel, uctx) = context(driver, refuses, Mood::Fails(number));
                let expected = if form.is_known_to(refuses) {
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
    let (kernel, _) = context(DriverId::RXE, None, Mood::Silent);
    assert_eq!(kernel.answered.load(Ordering::Relaxed), 0);
    for (refuses, expected) in [
        (Some(libc::ENOTTY), Ok(WriteFraming::Plain)),
        (Some(libc::EPROTONOSUPPORT), Ok(WriteFraming::Invoke)),
        (None, Ok(WriteFraming::Invoke)),
    ] {
        let (_, uctx) = context(DriverId::RXE, refuses, Mood::Silent);
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
        let (kernel, uctx) = context(DriverId::RXE, Some(refuses), Mood::Silent);
        for _ in 0..3 {
            uctx.create_cq::<udata::CreateCqResp>(&CreateCq::default())
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
        for (driver, (name, form, answer, verb)) in cases() {
            let (_, uctx) = context(driver, refuses, Mood::Silent);
            let expected = if !form.is_known_to(refuses) {
                Err(Errno(libc::EOPNOTSUPP))
            } else if answer.has_fd(refuses) {
                Err(Errno(libc::EPROTO))
            } else {
                Ok(())
            };
            assert_eq!(verb(&uctx), expected, "{name}, {refuses:?}");
        }
        let (_, uctx) = context(DriverId::RXE, refuses, Mood::Silent);
        let cq = uctx
            .create_cq::<udata::CreateCqResp>(&CreateCq::default())
            .unwrap();
        assert_eq!((cq.handle, cq.cqe), (Cq(0), 0));
        assert!(!cq.udata.mi.is_present());
        let (ah, answer) = uctx
            .create_ah::<udata::CreateAhResp>(Pd(1), 1, &AhAttr::default())
            .unwrap();
        assert_eq!((ah, answer.ah_num), (Ah(0), 0));
    }
    assert!(zero_is_open(), "nobody closed it");
}

/// A kernel that fills every output with ones: impossible numbers are `EPROTO`, no panic.
#[test]
fn nonsense_is_refused() {
    for refuses in KERNELS {
        for (driver, (name, form, answer, verb)) in cases() {
            let (_, uctx) = context(driver, refuses, Mood::Fills(0xff));
            let impossible = match answer {
                Answer::Plain => false,
                Answer::Object => refuses.is_none(),
                Answer::Count => true,
                Answer::Fd | Answer::FdByWrite => answer.has_fd(refuses),
            };
            let expected = if !form.is_known_to(refuses) {
                Err(Errno(libc::EOPNOTSUPP))
            } else if impossible {
                Err(Errno(libc::EPROTO))
            } else {
                Ok(())
            };
            assert_eq!(verb(&uctx), expected, "{name}, {refuses:?}");
        }
        let (_, uctx) = context(DriverId::RXE, refuses, Mood::Fills(0xff));
        let device = uctx.query_device_ex::<()>().unwrap().attr;
        assert_eq!(device.response_length, u32::MAX);
    }
}

/// A list that no attribute can hold is refused before the kernel is asked.
#[test]
fn what_cannot_be_sent_is_einval() {
    let (kernel, uctx) = context(DriverId::RXE, None, Mood::Silent);
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
        let (kernel, uctx) = context(DriverId::RXE, None, Mood::Fails(number));
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
    let (_, uctx) = context(DriverId::RXE, None, Mood::Silent);
    shared(&uctx);
    assert_eq!(uctx.as_raw_fd(), 9);
}

/// mlx5's get_context is asked for less and less, with DEVX and then without; what came last comes out.
#[test]
fn get_context_of_mlx5_asks_for_less() {
    use uverbs_abi::udata::mlx5::{AllocUcontextFlags, AllocUcontextReqV2};
    for refuses in KERNELS {
        for (flags, times) in [(AllocUcontextFlags::DEVX, 6), (AllocUcontextFlags::NONE, 3)] {
            let request = AllocUcontextReqV2 {
                flags,
                ..AllocUcontextReqV2::default()
            };
            let (kernel, uctx) = context(DriverId::MLX5, refuses, Mood::Fails(libc::ENOMEM));
            let refused = uctx.get_context_mlx5(request).unwrap_err();
            let answered = kernel.answered.load(Ordering::Relaxed);
            assert_eq!((refused, answered), (Errno(libc::ENOMEM), times));
        }
    }
    let request = AllocUcontextReqV2 {
        flags: AllocUcontextFlags::DEVX,
        ..AllocUcontextReqV2::default()
    };
    let (kernel, uctx) = context(DriverId::MLX5, None, Mood::Silent);
    let opened = uctx.get_context_mlx5(request).unwrap();
    assert_eq!(kernel.answered.load(Ordering::Relaxed), 1);
    assert!(opened.devx);
    assert_eq!(opened.info.udata.response_length, 0);
}
