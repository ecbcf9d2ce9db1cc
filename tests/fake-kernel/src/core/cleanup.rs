//! What is left when a device file is closed: users go first, then what they use.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use crate::core::objects::{CqKind, Device, Object, Qp, QpKind, SrqKind};
use crate::state::{State, release_qp};

impl State {
    /// Destroys what a closed device file leaves.
    pub(crate) fn end_context(&mut self, fd: RawFd) {
        let Some(context) = self.contexts.remove(&fd) else {
            return;
        };
        let device = &mut self.devices[context.device];
        for object in context.objects.values() {
            match object {
                Object::Flow(n) => drop(device.flows.remove(n)),
                Object::Qp(qpn) | Object::OpenedQp(qpn) => close_qp(device, *qpn),
                Object::Mw(n) => drop(device.mws.remove(n)),
                _ => {}
            }
        }
        for object in context.objects.values() {
            match object {
                Object::IndTable(n) => drop(device.ind_tables.remove(n)),
                Object::Mr(n) => drop(device.mrs.remove(n)),
                Object::Ah(n) => drop(device.ahs.remove(n)),
                Object::Srq(n) => {
                    let srq = device.srqs.remove(n);
                    if let Some(SrqKind::Mlx5(own)) = srq.as_ref().map(|srq| &srq.kind) {
                        own.is_alive.store(false, Ordering::Release);
                    }
                    let xrcd = srq.and_then(|srq| srq.xrcd);
                    if let Some(xrcd) = xrcd.and_then(|xrcd| device.xrcds.get_mut(&xrcd)) {
                        xrcd.users = xrcd.users.saturating_sub(1);
                    }
                }
                _ => {}
            }
        }
        for object in context.objects.values() {
            match object {
                Object::Wq(n) => {
                    if let Some(wq) = device.wqs.remove(n) {
                        wq.queue.is_alive.store(false, Ordering::Release);
                    }
                }
                Object::Cq(n) => {
                    let cq = device.cqs.remove(n);
                    if let Some(CqKind::Mlx5(own)) = cq.map(|cq| cq.kind) {
                        own.is_alive.store(false, Ordering::Release);
                    }
                }
                Object::Pd(n) => drop(device.pds.remove(n)),
                Object::Dm(n) => drop(device.dms.remove(n)),
                Object::Counters(n) => {
                    device.counters.remove(n);
                }
                Object::Xrcd(n) => close_domain(device, *n),
                _ => {}
            }
        }
    }
}

/// A queue pair goes with its last handle.
fn close_qp(device: &mut Device, qpn: u32) {
    let Some(qp) = device.qps.get_mut(&qpn) else {
        return;
    };
    qp.opens -= 1;
    if qp.opens > 0 {
        return;
    }
    let Some(qp) = device.qps.remove(&qpn) else {
        return;
    };
    forget(&qp);
    release_qp(device, &qp);
    for members in device.groups.values_mut() {
        members.retain(|member| *member != qpn);
    }
    device.groups.retain(|_, members| !members.is_empty());
}

/// The program's memory is its own again.
fn forget(qp: &Qp) {
    if let QpKind::Mlx5(own) = &qp.kind {
        own.is_alive.store(false, Ordering::Release);
    }
}

fn close_domain(device: &mut Device, number: u32) {
    if let Some(xrcd) = device.xrcds.get_mut(&number) {
        xrcd.opens -= 1;
        if xrcd.opens == 0 {
            device.xrcds.remove(&number);
        }
    }
}
