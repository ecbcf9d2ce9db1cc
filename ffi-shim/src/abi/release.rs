//! What differs between rdma-core releases 34 to 65.
//!
//! The number in `IBVERBS_PRIVATE_NN` does not tell the layout: 34 stands for releases 34 to 56
//! with five different ones, 59 for two. So a [`Layout`] is made from the release in the library's
//! file name.

/// First release whose private ABI is this one (earlier ones register by another symbol).
pub const OLDEST: u32 = 34;
/// Last release whose headers were compared.
pub const NEWEST: u32 = 65;

/// Size of `struct ibv_context`, which ends `struct verbs_context`.
const IBV_CONTEXT: usize = 328;

/// Layout of one release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// rdma-core's major version.
    pub release: u32,
    /// `IBVERBS_PABI_VERSION`: the number in the registration symbol and in plug-in file names.
    pub pabi: u32,
    /// Number of slots in `struct verbs_context_ops`.
    pub ops: usize,
    /// Offset of `ibv_context` in `verbs_context`, which grows at the front.
    pub context_offset: usize,
    /// Number of function slots in `ibv_qp_ex`.
    pub wr_slots: usize,
    /// Size of the caller's `ibv_port_attr`.
    pub port_attr_size: usize,
}

impl Layout {
    /// The layout of a release, if it is one that was compared with its headers.
    pub fn of_release(release: u32) -> Option<Self> {
        let pabi = match release {
            34..=56 => 34,
            57..=58 => 57,
            59..=63 => 59,
            64 => 64,
            65 => 65,
            _ => return None,
        };
        // Function slots of verbs_context: 37 first, then DMA handles and reg_mr_ex (59), dma-buf
        // export of device memory (62), and buffers (64). Three words are no functions: priv, a
        // placeholder, sz.
        let functions = match release {
            34..=58 => 37,
            59..=61 => 40,
            62..=63 => 41,
            _ => 43,
        };
        Some(Self {
            release,
            pabi,
            ops: Op::ALL.iter().filter(|op| op.since() <= release).count(),
            context_offset: (functions + 3) * 8,
            wr_slots: match release {
                34..=43 => 20,
                44 => 21,
                _ => 22,
            },
            port_attr_size: if release < 49 { 52 } else { 56 },
        })
    }

    /// Size of `struct verbs_context`.
    pub const fn verbs_context_size(&self) -> usize {
        self.context_offset + IBV_CONTEXT
    }

    /// Offset of `sz` in `verbs_context`: just before `ibv_context`.
    pub const fn sz_offset(&self) -> usize {
        self.context_offset - 8
    }

    /// Offset of `priv` in `verbs_context`: 14 words before `ibv_context`.
    pub const fn priv_offset(&self) -> usize {
        self.context_offset - 14 * 8
    }

    /// Offset of `comp_mask` in `verbs_qp`: behind the function slots of `ibv_qp_ex`.
    pub const fn qp_comp_mask_offset(&self) -> usize {
        184 + self.wr_slots * 8
    }

    /// Size of `struct verbs_qp`.
    pub const fn verbs_qp_size(&self) -> usize {
        self.qp_comp_mask_offset() + 16
    }

    /// Position of an op in this release's `verbs_context_ops`, which is sorted by name.
    pub fn slot(&self, op: Op) -> Option<usize> {
        if op.since() > self.release {
            return None;
        }
        let before = Op::ALL.iter().take_while(|other| **other != op);
        Some(before.filter(|other| other.since() <= self.release).count())
    }
}

macro_rules! ops {
    ($($name:ident $since:literal,)*) => {
        /// An entry of `struct verbs_context_ops`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Op {
            $($name,)*
        }

        impl Op {
            /// All of them, in the order of release 65; every release keeps it.
            pub const ALL: &'static [Op] = &[$(Op::$name,)*];

            /// The release that added it.
            pub const fn since(self) -> u32 {
                match self {
                    $(Op::$name => $since,)*
                }
            }

            /// C's name.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Op::$name => stringify!($name),)*
                }
            }
        }
    };
}

