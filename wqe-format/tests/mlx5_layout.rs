//! mlx5 layouts and numbers against C: the installed `infiniband/mlx5dv.h`, and what that lacks against the source of
//! rdma-core named by `OXVERBS_RDMA_CORE_SRC=dir[:dir]` (`providers/mlx5/wqe.h`).

use std::mem::{offset_of, size_of};
use std::os::unix::fs::symlink;

use test_support::c::{Facts, include_dirs};
use test_support::skip::skip;
use wqe_format::mlx5::*;

/// Size of a struct, and offset and size of its fields: `c_type, Rust { c_field = rust_field, … }`.
macro_rules! layout {
    ($facts:ident: $($c:literal, $rust:ty { $($c_field:literal = $field:ident),* $(,)? })*) => {$(
        $facts.add(concat!("sizeof(", $c, ")"), size_of::<$rust>() as u64);
        $(
            $facts.add(
                concat!("offsetof(", $c, ", ", $c_field, ")"),
                offset_of!($rust, $field) as u64,
            );
            $facts.add(
                concat!("sizeof(((", $c, " *)0)->", $c_field, ")"),
                size_of_field(|x: &$rust| &x.$field) as u64,
            );
        )*
    )*};
}

fn size_of_field<T, F>(_: impl FnOnce(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Values: `"C expression" = number`.
macro_rules! values {
    ($facts:ident: $($c:literal = $rust:expr;)*) => {$(
        $facts.add($c, u64::from($rust));
    )*};
}

fn public() -> Facts {
    let mut facts = Facts::default();
    layout! { facts:
        "struct mlx5_wqe_ctrl_seg", CtrlSegment {
            "opmod_idx_opcode" = opmod_idx_opcode, "qpn_ds" = qpn_ds, "signature" = signature,
            "dci_stream_channel_id" = dci_stream_channel_id, "fm_ce_se" = fm_ce_se, "imm" = imm,
        }
        "struct mlx5_wqe_raddr_seg", RaddrSegment {
            "raddr" = raddr, "rkey" = rkey, "reserved" = reserved,
        }
        "struct mlx5_wqe_atomic_seg", AtomicSegment { "swap_add" = swap_add, "compare" = compare }
        "struct mlx5_wqe_datagram_seg", DatagramSegment { "av.key" = key }
        "struct mlx5_wqe_av", DatagramSegment {
            "key.dc_key" = key, "dqp_dct" = dqp_dct, "stat_rate_sl" = stat_rate_sl, "fl_mlid" = fl_mlid, "rlid" = rlid,
            "reserved0" = reserved, "rmac" = rmac, "tclass" = tclass, "hop_limit" = hop_limit,
            "grh_gid_fl" = grh_gid_fl, "rgid" = rgid,
        }
        "struct mlx5_wqe_eth_seg", EthSegment {
            "rsvd0" = reserved_0, "cs_flags" = cs_flags, "rsvd1" = reserved_5, "mss" = mss, "rsvd2" = reserved_8,
            "inline_hdr_sz" = inline_hdr_sz, "inline_hdr_start" = inline_hdr_start, "inline_hdr" = inline_hdr,
        }
        "struct mlx5_wqe_data_seg", DataSegment { "byte_count" = byte_count, "lkey" = lkey, "addr" = addr }
        "struct mlx5_wqe_umr_ctrl_seg", UmrCtrlSegment {
            "flags" = flags, "rsvd0" = reserved_1, "klm_octowords" = klm_octowords, "bsf_octowords" = bsf_octowords,
            "translation_offset" = bsf_octowords, "mkey_mask" = mkey_mask, "rsvd1" = reserved_16,
        }
        "struct mlx5_wqe_mkey_context_seg", MkeyContextSegment {
            "free" = free, "reserved1" = reserved_1, "access_flags" = access_flags, "sf" = sf, "qpn_mkey" = qpn_mkey,
            "reserved2" = reserved_8, "flags_pd" = flags_pd, "start_addr" = start_addr, "len" = len,
            "bsf_octword_size" = bsf_octword_size, "reserved3" = reserved_36,
            "translations_octword_size" = translations_octword_size, "reserved4" = reserved_56,
            "log_page_size" = log_page_size, "reserved" = reserved_60,
        }
        "struct mlx5_wqe_umr_klm_seg", KlmSegment {
            "byte_count" = byte_count, "mkey" = mkey, "address" = address,
        }
        "struct mlx5_wqe_umr_repeat_block_seg", RepeatBlockSegment {
            "byte_count" = byte_count, "op" = op, "repeat_count" = repeat_count, "reserved" = reserved,
            "num_ent" = num_ent,
        }
        "struct mlx5_wqe_umr_repeat_ent_seg", RepeatEntrySegment {
            "stride" = stride, "byte_count" = byte_count, "memkey" = memkey, "va" = va,
        }
        "struct mlx5_wqe_srq_next_seg", SrqNextSegment {
            "rsvd0" = reserved_0, "next_wqe_index" = next_wqe_index, "signature" = signature, "rsvd1" = reserved_5,
        }
        "struct mlx5_mprq_wqe", MprqWqe { "nseg" = nseg, "dseg" = dseg }
        "struct mlx5_wqe_tm_seg", TagSegment {
            "opcode" = opcode, "flags" = flags, "index" = index, "rsvd0" = reserved_4, "sw_cnt" = sw_cnt,
            "rsvd1" = reserved_8, "append_tag" = append_tag, "append_mask" = append_mask,
        }
        "struct mlx5_err_cqe", ErrorCqe {
            "rsvd0" = reserved_0, "srqn" = srqn_uidx, "vendor_err_synd" = vendor_err_synd, "syndrome" = syndrome,
            "s_wqe_opcode_qpn" = s_wqe_opcode_qpn, "wqe_counter" = wqe_counter, "signature" = signature,
            "op_own" = op_own,
        }
        "struct mlx5_cqe64", Cqe64 {
            "wqe_id" = wqe_id, "ml_path" = ml_path, "slid" = slid, "flags_rqpn" = flags_rqpn,
            "hds_ip_ext" = hds_ip_ext, "l4_hdr_type_etc" = l4_hdr_type_etc, "vlan_info" = vlan_info,
            "srqn_uidx" = srqn_uidx, "imm_inval_pkey" = imm_inval_pkey, "app" = app, "app_op" = app_op,
            "app_info" = app_info, "byte_cnt" = byte_cnt, "timestamp" = timestamp, "sop_drop_qpn" = sop_drop_qpn,
            "wqe_counter" = wqe_counter, "signature" = signature, "op_own" = op_own,
        }
    }
    facts.add(
        "sizeof(struct mlx5_wqe_inl_data_seg)",
        size_of::<InlineHeader>() as u64,
    );
    facts.add(
        "offsetof(struct mlx5_tm_cqe, hw_phase_cnt)",
        4u64, // where Cqe64::tag_state reads it
    );
    values! { facts:
        "MLX5_OPCODE_NOP" = Opcode::NOP.0;
        "MLX5_OPCODE_SEND_INVAL" = Opcode::SEND_INVAL.0;
        "MLX5_OPCODE_RDMA_WRITE" = Opcode::RDMA_WRITE.0;
        "MLX5_OPCODE_RDMA_WRITE_IMM" = Opcode::RDMA_WRITE_IMM.0;
        "MLX5_OPCODE_SEND" = Opcode::SEND.0;
        "MLX5_OPCODE_SEND_IMM" = Opcode::SEND_IMM.0;
        "MLX5_OPCODE_TSO" = Opcode::TSO.0;
        "MLX5_OPCODE_RDMA_READ" = Opcode::RDMA_READ.0;
        "MLX5_OPCODE_ATOMIC_CS" = Opcode::ATOMIC_CS.0;
        "MLX5_OPCODE_ATOMIC_FA" = Opcode::ATOMIC_FA.0;
        "MLX5_OPCODE_ATOMIC_MASKED_CS" = Opcode::ATOMIC_MASKED_CS.0;
        "MLX5_OPCODE_ATOMIC_MASKED_FA" = Opcode::ATOMIC_MASKED_FA.0;
        "MLX5_OPCODE_FMR" = Opcode::FMR.0;
        "MLX5_OPCODE_LOCAL_INVAL" = Opcode::LOCAL_INVAL.0;
        "MLX5_OPCODE_CONFIG_CMD" = Opcode::CONFIG_CMD.0;
        "MLX5_OPCODE_SET_PSV" = Opcode::SET_PSV.0;
        "MLX5_OPCODE_UMR" = Opcode::UMR.0;
        "MLX5_OPCODE_TAG_MATCHING" = Opcode::TAG_MATCHING.0;
        "MLX5_OPCODE_FLOW_TBL_ACCESS" = Opcode::FLOW_TBL_ACCESS.0;
        "MLX5_OPCODE_MMO" = Opcode::MMO.0;
        "MLX5_INLINE_SCATTER_32" = CqeFormat::INLINE_32.0 << 2;
        "MLX5_INLINE_SCATTER_64" = CqeFormat::INLINE_64.0 << 2;
        "MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR" = Syndrome::LOCAL_LENGTH_ERR.0;
        "MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR" = Syndrome::LOCAL_QP_OP_ERR.0;
        "MLX5_CQE_SYNDROME_LOCAL_PROT_ERR" = Syndrome::LOCAL_PROT_ERR.0;
        "MLX5_CQE_SYNDROME_WR_FLUSH_ERR" = Syndrome::WR_FLUSH_ERR.0;
        "MLX5_CQE_SYNDROME_MW_BIND_ERR" = Syndrome::MW_BIND_ERR.0;
        "MLX5_CQE_SYNDROME_BAD_RESP_ERR" = Syndrome::BAD_RESP_ERR.0;
        "MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR" = Syndrome::LOCAL_ACCESS_ERR.0;
        "MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR" = Syndrome::REMOTE_INVAL_REQ_ERR.0;
        "MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR" = Syndrome::REMOTE_ACCESS_ERR.0;
        "MLX5_CQE_SYNDROME_REMOTE_OP_ERR" = Syndrome::REMOTE_OP_ERR.0;
        "MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR" = Syndrome::TRANSPORT_RETRY_EXC_ERR.0;
        "MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR" = Syndrome::RNR_RETRY_EXC_ERR.0;
        "MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR" = Syndrome::REMOTE_ABORTED_ERR.0;
        "MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT" = ErrorCqe::VENDOR_ODP_PAGE_FAULT;
        "MLX5_CQE_L2_OK" = HdsIpExt::new().with_l2_ok(true).into_bits();
        "MLX5_CQE_L3_OK" = HdsIpExt::new().with_l3_ok(true).into_bits();
        "MLX5_CQE_L4_OK" = HdsIpExt::new().with_l4_ok(true).into_bits();
        "MLX5_CQE_L3_HDR_TYPE_IPV6" = L3_IPV6;
        "MLX5_CQE_L3_HDR_TYPE_IPV4" = L3_IPV4;
        "MLX5_CQE_OWNER_MASK" = OpOwn::new().with_owner(true).into_bits();
        "MLX5_CQE_REQ" = CqeOpcode::REQ.0;
        "MLX5_CQE_RESP_WR_IMM" = CqeOpcode::RESP_WR_IMM.0;
        "MLX5_CQE_RESP_SEND" = CqeOpcode::RESP_SEND.0;
        "MLX5_CQE_RESP_SEND_IMM" = CqeOpcode::RESP_SEND_IMM.0;
        "MLX5_CQE_RESP_SEND_INV" = CqeOpcode::RESP_SEND_INV.0;
        "MLX5_CQE_RESIZE_CQ" = CqeOpcode::RESIZE_CQ.0;
        "MLX5_CQE_NO_PACKET" = CqeOpcode::NO_PACKET.0;
        "MLX5_CQE_SIG_ERR" = CqeOpcode::SIG_ERR.0;
        "MLX5_CQE_REQ_ERR" = CqeOpcode::REQ_ERR.0;
        "MLX5_CQE_RESP_ERR" = CqeOpcode::RESP_ERR.0;
        "MLX5_CQE_INVALID" = CqeOpcode::INVALID.0;
        "MLX5DV_CQE_RES_FORMAT_HASH" = 1u8;
        "MLX5DV_CQE_RES_FORMAT_CSUM" = 2u8;
        "MLX5DV_CQE_RES_FORMAT_CSUM_STRIDX" = 4u8;
        "MLX5_INVALID_LKEY" = INVALID_LKEY;
        "(uint32_t)MLX5_EXTENDED_UD_AV" = DqpDct::new().with_extended(true).into_bits().get();
        "MLX5_WQE_CTRL_CQ_UPDATE" = CtrlFlags::CQ_UPDATE.0;
        "MLX5_WQE_CTRL_SOLICITED" = CtrlFlags::SOLICITED.0;
        "MLX5_WQE_CTRL_FENCE" = CtrlFlags::FENCE.0;
        "MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE" = CtrlFlags::SMALL_FENCE.0;
        "MLX5_SEND_WQE_BB" = SEND_WQE_BB as u64;
        "(uint32_t)MLX5_INLINE_SEG" = InlineHeader::MARK;
        "MLX5_ETH_WQE_L3_CSUM" = ChecksumFlags::L3.0;
        "MLX5_ETH_WQE_L4_CSUM" = ChecksumFlags::L4.0;
        "MLX5_CQ_DOORBELL" = doorbell::CQ_DOORBELL_OFFSET as u64;
        "MLX5_CQ_DB_REQ_NOT_SOL" = u32::from_be(doorbell::arm_word(0, true, 0));
        "MLX5_CQ_DB_REQ_NOT" = u32::from_be(doorbell::arm_word(0, false, 0));
        "MLX5_WQE_UMR_CTRL_FLAG_INLINE" = UmrFlags::INLINE.0;
        "MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE" = UmrFlags::CHECK_FREE.0;
        "MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET" = UmrFlags::TRANSLATION_OFFSET.0;
        "MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN" = UmrFlags::CHECK_QPN.0;
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN" = MkeyMask::LEN.0.get();
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR" = MkeyMask::START_ADDR.0.get();
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR" = MkeyMask::SIG_ERR.0.get();
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE" = MkeyMask::BSF_ENABLE.0.get();
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY" = MkeyMask::MKEY.0.get();
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN" = MkeyMask::QPN.0.get();
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE" = MkeyMask::ACCESS_LOCAL_WRITE.0.get();
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ" = MkeyMask::ACCESS_REMOTE_READ.0.get();
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE" = MkeyMask::ACCESS_REMOTE_WRITE.0.get();
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC" = MkeyMask::ACCESS_ATOMIC.0.get();
        "MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE" = MkeyMask::FREE.0.get();
        "MLX5_WQE_MKEY_CONTEXT_FREE" = MkeyContextSegment::FREE;
        "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC" = MkeyAccess::ATOMIC.0;
        "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE" = MkeyAccess::REMOTE_WRITE.0;
        "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ" = MkeyAccess::REMOTE_READ.0;
        "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE" = MkeyAccess::LOCAL_WRITE.0;
        "MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ" = MkeyAccess::LOCAL_READ.0;
        "IBV_WC_LOC_LEN_ERR" = Syndrome::LOCAL_LENGTH_ERR.wc_status();
        "IBV_WC_LOC_QP_OP_ERR" = Syndrome::LOCAL_QP_OP_ERR.wc_status();
        "IBV_WC_LOC_PROT_ERR" = Syndrome::LOCAL_PROT_ERR.wc_status();
        "IBV_WC_WR_FLUSH_ERR" = Syndrome::WR_FLUSH_ERR.wc_status();
        "IBV_WC_MW_BIND_ERR" = Syndrome::MW_BIND_ERR.wc_status();
        "IBV_WC_BAD_RESP_ERR" = Syndrome::BAD_RESP_ERR.wc_status();
        "IBV_WC_LOC_ACCESS_ERR" = Syndrome::LOCAL_ACCESS_ERR.wc_status();
        "IBV_WC_REM_INV_REQ_ERR" = Syndrome::REMOTE_INVAL_REQ_ERR.wc_status();
        "IBV_WC_REM_ACCESS_ERR" = Syndrome::REMOTE_ACCESS_ERR.wc_status();
        "IBV_WC_REM_OP_ERR" = Syndrome::REMOTE_OP_ERR.wc_status();
        "IBV_WC_RETRY_EXC_ERR" = Syndrome::TRANSPORT_RETRY_EXC_ERR.wc_status();
        "IBV_WC_RNR_RETRY_EXC_ERR" = Syndrome::RNR_RETRY_EXC_ERR.wc_status();
        "IBV_WC_REM_ABORT_ERR" = Syndrome::REMOTE_ABORTED_ERR.wc_status();
        "IBV_WC_GENERAL_ERR" = Syndrome(0x77).wc_status();
    }
    facts
}

fn private() -> Facts {
    let mut facts = Facts::default();
    layout! { facts:
        "struct mlx5_wqe_xrc_seg", XrcSegment { "xrc_srqn" = xrc_srqn, "rsvd" = reserved }
        "struct mlx5_wqe_masked_atomic_seg", MaskedAtomic8Segment {
            "swap_add" = swap, "compare" = compare, "swap_add_mask" = swap_mask, "compare_mask" = compare_mask,
        }
        "struct mlx5_wqe_eth_pad", EthPadSegment { "rsvd0" = reserved }
        "struct mlx5_rwqe_sig", RecvSignatureSegment {
            "rsvd0" = reserved_0, "signature" = signature, "rsvd1" = reserved_5,
        }
        "struct mlx5_mmo_metadata_seg", MmoSegment {
            "mmo_control_31_0" = mmo_control_31_0, "local_key" = local_key, "local_address" = local_address,
        }
        "struct mlx5_wqe_set_psv_seg", SetPsvSegment {
            "psv_index" = psv_index, "syndrome" = syndrome, "reserved" = reserved_6,
            "transient_signature" = transient_signature,
        }
        "struct mlx5_bsf_inl", BsfInline {
            "vld_refresh" = vld_refresh, "dif_apptag" = dif_apptag, "dif_reftag" = dif_reftag, "sig_type" = sig_type,
            "rp_inv_seed" = rp_inv_seed, "rsvd" = reserved_10, "dif_inc_ref_guard_check" = dif_inc_ref_guard_check,
            "dif_app_bitmask_check" = dif_app_bitmask_check,
        }
        "struct mlx5_bsf", BsfSegment {
            "basic.bsf_size_sbs" = bsf_size_sbs, "basic.check_byte_mask" = check_byte_mask, "basic.wire" = wire,
            "basic.mem" = mem, "basic.raw_data_size" = raw_data_size, "basic.w_bfs_psv" = w_bfs_psv,
            "basic.m_bfs_psv" = m_bfs_psv, "ext.t_init_gen_pro_size" = t_init_gen_pro_size,
            "ext.rsvd_epi_size" = rsvd_epi_size, "ext.w_tfs_psv" = w_tfs_psv, "ext.m_tfs_psv" = m_tfs_psv,
            "w_inl" = w_inl, "m_inl" = m_inl,
        }
        "struct mlx5_crypto_bsf", CryptoBsfSegment {
            "bsf_size_type" = bsf_size_type, "enc_order" = enc_order, "rsvd0" = reserved_2,
            "enc_standard" = enc_standard, "raw_data_size" = raw_data_size, "bs_pointer" = bs_pointer,
            "rsvd1" = reserved_9, "xts_init_tweak" = xts_init_tweak, "rsvd_dek_ptr" = rsvd_dek_ptr,
            "rsvd2" = reserved_36, "keytag" = keytag, "rsvd3" = reserved_48,
        }
        "struct mlx5_mmo_wqe", MmoWqe { "ctrl" = ctrl, "mmo_meta" = mmo_meta, "src" = src, "dest" = dest }
    }
    values! { facts:
        "MLX5_OPC_MOD_MMO_DMA" = opmod::MMO_DMA;
        "MLX5_ETH_L2_INLINE_HEADER_SIZE" = EthSegment::L2_HEADER;
        "MLX5_WQE_MKEY_CONTEXT_FLAGS_BSF_ENABLE" = MkeyContextSegment::BSF_ENABLE;
        "MLX5_WQE_MKEY_CONTEXT_SIG_ERR_CNT_SHIFT" = MkeyContextSegment::SIG_ERR_COUNT_SHIFT;
    }
    facts
}

/// Every struct and number of the public header.
#[test]
fn installed_header_agrees() {
    if !std::path::Path::new("/usr/include/infiniband/mlx5dv.h").exists() {
        return skip(
            "wqe-format::mlx5dv::layout",
            "libibverbs-dev is not installed",
        );
    }
    public()
        .check("#include <infiniband/mlx5dv.h>", &[])
        .unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// What the public header lacks, and the public part once more, in every source tree.
#[test]
fn rdma_core_source_agrees() {
    let trees = include_dirs("OXVERBS_RDMA_CORE_SRC");
    if trees.is_empty() {
        return skip(
            "wqe-format::mlx5_layout::wqe.h",
            "OXVERBS_RDMA_CORE_SRC names no source tree of rdma-core (cargo xtask test downloads them)",
        );
    }
    for tree in trees {
        let provider = tree.join("providers/mlx5");
        // The tree's headers include each other as <infiniband/…>, where an installation puts them.
        let include = tempfile::tempdir().unwrap();
        symlink(tree.join("libibverbs"), include.path().join("infiniband")).unwrap();
        let mut facts = private();
        facts.extend(public());
        facts
            .check("#include <wqe.h>", &[&provider, include.path()])
            .unwrap_or_else(|wrong| panic!("{}: {wrong}", provider.display()));
    }
}

/// The check can fail: one number off is named.
#[test]
fn a_wrong_number_is_named() {
    if !std::path::Path::new("/usr/include/infiniband/mlx5dv.h").exists() {
        return skip(
            "wqe-format::mlx5dv::planted",
            "libibverbs-dev is not installed",
        );
    }
    let mut facts = Facts::default();
    facts.add("MLX5_OPCODE_SEND", 0xbu8);
    let wrong = facts
        .check("#include <infiniband/mlx5dv.h>", &[])
        .unwrap_err();
    assert_eq!(wrong, "MLX5_OPCODE_SEND: C 0xa, Rust 0xb\n");
}
