//! Flow rules: which packets a raw queue pair gets.

use std::ffi::c_int;

use oxverbs::ffi_core::Errno;
use oxverbs::ffi_core::uverbs_abi::handle::{Counters, Flow, Qp};
use oxverbs::ffi_core::uverbs_abi::write::flow::FlowAttr;

use crate::abi::objects::{ibv_context, ibv_qp};
use crate::abi::wq::{ibv_counters, ibv_flow, ibv_flow_attr};
use crate::common::{destroyed, slice};
use crate::context::uctx;
use crate::door::control;
use crate::mlx5::counters;

/// Bytes in front of a specification's filters in the kernel's form: type, size, reserved.
const KERNEL_HEADER: usize = 8;
/// Bytes of type and size in a program's.
const HEADER: usize = 6;
/// `IBV_FLOW_SPEC_INNER`: of the packet in a tunnel.
const INNER: u32 = 0x100;
/// The most bytes of a rule that the kernel takes: 10 specifications, of at most 88 bytes.
const MAX_SPECS: usize = 10 * 88;

/// `IBV_FLOW_SPEC_ACTION_COUNT`, which is also the kernel's number.
const COUNT: u32 = 0x1003;
/// Where a program's specification has its set of counters, and where it ends.
const COUNT_AT: usize = 8;
const COUNT_SIZE: usize = 16;

/// A rule: what the program sees, and the set that it counts into.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Rule {
    ibv: ibv_flow,
    counters: *mut ibv_counters,
}

impl Rule {
    /// A rule that the kernel made; `counters` is null if it counts into none.
    pub(crate) fn object(
        context: *mut ibv_context,
        handle: Flow,
        counters: *mut ibv_counters,
    ) -> *mut ibv_flow {
        let ibv = ibv_flow {
            comp_mask: 0,
            context,
            handle: handle.0,
        };
        Box::into_raw(Box::new(Self { ibv, counters })).cast()
    }
}

/// How a specification is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    /// Its type for the kernel.
    kernel_type: u32,
    /// Where a program's filter begins.
    at: usize,
    /// Bytes of a filter, for the kernel.
    filter: usize,
    /// Bytes of a filter that a program has, or at least has.
    least: usize,
    /// Whether a program's filters are as long as they are: they take what is left, in equal parts.
    grows: bool,
    /// Filters: value and mask, or one value, or nothing.
    filters: usize,
    /// Bytes behind them.
    padding: usize,
}

/// The form of a type (`enum ibv_flow_spec_type`; the layouts are of `infiniband/verbs.h` and `rdma/ib_user_verbs.h`).
fn form(number: u32) -> Option<Form> {
    let inner = number & INNER;
    let pair = |kernel_type: u32, at, filter, least| Form {
        kernel_type: kernel_type | inner,
        at,
        filter,
        least,
        grows: false,
        filters: 2,
        padding: 0,
    };
    let growing = |form: Form| Form {
        grows: true,
        ..form
    };
    Some(match number & !INNER {
        // Ethernet
        0x20 => pair(0x20, 6, 16, 16),
        // IPv4: the two addresses, which the kernel takes for the whole filter
        0x30 => pair(0x30, 8, 8, 8),
        // IPv6
        0x31 => growing(pair(0x31, 8, 40, 39)),
        // IPv4 with the rest of it, which is the same to the kernel
        0x32 => growing(pair(0x30, 8, 12, 12)),
        // ESP
        0x34 => pair(0x34, 8, 8, 8),
        // TCP, UDP
        0x40 => pair(0x40, 6, 4, 4),
        0x41 => pair(0x41, 6, 4, 4),
        // VXLAN, GRE: not within another
        0x50 if inner == 0 => growing(pair(0x50, 8, 4, 4)),
        0x51 if inner == 0 => pair(0x51, 8, 8, 8),
        // MPLS
        0x60 => pair(0x60, 8, 4, 4),
        // a tag for completions
        0x1000 if inner == 0 => Form {
            filters: 1,
            padding: 4,
            ..pair(0x1000, 8, 4, 4)
        },
        // drop
        0x1001 if inner == 0 => Form {
            filters: 0,
            ..pair(0x1001, HEADER, 0, 0)
        },
        _ => return None,
    })
}