ops! {
    advise_mr 34,
    alloc_buf 64,
    alloc_dm 34,
    alloc_dmah 59,
    alloc_mw 34,
    alloc_null_mr 34,
    alloc_parent_domain 34,
    alloc_pd 34,
    alloc_td 34,
    async_event 34,
    attach_counters_point_flow 34,
    attach_mcast 34,
    bind_mw 34,
    close_xrcd 34,
    cq_event 34,
    create_ah 34,
    create_comp_cntr 65,
    create_counters 34,
    create_cq 34,
    create_cq_ex 34,
    create_flow 34,
    create_flow_action_esp 34,
    create_qp 34,
    create_qp_ex 34,
    create_rwq_ind_table 34,
    create_srq 34,
    create_srq_ex 34,
    create_wq 34,
    dealloc_dmah 59,
    dealloc_mw 34,
    dealloc_pd 34,
    dealloc_td 34,
    dereg_mr 34,
    destroy_ah 34,
    destroy_comp_cntr 65,
    destroy_counters 34,
    destroy_cq 34,
    destroy_flow 34,
    destroy_flow_action 34,
    destroy_qp 34,
    destroy_rwq_ind_table 34,
    destroy_srq 34,
    destroy_wq 34,
    detach_mcast 34,
    dm_export_dmabuf_fd 62,
    free_buf 64,
    free_context 34,
    free_dm 34,
    get_srq_num 34,
    import_dm 35,
    import_mr 34,
    import_pd 34,
    inc_comp_cntr 65,
    inc_err_comp_cntr 65,
    modify_cq 34,
    modify_flow_action_esp 34,
    modify_qp 34,
    modify_qp_rate_limit 34,
    modify_srq 34,
    modify_wq 34,
    open_qp 34,
    open_xrcd 34,
    poll_cq 34,
    post_recv 34,
    post_send 34,
    post_srq_ops 34,
    post_srq_recv 34,
    qp_attach_comp_cntr 65,
    query_comp_cntr_caps 65,
    query_device_ex 34,
    query_ece 34,
    query_port 34,
    query_port_speed 62,
    query_qp 34,
    query_qp_data_in_order 36,
    query_rt_values 34,
    query_srq 34,
    read_comp_cntr 65,
    read_counters 34,
    read_err_comp_cntr 65,
    reg_dm_mr 34,
    reg_dmabuf_mr 34,
    reg_mr 34,
    reg_mr_ex 59,
    req_notify_cq 34,
    rereg_mr 34,
    resize_cq 34,
    set_comp_cntr 65,
    set_ece 34,
    set_err_comp_cntr 65,
    unimport_dm 35,
    unimport_mr 34,
    unimport_pd 34,
}

/// Where `verbs_set_ops` leaves a copy of an op in `ibv_context.ops`: what inline functions call,
/// and what programs built before 2011 may. Reading them back shows whether the table that we
/// passed was the table that the library read.
pub const MIRRORED: &[(usize, Op)] = &[
    (7, Op::alloc_mw),
    (8, Op::bind_mw),
    (9, Op::dealloc_mw),
    (11, Op::poll_cq),
    (12, Op::req_notify_cq),
    (14, Op::resize_cq),
    (15, Op::destroy_cq),
    (16, Op::create_srq),
    (17, Op::modify_srq),
    (18, Op::query_srq),
    (19, Op::destroy_srq),
    (20, Op::post_srq_recv),
    (21, Op::create_qp),
    (22, Op::query_qp),
    (23, Op::modify_qp),
    (24, Op::destroy_qp),
    (25, Op::post_send),
    (26, Op::post_recv),
    (27, Op::create_ah),
    (28, Op::destroy_ah),
    (29, Op::attach_mcast),
    (30, Op::detach_mcast),
];

#[cfg(test)]
mod tests {
    use super::{Layout, NEWEST, OLDEST, Op};

    /// Counted in the headers of the release in the first column (git tags of rdma-core).
    const COUNTED: &[(u32, u32, usize, usize, usize)] = &[
        // release, PABI, ops, functions in verbs_context, slots in ibv_qp_ex
        (34, 34, 73, 37, 20),
        (35, 34, 75, 37, 20),
        (36, 34, 76, 37, 20),
        (39, 34, 76, 37, 20),
        (43, 34, 76, 37, 20),
        (44, 34, 76, 37, 21),
        (45, 34, 76, 37, 22),
        (48, 34, 76, 37, 22),
        (49, 34, 76, 37, 22),
        (56, 34, 76, 37, 22),
        (57, 57, 76, 37, 22),
        (58, 57, 76, 37, 22),
        (59, 59, 79, 40, 22),
        (61, 59, 79, 40, 22),
        (62, 59, 81, 41, 22),
        (63, 59, 81, 41, 22),
        (64, 64, 83, 43, 22),
        (65, 65, 93, 43, 22),
    ];

    #[test]
    fn counted_releases() {
        for &(release, pabi, ops, functions, wr_slots) in COUNTED {
            let layout = Layout::of_release(release).unwrap();
            assert_eq!(
                (
                    layout.pabi,
                    layout.ops,
                    layout.context_offset,
                    layout.wr_slots
                ),
                (pabi, ops, (functions + 3) * 8, wr_slots),
                "release {release}"
            );
        }
    }

    #[test]
    fn unknown_releases_have_none() {
        for release in [0, 17, 33, 66, 67, 1000] {
            assert_eq!(Layout::of_release(release), None);
        }
        for release in OLDEST..=NEWEST {
            assert_eq!(Layout::of_release(release).unwrap().release, release);
        }
    }

    #[test]
    fn slots_are_dense_and_sorted() {
        assert!(Op::ALL.windows(2).all(|w| w[0].name() < w[1].name()));
        for release in OLDEST..=NEWEST {
            let layout = Layout::of_release(release).unwrap();
            let slots: Vec<usize> = Op::ALL.iter().filter_map(|op| layout.slot(*op)).collect();
            assert_eq!(slots, (0..layout.ops).collect::<Vec<_>>());
        }
    }
}
