//! Capabilities: what the device can do, and what of it the driver put in force.
//!
//! | file | what |
//! |---|---|
//! | `general` | how many, how large, which operations |
//! | `general2` | the second page of those |
//! | `atomic` | atomic operations and the byte order of their replies |
//! | `odp` | on-demand paging |
//! | `memory` | memory on the device |
//! | `ethernet` | RoCE, offloads and flow tables of an Ethernet port |
//! | `qos` | packet pacing |
//! | `variant` | other cards and functions that a driver may meet |

mod atomic;
mod ethernet;
mod memory;
mod odp;
mod qos;

pub(crate) use ethernet::GIDS as ROCE_GIDS;
pub(crate) use general2::{LOG_RESERVED_QPNS, RESERVED_QPN};
pub(crate) use qos::{RATE_ENTRIES, RATES};
mod general;
mod general2;
mod variant;

use std::collections::BTreeMap;

use wqe_format::mlx5::firmware::caps::CapType;
use wqe_format::mlx5::firmware::caps::atomic::AtomicCaps;
use wqe_format::mlx5::firmware::caps::general::CmdHcaCap;
use wqe_format::mlx5::firmware::caps::odp::OdpCap;
use wqe_format::mlx5::firmware::caps::roce::RoceCap;
use wqe_format::mlx5::firmware::{Layout, bits};

use crate::adversary::Adversary;
use crate::config::{Config, LinkLayer};

/// Capabilities: what is possible, and what the driver put in force.
#[derive(Debug)]
pub(crate) struct Caps {
    maximum: BTreeMap<CapType, Vec<u8>>,
    current: BTreeMap<CapType, Vec<u8>>,
}

/// How completions can be compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compressions {
    pub(crate) basic: bool,
    pub(crate) enhanced: bool,
    /// Whether mini entries can name strides.
    pub(crate) strides: bool,
}

/// A field that no maximum bounds: the driver says in it how large its pages are.
const CHOSEN: &str = "log_uar_page_sz";

impl Caps {
    pub(crate) fn new(config: &Config) -> Caps {
        let mut maximum = BTreeMap::new();
        let (mut general, mut atomic) = (general::general(config), atomic::maximum());
        if config.virtual_function {
            variant::virtual_function(&mut general);
        }
        let mut adversary = Adversary::new(config.adversary);
        variant::apply(&mut adversary, &mut general, &mut atomic);
        maximum.insert(CapType::GENERAL, general);
        maximum.insert(CapType::ATOMIC, atomic);
        maximum.insert(CapType::GENERAL_2, general2::maximum());
        // Programs ask for these without being told that there are any.
        let pages_on_demand =
            CmdHcaCap::new(&maximum[&CapType::GENERAL][..]).is_ok_and(|caps| caps.pg());
        maximum.insert(CapType::ODP, odp::maximum(pages_on_demand));
        let has_memory =
            CmdHcaCap::new(&maximum[&CapType::GENERAL][..]).is_ok_and(|caps| caps.device_memory());
        maximum.insert(CapType::DEV_MEM, memory::maximum(has_memory));
        maximum.insert(CapType::QOS, qos::maximum(config.link));
        if config.link == LinkLayer::Ethernet {
            maximum.insert(CapType::ETHERNET_OFFLOADS, ethernet::offloads());
            maximum.insert(CapType::ROCE, ethernet::roce());
            maximum.insert(CapType::FLOW_TABLE, ethernet::flow_tables());
        } else {
            maximum.insert(CapType::FLOW_TABLE, ethernet::no_flow_tables());
        }
        let mut current = maximum.clone();
        if let Some(atomic) = current.get_mut(&CapType::ATOMIC) {
            atomic::start(atomic);
        }
        if let Some(paging) = current.get_mut(&CapType::ODP) {
            odp::start(paging);
        }
        Caps { maximum, current }
    }

    /// The capabilities of a kind, if there are any.
    pub(crate) fn query(&self, kind: CapType, current: bool) -> Option<&[u8]> {
        let set = if current {
            &self.current
        } else {
            &self.maximum
        };
        set.get(&kind).map(Vec::as_slice)
    }