/// The set of counters that the specifications name; null if none does. `EINVAL` for more than one.
fn counters_of(mut from: &[u8], count: u8) -> Result<*mut ibv_counters, Errno> {
    let mut counters: *mut ibv_counters = std::ptr::null_mut();
    for _ in 0..count {
        let bad = Errno(libc::EINVAL);
        let header: &[u8; HEADER] = from.first_chunk().ok_or(bad)?;
        let [a, b, c, d, e, f] = *header;
        let size = usize::from(u16::from_ne_bytes([e, f]));
        let spec = from.get(..size).filter(|_| size >= HEADER).ok_or(bad)?;
        if u32::from_ne_bytes([a, b, c, d]) == COUNT {
            let address = spec.get(COUNT_AT..COUNT_SIZE).ok_or(bad)?;
            let address = address.first_chunk().copied().ok_or(bad)?;
            let address = usize::from_ne_bytes(address);
            if !counters.is_null() || address == 0 {
                return Err(bad);
            }
            counters = std::ptr::with_exposed_provenance_mut(address);
        }
        from = &from[size..];
    }
    Ok(counters)
}

/// Turns a program's specifications into the kernel's; `counters` is the set that one of them may name.
fn specifications(
    mut from: &[u8],
    count: u8,
    counters: Option<Counters>,
) -> Result<Vec<u8>, Errno> {
    let bad = Errno(libc::EINVAL);
    let mut to = Vec::new();
    for _ in 0..count {
        let header: &[u8; HEADER] = from.first_chunk().ok_or(bad)?;
        let [a, b, c, d, e, f] = *header;
        let number = u32::from_ne_bytes([a, b, c, d]);
        let size = usize::from(u16::from_ne_bytes([e, f]));
        let spec = from.get(..size).filter(|_| size >= HEADER).ok_or(bad)?;
        if let (COUNT, Some(counters)) = (number, counters) {
            // uapi `ib_uverbs_flow_spec_action_count`: header, handle, reserved
            to.extend_from_slice(&COUNT.to_ne_bytes());
            to.extend_from_slice(&(COUNT_SIZE as u16).to_ne_bytes());
            to.extend_from_slice(&[0; 2]);
            to.extend_from_slice(&counters.0.to_ne_bytes());
            to.extend_from_slice(&[0; 4]);
            from = &from[size..];
            continue;
        }
        let form = form(number).ok_or(bad)?;
        let start = to.len();
        let kernel_size = KERNEL_HEADER + form.filters * form.filter + form.padding;
        to.extend_from_slice(&form.kernel_type.to_ne_bytes());
        to.extend_from_slice(&(kernel_size as u16).to_ne_bytes());
        to.resize(start + kernel_size, 0);
        let each = match size.saturating_sub(form.at).checked_div(form.filters) {
            Some(each) if form.grows => each,
            _ => form.least,
        };
        let filters = spec.get(form.at..form.at + form.filters * each);
        let filters = filters.filter(|_| each >= form.least).ok_or(bad)?;
        for index in 0..form.filters {
            let filter = &filters[index * each..][..each];
            // A later program's filter may be longer, if it asks for no more.
            let (known, beyond) = filter.split_at(each.min(form.filter));
            if beyond.iter().any(|&byte| byte != 0) {
                return Err(Errno(libc::EOPNOTSUPP));
            }
            let place = start + KERNEL_HEADER + index * form.filter;
            to[place..place + known.len()].copy_from_slice(known);
        }
        from = &from[size..];
    }
    if to.len() > MAX_SPECS {
        return Err(bad);
    }
    Ok(to)
}

