//! The same shapes by our control path, on a fake kernel in this process.

use std::ffi::OsString;
use std::sync::Arc;

use fake_kernel::{Config, FakeKernel};
use oxverbs::control::mlx5::cq::CqRequest;
use oxverbs::control::mlx5::environment::Environment;
use oxverbs::control::mlx5::geometry::{SendOps, Transport};
use oxverbs::control::mlx5::qp::QpRequest;
use oxverbs::control::mlx5::srq::SrqRequest;
use oxverbs::control::mlx5::wq::WqRequest;
use oxverbs::control::mlx5::{Mlx5Context, context};
use oxverbs::sys::errno::Errno;
use oxverbs::sys::fd::UverbsFd;
use uverbs_abi::types::QpCap;

use super::{Outcome, makes};
use crate::shape::Shape;

/// What came of each shape.
pub(crate) fn outcomes(
    shapes: &[Shape],
    settings: &str,
    environment: &[(&str, &str)],
) -> Vec<Outcome> {
    let kernel = FakeKernel::new(Config::parse(settings).expect("settings"));
    let environment = Environment::read(|name| {
        let value = environment.iter().find(|(known, _)| *known == name);
        value.map(|(_, value)| OsString::from(value))
    });
    let fd = UverbsFd::open(kernel.kernel_ref(), c"/dev/infiniband/uverbs0").expect("a descriptor");
    let uctx = context::uctx(fd).expect("a descriptor");
    let context = Mlx5Context::open(uctx, environment)
        .expect("a context")
        .context;
    let events = context.uctx().alloc_async_event().expect("a file");
    let base = Base::new(context, std::os::fd::AsRawFd::as_raw_fd(&events));
    shapes
        .iter()
        .map(|shape| {
            kernel.record(true);
            let said = base
                .make(*shape)
                .unwrap_or_else(|errno| format!("errno {}", errno.0));
            kernel.record(false);
            let mut calls = kernel.take_recorded();
            calls.retain(makes);
            Outcome { said, calls }
        })
        .collect()
}

/// What queues are made with.
struct Base {
    srq: (
        oxverbs::control::mlx5::srq::SrqObject,
        oxverbs::data::mlx5::SharedReceiveQueue,
    ),
    cq: oxverbs::control::mlx5::cq::CqObject,
    pd: oxverbs::control::mlx5::domain::PdObject,
    events: i32,
    context: Arc<Mlx5Context>,
}

impl Base {
    fn new(context: Arc<Mlx5Context>, events: i32) -> Self {
        let pd = context.alloc_pd().expect("a protection domain");
        let request = CqRequest {
            cqe: 200,
            async_event: Some(events),
            ..CqRequest::default()
        };
        let (cq, _) = context.create_cq(&request).expect("a completion queue");
        let request = SrqRequest {
            pd: pd.handle(),
            max_wr: 64,
            max_sge: 2,
            async_event: Some(events),
            ..SrqRequest::default()
        };
        let srq = context
            .create_srq(&request)
            .expect("a shared receive queue");
        Self {
            srq,
            cq,
            pd,
            events,
            context,
        }
    }

    fn make(&self, shape: Shape) -> Result<String, Errno> {
        match shape {
            Shape::Wq { wr, sge } => {
                let request = WqRequest {
                    pd: self.pd.handle(),
                    cq: self.cq.handle(),
                    user_handle: 1,
                    max_wr: wr,
                    max_sge: sge,
                    async_event: Some(self.events),
                    ..WqRequest::default()
                };
                let (mut object, _) = self.context.create_wq(&request)?;
                let said = format!("{} {}", object.max_wr(), object.max_sge());
                drop(object.destroy()?);
                Ok(said)
            }
            Shape::Cq { cqe, again } => {
                let request = CqRequest {
                    // as libibverbs' argument is an int
                    cqe: u32::try_from(cqe).unwrap_or(0),
                    user_handle: 1,
                    async_event: Some(self.events),
                    ..CqRequest::default()
                };
                let (mut object, mut queue) = self.context.create_cq(&request)?;
                let granted = queue.entries() - 1;
                let resized = object.resize(&mut queue, u32::try_from(again).unwrap_or(0));
                let errno = resized.err().map_or(0, |errno| errno.0);
                let said = format!("{granted} {errno} {}", queue.entries() - 1);
                object.destroy()?;
                Ok(said)
            }
            Shape::Srq { wr, sge } => {
                let request = SrqRequest {
                    pd: self.pd.handle(),
                    user_handle: 1,
                    max_wr: wr,
                    max_sge: sge,
                    async_event: Some(self.events),
                    ..SrqRequest::default()
                };
                let (mut object, _) = self.context.create_srq(&request)?;
                let said = format!("{} {}", object.max_wr(), object.max_sge());
                object.destroy()?;
                Ok(said)
            }
            Shape::Qp {
                kind,
                send_wr,
                recv_wr,
                send_sge,
                recv_sge,
                inline,
                signal,
                shared,
                ops,
                header,
            } => {
                let transport = match kind {
                    2 => Transport::Rc,
                    3 => Transport::Uc,
                    4 => Transport::Ud,
                    8 => Transport::RawPacket,
                    _ => Transport::XrcSend,
                };
                let request = QpRequest {
                    pd: self.pd.handle(),
                    send_cq: self.cq.handle(),
                    recv_cq: self.cq.handle(),
                    srq: shared.then(|| (self.srq.0.handle(), self.srq.1.shared().clone())),
                    user_handle: 1,
                    cap: QpCap {
                        max_send_wr: send_wr,
                        max_recv_wr: recv_wr,
                        max_send_sge: send_sge,
                        max_recv_sge: recv_sge,
                        max_inline_data: inline,
                    },
                    sq_sig_all: signal,
                    send_ops: (ops != 0).then_some(SendOps(ops)),
                    max_tso_header: header,
                    async_event: Some(self.events),
                    ..QpRequest::new(transport)
                };
                let mut made = self.context.create_qp(&request)?;
                let cap = made.object.cap();
                let said = format!(
                    "{} {} {} {} {}",
                    cap.max_send_wr,
                    cap.max_recv_wr,
                    cap.max_send_sge,
                    cap.max_recv_sge,
                    cap.max_inline_data
                );
                drop(made.object.destroy()?);
                Ok(said)
            }
        }
    }
}