    /// Puts in force what the driver wants, unless that is more than is possible.
    pub(crate) fn set(&mut self, kind: CapType, wanted: &[u8]) -> Result<(), &'static str> {
        let maximum = self.maximum.get(&kind).ok_or("no such capabilities")?;
        let layout = match kind {
            CapType::GENERAL => CmdHcaCap::LAYOUT,
            CapType::ATOMIC => AtomicCaps::LAYOUT,
            CapType::ROCE => RoceCap::LAYOUT,
            CapType::ODP => OdpCap::LAYOUT,
            _ => return Err("capabilities of this kind can't be set"),
        };
        let wanted = wanted
            .get(..layout.size)
            .ok_or("fewer bytes than these capabilities have")?;
        if let Some(field) = beyond(layout, maximum, wanted) {
            return Err(field);
        }
        let mut put = wanted.to_vec();
        if kind == CapType::ATOMIC {
            // The byte order is all that can be chosen: the kernel's `handle_hca_cap_atomic` leaves the rest zero and
            // finds the operations unchanged afterwards.
            put = atomic::with_order_of(maximum, wanted);
        }
        if kind == CapType::ODP {
            // The driver sets the bit of the scheme that it wants, and nothing else (`handle_hca_cap_odp`).
            let is_wanted = OdpCap::new(wanted).is_ok_and(|caps| caps.mem_page_fault());
            put = maximum.clone();
            if !is_wanted {
                odp::start(&mut put);
            }
        }
        self.current.insert(kind, put);
        Ok(())
    }

    fn general(&self) -> CmdHcaCap<&[u8]> {
        CmdHcaCap::new(&self.current[&CapType::GENERAL][..]).expect("it was made as long")
    }

    /// Whether commands' signatures are checked (`cmdif_checksum` 3).
    pub(crate) fn checks_commands(&self) -> bool {
        self.general().cmdif_checksum() == 3
    }

    /// Tags in a list at most, as a logarithm; 0 where there are no lists.
    pub(crate) fn log_tag_matching_list(&self) -> u8 {
        self.general().log_tag_matching_list_sz()
    }

    /// Whether keys may miss pages.
    pub(crate) fn has_paging(&self) -> bool {
        self.general().pg()
    }

    /// Whether the driver brings pages when they are missed.
    pub(crate) fn pages_on_demand(&self) -> bool {
        let caps = OdpCap::new(&self.current[&CapType::ODP][..]);
        caps.is_ok_and(|caps| caps.mem_page_fault())
    }

    /// Whether there is memory on the device.
    pub(crate) fn has_memory(&self) -> bool {
        self.general().device_memory()
    }

    /// How completions can be compressed.
    pub(crate) fn compression(&self) -> Compressions {
        let caps = self.general();
        Compressions {
            basic: caps.cqe_compression(),
            enhanced: caps.enhanced_cqe_compression(),
            strides: caps.mini_cqe_resp_stride_index(),
        }
    }

    /// Whether receive requests can be divided into strides.
    pub(crate) fn has_strides(&self) -> bool {
        self.general().striding_rq()
    }

    /// Largest completion queue.
    pub(crate) fn log_max_cq_size(&self) -> u8 {
        self.general().log_max_cq_sz()
    }

    /// Largest shared receive queue.
    pub(crate) fn log_max_srq_size(&self) -> u8 {
        self.general().log_max_srq_sz()
    }

    /// Largest queue of a queue pair.
    pub(crate) fn log_max_qp_size(&self) -> u8 {
        self.general().log_max_qp_sz()
    }

    /// Largest event queue.
    pub(crate) fn log_max_eq_size(&self) -> u8 {
        self.general().log_max_eq_sz()
    }

    /// What every driver does that can: see [`Caps::atomics_in_host_order`].
    #[cfg(test)]
    pub(crate) fn ask_for_host_order(&mut self) {
        let mut wanted = self.maximum[&CapType::ATOMIC].clone();
        if let Ok(mut caps) = AtomicCaps::new(&mut wanted[..]) {
            caps.set_atomic_req_8b_endianness_mode(atomic::HOST_ORDER);
        }
        assert_eq!(self.set(CapType::ATOMIC, &wanted), Ok(()));
    }

    /// Whether replies to atomic operations of 8 bytes come in the host's byte order, not in the wire's.
    pub(crate) fn atomics_in_host_order(&self) -> bool {
        let caps = AtomicCaps::new(&self.current[&CapType::ATOMIC][..]);
        caps.is_ok_and(|caps| caps.atomic_req_8b_endianness_mode() == atomic::HOST_ORDER)
    }
}

/// The first field whose number is larger than is possible.
fn beyond(layout: &Layout, maximum: &[u8], wanted: &[u8]) -> Option<&'static str> {
    let field = layout.fields.iter().find(|field| {
        let number = |bytes| bits::get(bytes, field.offset, field.width);
        field.width <= 64 && field.name != CHOSEN && number(wanted) > number(maximum)
    });
    field.map(|field| field.name)
}