/// Bytes of a program's specifications.
///
/// # Safety
///
/// `count` specifications stand at `first`, each as long as it says.
unsafe fn length(first: *const u8, count: u8) -> Result<usize, Errno> {
    let mut length = 0;
    for _ in 0..count {
        let size = first.wrapping_add(length + 4).cast::<u16>();
        // SAFETY: the size in the header of the next one, wherever it stands.
        let size = usize::from(unsafe { size.read_unaligned() });
        if size < HEADER {
            return Err(Errno(libc::EINVAL));
        }
        length += size;
    }
    Ok(length)
}

pub(crate) unsafe extern "C" fn create_flow(
    qp: *mut ibv_qp,
    attr: *mut ibv_flow_attr,
) -> *mut ibv_flow {
    control("create_flow", || {
        let (context, handle) = {
            // SAFETY: a queue pair of ours (C1).
            let object = unsafe { &*qp };
            (object.context, Qp(object.handle))
        };
        // SAFETY: the caller's attributes, which may stand anywhere.
        let rule = unsafe { attr.read_unaligned() };
        if rule.comp_mask != 0 {
            return Err(Errno(libc::EINVAL));
        }
        // The specifications follow the attributes. Their sizes are what counts: programs (rdma-core's own pyverbs) leave
        // them out of the rule's size.
        let behind = attr.wrapping_add(1).cast::<u8>().cast_const();
        // SAFETY: as many specifications by the verb's contract.
        let length = unsafe { length(behind, rule.num_of_specs) }?;
        // SAFETY: the lengths of all of them.
        let specs = unsafe { slice(behind, length) };
        let set = counters_of(specs, rule.num_of_specs)?;
        let ours = if set.is_null() {
            None
        } else {
            // SAFETY: a set of ours, which the program names (C1).
            Some(unsafe { counters::of(set) })
        };
        let specs = specifications(specs, rule.num_of_specs, ours.map(|ours| ours.handle()))?;
        let command = FlowAttr {
            r#type: rule.r#type,
            priority: rule.priority,
            num_of_specs: rule.num_of_specs,
            port: rule.port,
            flags: rule.flags,
            ..FlowAttr::default()
        };
        // SAFETY: an open context.
        let uctx = unsafe { uctx(context) }?;
        // Locked, so that two rules do not both bring the news.
        let mut counted = ours.map(|ours| ours.counted());
        let news = match &counted {
            Some(counted) => counted.news()?,
            None => None,
        };
        let flow = uctx.create_flow_mlx5(handle, &command, &specs, news)?;
        if let Some(counted) = &mut counted {
            counted.hold();
        }
        Ok(Rule::object(context, flow, set))
    })
}

