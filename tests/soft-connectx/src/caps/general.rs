//! General capabilities (`mlx5_ifc.h` `cmd_hca_cap`).

use wqe_format::mlx5::firmware::bits;
use wqe_format::mlx5::firmware::caps::general::CmdHcaCap;

use crate::completion::compress;
use crate::config::{Config, LinkLayer};
use crate::init_segment::FREQUENCY_KHZ;

/// What is possible.
pub(super) fn general(config: &Config) -> Vec<u8> {
    let ethernet = config.link == LinkLayer::Ethernet;
    let mut caps = CmdHcaCap::zeroed();
    numbers(&mut caps);
    operations(&mut caps);
    caps.set_port_type(ethernet.into())
        .set_num_ports(1)
        .set_native_port_num(1);
    caps.set_ib_virt(!ethernet);
    caps.set_gid_table_size(0); // code 0: 8 entries, `port::GIDS`; Ethernet's are among the RoCE capabilities
    caps.set_pkey_table_size(0); // code 0: 128 entries
    if ethernet {
        for_ethernet(&mut caps);
    } else {
        // On Ethernet, libmlx5's queue pair for changes of a list has no path that the kernel takes.
        caps.set_tag_matching(true)
            .set_rndv_offload_rc(true)
            .set_log_tag_matching_list_sz(7)
            .set_log_max_xrq(14);
    }
    caps.set_device_frequency_khz(FREQUENCY_KHZ);
    let mut bytes = caps.into_inner().to_vec();
    bits::set(&mut bytes, UDP_SPORT.0, UDP_SPORT.1, ethernet.into());
    for (offset, width) in SIGNATURES {
        bits::set(&mut bytes, offset, width, 1);
    }
    bytes
}

/// `sig_crc64_xp10`, `sig_crc32c`, `sig_block_4048` and `sigerr_domain_and_sig_type` of rdma-core's
/// providers/mlx5/mlx5_ifc.h, which Linux calls reserved: kinds of signatures, and that mistakes say where they were found.
const SIGNATURES: [(usize, usize); 4] = [(0x147, 1), (0x148, 1), (0x1f0, 1), (0x480, 1)];

/// `rts2rts_qp_udp_sport` of rdma-core's providers/mlx5/mlx5_ifc.h, which Linux calls reserved: RTS2RTS_QP changes the UDP
/// port that packets come from.
const UDP_SPORT: (usize, usize) = (0x151, 1);

/// Clears what Linux calls reserved.
#[cfg(test)]
pub(super) fn forget_unnamed(bytes: &mut [u8]) {
    for (offset, width) in SIGNATURES.into_iter().chain([UDP_SPORT]) {
        bits::set(bytes, offset, width, 0);
    }
}

/// How many and how large, as logarithms.
fn numbers<B: AsMut<[u8]>>(caps: &mut CmdHcaCap<B>) {
    caps.set_log_max_qp(17).set_log_max_qp_sz(15);
    caps.set_log_max_cq(16).set_log_max_cq_sz(22);
    caps.set_log_max_srq(16)
        .set_log_max_srq_sz(15)
        .set_log_max_rmp(16);
    caps.set_log_max_eq(7)
        .set_log_max_eq_sz(20)
        .set_max_num_eqs(64);
    caps.set_log_max_mkey(22).set_log_max_mrw_sz(63);
    caps.set_log_max_pd(20)
        .set_log_max_xrcd(16)
        .set_log_max_transport_domain(16);
    caps.set_log_max_mcg(13).set_max_qp_mcg(240);
    caps.set_max_indirection(4).set_log_max_klm_list_size(16);
    caps.set_log_max_ra_req_qp(4).set_log_max_ra_res_qp(4);
    caps.set_log_max_ra_req_dc(4).set_log_max_ra_res_dc(4);
    caps.set_max_wqe_sz_sq(1024)
        .set_max_wqe_sz_rq(512)
        .set_max_wqe_sz_sq_dc(1024);
    caps.set_log_max_msg(30)
        .set_max_qp_cnt(254)
        .set_local_ca_ack_delay(16);
    caps.set_log_max_uctx(10).set_log_max_umem(16);
    caps.set_log_bf_reg_size(9).set_log_pg_sz(12).set_uar_sz(5);
    caps.set_num_of_uars_per_page(4);
    caps.set_log_max_rq(16)
        .set_log_max_sq(16)
        .set_log_max_wq_sz(15);
    caps.set_log_max_tir(16)
        .set_log_max_tis(16)
        .set_log_max_rqt(16)
        .set_log_max_rqt_size(11);
}

/// What it can do.
fn operations<B: AsMut<[u8]>>(caps: &mut CmdHcaCap<B>) {
    caps.set_rc(true).set_uc(true).set_ud(true).set_xrc(true);
    caps.set_dct(true);
    caps.set_page_request_disable(true).set_driver_version(true);
    caps.set_cqe_version(1).set_compact_address_vector(true);
    caps.set_bf(true)
        .set_atomic(true)
        .set_imaicl(true)
        .set_set_deth_sqpn(true);
    caps.set_cq_oi(true)
        .set_cq_resize(true)
        .set_cq_moderation(true);
    caps.set_fast_teardown(true);
    caps.set_vport_counters(true)
        .set_out_of_seq_cnt(true)
        .set_retransmission_q_counters(true)
        .set_enhanced_error_q_counters(true);
    caps.set_device_memory(true)
        .set_pg(true)
        .set_umr_extended_translation_offset(true);
    caps.set_sctr_data_cqe(true)
        .set_block_lb_mc(true)
        .set_null_mkey(true)
        .set_dump_fill_mkey(true)
        .set_ece_support(true);
    caps.set_umem_uid_0(true).set_stat_rate_support(0xffff);
    caps.set_repeated_block_disabled(false)
        .set_umr_modify_entity_size_disabled(false);
    caps.set_cqe_128_always(true);
    caps.set_cqe_compression(true)
        .set_enhanced_cqe_compression(true)
        .set_mini_cqe_resp_stride_index(true)
        .set_cqe_compression_max_num(compress::MOST)
        .set_cqe_compression_timeout(compress::TIMEOUT);
    caps.set_hca_cap_2(true)
        .set_general_obj_types(1 << super::RESERVED_QPN);
    caps.set_fixed_buffer_size(true).set_wq_signature(true);
    caps.set_sho(true)
        .set_sigerr_cqe(true)
        .set_drain_sigerr(true);
}

/// What an Ethernet port adds.
fn for_ethernet<B: AsMut<[u8]>>(caps: &mut CmdHcaCap<B>) {
    caps.set_eth_net_offloads(true)
        .set_nic_flow_table(true)
        .set_qos(true)
        .set_roce(true);
    caps.set_basic_cyclic_rcv_wqe(true).set_end_pad(true);
    // mlx5e divides its requests only if it may map them by UMR from a send queue (`reg_umr_sq`); programs ask for it.
    caps.set_striding_rq(true);
    caps.set_log_max_current_uc_list(7)
        .set_log_max_current_mc_list(11)
        .set_log_max_vlan_list(12);
    caps.set_log_max_tis_per_sq(1)
        .set_flow_counter_bulk_alloc(0)
        .set_max_flow_counter_15_0(0x8000);
}