#[cfg(test)]
mod tests {
    use wqe_format::mlx5::firmware::caps::ethernet::PerProtocolNetworkingOffloadCaps;
    use wqe_format::mlx5::firmware::caps::flow_table::FlowTableNicCap;
    use wqe_format::mlx5::firmware::caps::general2::CmdHcaCap2;
    use wqe_format::mlx5::firmware::caps::memory::DeviceMemCap;
    use wqe_format::mlx5::firmware::caps::qos::QosCap;

    use super::*;

    fn caps(link: LinkLayer) -> Caps {
        Caps::new(&Config {
            link,
            ..Config::default()
        })
    }

    #[test]
    fn nothing_is_told_that_a_reserved_bit_says() {
        for link in [LinkLayer::InfiniBand, LinkLayer::Ethernet] {
            for (kind, mut bytes) in caps(link).maximum {
                let layout = match kind {
                    CapType::GENERAL => CmdHcaCap::LAYOUT,
                    CapType::ATOMIC => AtomicCaps::LAYOUT,
                    CapType::GENERAL_2 => CmdHcaCap2::LAYOUT,
                    CapType::ODP => OdpCap::LAYOUT,
                    CapType::DEV_MEM => DeviceMemCap::LAYOUT,
                    CapType::QOS => QosCap::LAYOUT,
                    CapType::ROCE => RoceCap::LAYOUT,
                    CapType::ETHERNET_OFFLOADS => PerProtocolNetworkingOffloadCaps::LAYOUT,
                    CapType::FLOW_TABLE => FlowTableNicCap::LAYOUT,
                    other => panic!("{other:?}"),
                };
                assert_eq!(bytes.len(), layout.size);
                if kind == CapType::GENERAL {
                    general::forget_unnamed(&mut bytes);
                }
                if kind == CapType::GENERAL_2 {
                    general2::forget_granularity(&mut bytes);
                }
                if kind == CapType::DEV_MEM {
                    memory::forget_sizes(&mut bytes);
                }
                if kind == CapType::QOS {
                    qos::forget_registers(&mut bytes);
                }
                assert_eq!(layout.reserved_bit_set(&bytes), None, "{kind:?}");
            }
        }
    }

    #[test]
    fn a_driver_can_have_less_but_not_more() {
        let mut caps = caps(LinkLayer::InfiniBand);
        let told = caps.query(CapType::GENERAL, false).unwrap().to_vec();
        let with = |change: &dyn Fn(&mut CmdHcaCap<&mut [u8]>)| {
            let mut bytes = told.clone();
            change(&mut CmdHcaCap::new(&mut bytes[..]).unwrap());
            bytes
        };
        let less = with(&|caps| _ = caps.set_log_max_qp(9).set_xrc(false));
        assert_eq!(caps.set(CapType::GENERAL, &less), Ok(()));
        assert_eq!(caps.general().log_max_qp(), 9);
        assert_eq!(caps.query(CapType::GENERAL, false), Some(&told[..]));

        let more = with(&|caps| _ = caps.set_log_max_qp(31));
        assert_eq!(caps.set(CapType::GENERAL, &more), Err("log_max_qp"));
        let other = with(&|caps| _ = caps.set_roce(true));
        assert_eq!(caps.set(CapType::GENERAL, &other), Err("roce"));
        assert_eq!(caps.general().log_max_qp(), 9);
        assert!(caps.set(CapType::GENERAL, &told[1..]).is_err());
        assert!(caps.set(CapType::ROCE, &told).is_err());
    }

    #[test]
    fn atomics_are_big_endian_until_the_driver_wants_otherwise() {
        let mut caps = caps(LinkLayer::InfiniBand);
        assert!(!caps.atomics_in_host_order());
        let before = caps.query(CapType::ATOMIC, true).unwrap().to_vec();
        let mut wanted = vec![0; before.len()];
        AtomicCaps::new(&mut wanted[..])
            .unwrap()
            .set_atomic_req_8b_endianness_mode(1);
        assert_eq!(caps.set(CapType::ATOMIC, &wanted), Ok(()));
        assert!(caps.atomics_in_host_order());
        let operations = |bytes: &[u8]| AtomicCaps::new(bytes).unwrap().atomic_operations();
        let after = caps.query(CapType::ATOMIC, true).unwrap();
        assert_eq!(operations(after), operations(&before));
    }
}