pub(crate) unsafe extern "C" fn destroy_flow(flow: *mut ibv_flow) -> c_int {
    control("destroy_flow", || {
        let (context, handle) = {
            // SAFETY: a rule of ours (C1).
            let object = unsafe { &*flow };
            (object.context, object.handle)
        };
        // SAFETY: as above: all rules are made by `Rule::object`.
        let set = unsafe { (*flow.cast::<Rule>()).counters };
        // SAFETY: its context is open.
        destroyed(unsafe { uctx(context) }?.destroy_flow(Flow(handle)))?;
        if !set.is_null() {
            // SAFETY: the kernel keeps a set that rules count into, and so do we.
            unsafe { counters::of(set) }.counted().release();
        }
        // SAFETY: made by `Rule::object`, and gone for the kernel and the program.
        drop(unsafe { Box::from_raw(flow.cast::<Rule>()) });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(number: u32, at: usize, filters: &[&[u8]]) -> Vec<u8> {
        let len = at + filters.iter().map(|filter| filter.len()).sum::<usize>();
        let mut bytes = number.to_ne_bytes().to_vec();
        bytes.extend_from_slice(&(len as u16).to_ne_bytes());
        bytes.resize(at, 0);
        for filter in filters {
            bytes.extend_from_slice(filter);
        }
        bytes
    }

    /// Ethernet filters stand right behind the size, which the kernel's do not.
    #[test]
    fn ethernet_moves_by_two_bytes() {
        let mut from = spec(0x20, 6, &[&[1; 16], &[2; 16]]);
        // C pads the struct to a multiple of four.
        from.extend_from_slice(&[0; 2]);
        from[4] = 40;
        let to = specifications(&from, 1, None).unwrap();
        assert_eq!(to[..8], [0x20, 0, 0, 0, 40, 0, 0, 0]);
        assert_eq!(to[8..24], [1; 16]);
        assert_eq!(to[24..], [2; 16]);
    }

    /// IPv4 with and without what is behind the addresses is one type to the kernel, of two sizes.
    #[test]
    fn ipv4_has_two_sizes() {
        let to = specifications(&spec(0x30, 8, &[&[1; 8], &[2; 8]]), 1, None).unwrap();
        assert_eq!(to[..8], [0x30, 0, 0, 0, 24, 0, 0, 0]);
        assert_eq!(to[8..], [[1; 8], [2; 8]].concat());
        let extended =
            specifications(&spec(0x32 | INNER, 8, &[&[1; 12], &[2; 12]]), 1, None).unwrap();
        assert_eq!(extended[..6], [0x30, 1, 0, 0, 32, 0]);
        assert_eq!(extended[8..], [[1; 12], [2; 12]].concat());
    }

    /// A rule's length is that of its specifications, whatever its own size says.
    #[test]
    fn specifications_say_how_long_they_are() {
        let two = [spec(0x20, 6, &[&[1; 34]]), spec(0x1001, 6, &[])].concat();
        // SAFETY: two stand there.
        assert_eq!(unsafe { length(two.as_ptr(), 2) }, Ok(46));
        // SAFETY: none is read.
        assert_eq!(unsafe { length(two.as_ptr(), 0) }, Ok(0));
        // SAFETY: the one that ends before it begins is the last that is read.
        let short = unsafe { length([0x20, 0, 0, 0, 5, 0].as_ptr(), 2) };
        assert_eq!(short, Err(Errno(libc::EINVAL)));
    }

    #[test]
    fn actions_and_what_is_refused() {
        let tag = specifications(&spec(0x1000, 8, &[&[7, 0, 0, 0]]), 1, None).unwrap();
        assert_eq!(tag, [0, 0x10, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        let drop = specifications(&spec(0x1001, 6, &[]), 1, None).unwrap();
        assert_eq!(drop, [1, 0x10, 0, 0, 8, 0, 0, 0]);
        for wrong in [
            spec(0x1002, 8, &[&[0; 8]]),
            spec(0x99, 8, &[]),
            spec(0x20, 6, &[&[1; 16], &[2; 8]])[..20].to_vec(),
            spec(0x40, 6, &[&[1; 2], &[2; 2]]),
            vec![0x20, 0, 0],
        ] {
            assert_eq!(specifications(&wrong, 1, None), Err(Errno(libc::EINVAL)));
        }
        let longer = [[0; 12].as_slice(), &[1]].concat();
        let longer = spec(0x32, 8, &[&longer, &longer]);
        assert_eq!(
            specifications(&longer, 1, None),
            Err(Errno(libc::EOPNOTSUPP))
        );
    }

    /// A set of counters is named by its address, and to the kernel by its handle.
    #[test]
    fn counters_are_named_by_their_handle() {
        let named = spec(COUNT, 8, &[&0x1230_usize.to_ne_bytes()]);
        let two = [spec(0x1001, 6, &[]), named.clone()].concat();
        assert_eq!(counters_of(&two, 2).unwrap().addr(), 0x1230);
        assert!(counters_of(&two, 1).unwrap().is_null());
        let to = specifications(&two, 2, Some(Counters(7))).unwrap();
        let count = [3, 0x10, 0, 0, 16, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(to[8..], count);
        let twice = [named.clone(), named.clone()].concat();
        assert_eq!(counters_of(&twice, 2), Err(Errno(libc::EINVAL)));
        // Without a set to name, as with one cut short, it is no specification.
        let bad = Err(Errno(libc::EINVAL));
        assert_eq!(specifications(&named, 1, None), bad);
        assert_eq!(counters_of(&named[..12], 1), Err(Errno(libc::EINVAL)));
    }
}
