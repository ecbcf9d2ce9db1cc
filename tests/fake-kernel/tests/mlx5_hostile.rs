//! A kernel that answers nonsense: every output of every call that opens an mlx5 device and makes its
//! objects is filled with a byte once. Whatever comes of it, nothing panics and no memory is touched that
//! is not there.

use std::ffi::CStr;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fake_kernel::{Config, FakeKernel, Family, Mlx5};
use oxverbs::control::mlx5::cq::CqRequest;
use oxverbs::control::mlx5::environment::Environment;
use oxverbs::control::mlx5::geometry::Transport;
use oxverbs::control::mlx5::qp::QpRequest;
use oxverbs::control::mlx5::srq::SrqRequest;
use oxverbs::control::mlx5::wq::WqRequest;
use oxverbs::control::mlx5::{Mlx5Context, context};
use oxverbs::sys::errno::Errno;
use oxverbs::sys::fd::UverbsFd;
use oxverbs::sys::kernel::{Kernel, KernelRef};
use uverbs_abi::RequestView;
use uverbs_abi::ioctl::wire::ATTR_UHW_OUT;
use uverbs_abi::types::QpCap;
use uverbs_abi::write::ah::AhAttr;

/// Passes calls on, and fills the outputs of one of them.
#[derive(Debug)]
struct Liar {
    honest: Arc<dyn Kernel>,
    byte: u8,
    /// Calls until the lie.
    left: AtomicU64,
}

impl Kernel for Liar {
    fn open(&self, path: &CStr, flags: i32) -> io::Result<RawFd> {
        self.honest.open(path, flags)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut u8) -> io::Result<i32> {
        // SAFETY: passed on.
        let answer = unsafe { self.honest.ioctl(fd, request, arg) }?;
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.wrapping_sub(1), Ordering::Relaxed);
        if left != 1 {
            return Ok(answer);
        }
        // SAFETY: a request starts with a header of 24 bytes, in memory that is ours to read.
        let header = unsafe { std::slice::from_raw_parts(arg, 24) };
        let len = RequestView::length(header).expect("a request");
        // SAFETY: the header says how long the request is.
        let frame = unsafe { std::slice::from_raw_parts(arg, len) }.to_vec();
        let view = RequestView::parse(&frame).expect("a request");
        let spec = view.spec();
        for attr in view.attrs() {
            let kind = spec
                .and_then(|spec| spec.attribute(attr.id))
                .map(|attr| attr.kind);
            // the driver's own methods use the number for something else
            let driver = attr.id == ATTR_UHW_OUT && kind.is_none();
            if driver || kind.is_some_and(|kind| kind.is_output()) {
                let place: *mut u8 = std::ptr::with_exposed_provenance_mut(attr.data as usize);
                // SAFETY: the request says that the bytes at the address are for its kernel to write.
                unsafe { place.write_bytes(self.byte, attr.len.into()) };
            }
        }
        Ok(answer)
    }

    unsafe fn write(&self, fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: passed on.
        unsafe { self.honest.write(fd, bytes) }
    }

    fn read(&self, fd: RawFd, bytes: &mut [u8]) -> io::Result<usize> {
        self.honest.read(fd, bytes)
    }

    fn mmap(&self, fd: RawFd, len: usize, offset: u64) -> io::Result<NonNull<u8>> {
        self.honest.mmap(fd, len, offset)
    }

    unsafe fn munmap(&self, addr: NonNull<u8>, len: usize) -> io::Result<()> {
        // SAFETY: passed on.
        unsafe { self.honest.munmap(addr, len) }
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        self.honest.close(fd)
    }
}

/// Opens a device and makes one of each object, as far as it goes.
fn everything(kernel: KernelRef) -> Result<(), Errno> {
    let fd = UverbsFd::open(kernel, c"/dev/infiniband/uverbs0")?;
    let context = Mlx5Context::open(context::uctx(fd)?, Environment::default())?.context;
    let _ = (context.read_clock(), context.clock_page());
    let pd = context.alloc_pd()?;
    let (mut cq, mut queue) = context.create_cq(&CqRequest {
        cqe: 10,
        ..CqRequest::default()
    })?;
    let _ = cq.resize(&mut queue, 40);
    let thread = context.uars().thread_domain();
    let (srq, shared) = context.create_srq(&SrqRequest {
        pd: pd.handle(),
        max_wr: 10,
        max_sge: 2,
        ..SrqRequest::default()
    })?;
    let _ = srq.query();
    let _ = shared.post([(1_u64, &[][..])]);
    for transport in [Transport::Rc, Transport::Ud, Transport::RawPacket] {
        let made = context.create_qp(&QpRequest {
            pd: pd.handle(),
            send_cq: cq.handle(),
            recv_cq: cq.handle(),
            srq: (transport == Transport::Rc).then(|| (srq.handle(), shared.shared().clone())),
            cap: QpCap {
                max_send_wr: 10,
                max_recv_wr: 10,
                max_send_sge: 2,
                max_recv_sge: 2,
                max_inline_data: 100,
            },
            thread: (transport == Transport::Ud).then_some(&thread),
            ..QpRequest::new(transport)
        });
        if let Ok(mut made) = made {
            let _ = made.object.query(uverbs_abi::types::QpAttrMask::STATE);
            let _ = made.object.destroy();
        }
    }
    let _ = context.create_wq(&WqRequest {
        pd: pd.handle(),
        cq: cq.handle(),
        max_wr: 10,
        max_sge: 2,
        ..WqRequest::default()
    });
    let mut attr = AhAttr {
        port_num: 1,
        is_global: 1,
        ..AhAttr::default()
    };
    attr.grh.dgid[10..].copy_from_slice(&[0xff, 0xff, 127, 0, 0, 1]);
    let resolve = || Err(Errno(libc::EHOSTUNREACH));
    let _ = context.create_ah(pd.handle(), 0, &attr, resolve);
    let mut one = [oxverbs::data::mlx5::Completion::default()];
    queue.poll(&mut one);
    Ok(())
}

fn liar(device: Mlx5, byte: u8, at: u64) -> Arc<Liar> {
    let honest = FakeKernel::new(Config {
        family: Family::Mlx5,
        mlx5: device,
        ..Config::default()
    });
    let KernelRef::Fake(honest) = honest.kernel_ref() else {
        unreachable!("a fake kernel is one");
    };
    Arc::new(Liar {
        honest,
        byte,
        left: AtomicU64::new(at),
    })
}

#[test]
fn nonsense_in_every_answer() {
    let old = Mlx5 {
        tot_bfregs: Some(16),
        cqe_version: 0,
        ..Mlx5::default()
    };
    let mut nonsense = 0;
    for device in [Mlx5::default(), old] {
        for byte in [0x00, 0x01, 0x02, 0x10, 0x7f, 0x80, 0xaa, 0xff] {
            for at in 1.. {
                let liar = liar(device, byte, at);
                let result = everything(KernelRef::Fake(liar.clone()));
                // past the last call the lie was never told
                if liar.left.load(Ordering::Relaxed).cast_signed() > 0 {
                    assert_eq!(result, Ok(()));
                    break;
                }
                assert!(at < 200, "calls without end");
                nonsense += u32::from(result == Err(Errno(libc::EPROTO)));
            }
        }
    }
    // the lies about the context and about pages of registers are seen through
    assert!(nonsense > 16, "{nonsense}");
}
