//! What the device and a context on it say of themselves.

use uverbs_abi::types::{CoreSupport, DeviceCapFlags, QpType, RawPacketCaps};
use uverbs_abi::udata::mlx5::{
    AllocUcontextReqV2, AllocUcontextResp, AllocUcontextRespMask, CLOCK_INFO_V1, CmdsSuppUhw,
    CqeCompCaps, CqeCompFormat, DciStreamsCaps, InlineMode, QueryDeviceFlags, QueryDeviceResp,
    RssCaps as HashCaps, RxHashFields, RxHashFunction, TsoCaps,
};
use uverbs_abi::write::device::{
    CqModerationCaps, ExQueryDeviceResp, QueryDeviceResp as DeviceAttributes, RssCaps,
};
use wqe_format::mlx5::firmware::Opcode;
use wqe_format::mlx5::firmware::hca::{
    QueryAdapterIn, QueryAdapterOut, QuerySpecialContextsIn, QuerySpecialContextsOut,
};
use wqe_format::mlx5::firmware::nic_vport::{QueryNicVportContextIn, QueryNicVportContextOut};

use super::Objects;
use crate::control::kernel::{ContextInfo, DeviceAttr, Mlx5Context};
use crate::sys::errno::Errno;

/// Bytes of a scatter entry, and of the segments before those of a send (`mlx5_wqe_ctrl_seg`, `_raddr_seg`).
const SEGMENT: u32 = 16;
/// Bytes of send requests that scatter entries are counted in (`mlx5_ib_query_device`).
const SEND_WQE: u32 = 512;
/// Entries of a read (`MLX5_MAX_SGE_RD`).
const MAX_SGE_RD: u32 = 30;
/// The clock's bits (`mlx5_ib_query_device`).
const TIMESTAMP_MASK: u64 = i64::MAX as u64;
/// Atomics of IBTA (`IB_ATOMIC_HCA`).
const ATOMIC_HCA: u32 = 1;
/// The longest moderation.
const MAX_MODERATION_COUNT: u16 = u16::MAX;
const MAX_MODERATION_PERIOD: u16 = (1 << 12) - 1;
/// Fields that the hash of received packets can cover: addresses of IPv4 and IPv6, ports of TCP and UDP.
const HASHED: RxHashFields = RxHashFields(0xff);
/// Logarithm of the bytes of a doorbell page.
const LOG_UAR: u32 = 12;

impl Objects {
    /// The context: what programs have to know to lay queues out. Registers are made on demand.
    pub fn get_context(&self, request: &AllocUcontextReqV2) -> Result<Mlx5Context, Errno> {
        let caps = &self.caps.general;
        let mut answer = AllocUcontextResp {
            qp_tab_size: 1 << caps.log_max_qp(),
            bf_reg_size: match self.platform.write_combining() && caps.bf() {
                true => 1 << caps.log_bf_reg_size(),
                false => 0,
            },
            cache_line_size: 64,
            max_sq_desc_sz: caps.max_wqe_sz_sq(),
            max_rq_desc_sz: caps.max_wqe_sz_rq(),
            max_send_wqebb: 1 << caps.log_max_qp_sz().min(24),
            max_recv_wr: 1 << caps.log_max_qp_sz().min(24),
            max_srq_recv_wr: 1 << caps.log_max_srq_sz().min(24),
            num_ports: caps.num_ports().into(),
            response_length: size_of::<AllocUcontextResp>() as u32,
            cqe_version: caps.cqe_version().min(request.max_cqe_version),
            cmds_supp_uhw: CmdsSuppUhw(CmdsSuppUhw::QUERY_DEVICE.0 | CmdsSuppUhw::CREATE_AH.0),
            eth_min_inline: self.min_inline()?,
            clock_info_versions: match self.platform.clock() {
                Some(_) => 1 << CLOCK_INFO_V1,
                None => 0,
            },
            log_uar_size: LOG_UAR,
            num_uars_per_page: 1,
            ..AllocUcontextResp::default()
        };
        if caps.ece_support() {
            answer.comp_mask |= AllocUcontextRespMask::ECE;
        }
        if caps.dump_fill_mkey() {
            let mut input = QuerySpecialContextsIn::zeroed();
            input.set_opcode(Opcode::QUERY_SPECIAL_CONTEXTS.0);
            let mut output = QuerySpecialContextsOut::zeroed();
            self.platform
                .execute(input.as_bytes(), output.as_bytes_mut())?;
            answer.dump_fill_mkey = output.dump_fill_mkey();
            answer.comp_mask |= AllocUcontextRespMask::DUMP_FILL_MKEY;
        }
        Ok(Mlx5Context {
            info: ContextInfo {
                num_comp_vectors: self.platform.completion_vectors(),
                core_support: CoreSupport::OPTIONAL_MR_ACCESS,
                async_event: None,
                udata: answer,
            },
            devx: false,
        })
    }

    /// How much of a frame's header the device wants in requests (`mlx5_query_min_inline`).
    fn min_inline(&self) -> Result<InlineMode, Errno> {
        if !self.caps.is_ethernet() {
            return Ok(InlineMode::NA);
        }
        Ok(match self.caps.ethernet.wqe_inline_mode() {
            0 => InlineMode::L2,
            1 => match self.nic_vport()?.nic_vport_context().min_wqe_inline_mode() {
                0 => InlineMode::NONE,
                1 => InlineMode::L2,
                2 => InlineMode::IP,
                _ => InlineMode::TCP_UDP,
            },
            _ => InlineMode::NONE,
        })
    }

    pub(super) fn nic_vport(
        &self,
    ) -> Result<QueryNicVportContextOut<[u8; QueryNicVportContextOut::SIZE]>, Errno> {
        let mut input = QueryNicVportContextIn::zeroed();
        input.set_opcode(Opcode::QUERY_NIC_VPORT_CONTEXT.0);
        let mut output = QueryNicVportContextOut::zeroed();
        self.platform
            .execute(input.as_bytes(), output.as_bytes_mut())?;
        Ok(output)
    }

    /// Node and system image.
    fn guids(&self) -> Result<(u64, u64), Errno> {
        if self.caps.is_ethernet() {
            let output = self.nic_vport()?;
            let port = output.nic_vport_context();
            return Ok((port.node_guid(), port.system_image_guid()));
        }
        let output = self.hca_vport()?;
        let port = output.hca_vport_context();
        Ok((port.node_guid(), port.system_image_guid()))
    }

    fn vendor(&self) -> Result<u32, Errno> {
        let mut input = QueryAdapterIn::zeroed();
        input.set_opcode(Opcode::QUERY_ADAPTER.0);
        let mut output = QueryAdapterOut::zeroed();
        self.platform
            .execute(input.as_bytes(), output.as_bytes_mut())?;
        Ok(output.query_adapter_struct().ieee_vendor_id())
    }

    fn device_flags(&self) -> DeviceCapFlags {
        use DeviceCapFlags as Flag;
        let caps = &self.caps.general;
        let windows = Flag(Flag::MEM_WINDOW.0 | Flag::MEM_WINDOW_TYPE_2B.0);
        [
            (true, Flag::CHANGE_PHY_PORT),
            (true, Flag::PORT_ACTIVE_EVENT),
            (true, Flag::SYS_IMAGE_GUID),
            (true, Flag::RC_RNR_NAK_GEN),
            (caps.pkv(), Flag::BAD_PKEY_CNTR),
            (caps.qkv(), Flag::BAD_QKEY_CNTR),
            (caps.apm(), Flag::AUTO_PATH_MIG),
            (caps.xrc(), Flag::XRC),
            (caps.imaicl(), windows),
            (self.caps.ethernet.csum_cap(), Flag::RAW_IP_CSUM),
        ]
        .into_iter()
        .filter(|(has, _)| *has)
        .fold(Flag::NONE, |flags, (_, flag)| flags | flag)
    }

    /// Attributes of the device, with the driver's part.
    pub fn query_device_ex(&self) -> Result<DeviceAttr<QueryDeviceResp>, Errno> {
        let caps = &self.caps.general;
        let (node_guid, sys_image_guid) = self.guids()?;
        let power = |log: u8| 1u32 << log.min(31);
        let (max_qp, max_mkey) = (power(caps.log_max_qp()), power(caps.log_max_mkey()));
        let receive_sge = u32::from(caps.max_wqe_sz_rq()) / SEGMENT;
        let send_sge = (u32::from(caps.max_wqe_sz_sq()).min(SEND_WQE) - 2 * SEGMENT) / SEGMENT;
        let responder = power(caps.log_max_ra_req_qp());
        let identity = self.platform.identity();
        let flags = self.device_flags();
        let atomics = self.caps.atomic.atomic_operations() & 0b11 == 0b11
            && self.caps.atomic.atomic_size_qp() & 8 != 0
            && self.caps.atomic.atomic_req_8b_endianness_mode() == 1;
        let groups = match caps.log_max_mcg() {
            0 => 0,
            log => power(log),
        };
        let base = DeviceAttributes {
            fw_ver: identity.firmware,
            node_guid: node_guid.to_be_bytes(),
            sys_image_guid: sys_image_guid.to_be_bytes(),
            max_mr_size: u64::MAX,
            page_size_cap: !((1u64 << caps.log_pg_sz().min(63)) - 1),
            vendor_id: self.vendor()?,
            vendor_part_id: identity.device.into(),
            hw_ver: identity.revision.into(),
            max_qp,
            max_qp_wr: power(caps.log_max_qp_sz()),
            device_cap_flags: flags.0 as u32,
            max_sge: receive_sge.min(send_sge),
            max_sge_rd: MAX_SGE_RD,
            max_cq: power(caps.log_max_cq()),
            max_cqe: power(caps.log_max_cq_sz()) - 1,
            max_mr: max_mkey,
            max_pd: power(caps.log_max_pd()),
            max_qp_rd_atom: responder,
            max_res_rd_atom: responder.saturating_mul(max_qp),
            max_qp_init_rd_atom: power(caps.log_max_ra_res_qp()),
            atomic_cap: if caps.atomic() && atomics {
                ATOMIC_HCA
            } else {
                0
            },
            max_mw: if caps.imaicl() { max_mkey } else { 0 },
            max_mcast_grp: groups,
            max_mcast_qp_attach: caps.max_qp_mcg(),
            max_total_mcast_qp_attach: groups.saturating_mul(caps.max_qp_mcg()),
            max_ah: i32::MAX as u32,
            max_srq: power(caps.log_max_srq()),
            max_srq_wr: power(caps.log_max_srq_sz()) - 1,
            max_srq_sge: receive_sge - 1,
            max_pkeys: self.pkey_count(),
            local_ca_ack_delay: caps.local_ca_ack_delay(),
            phys_port_cnt: caps.num_ports(),
            ..DeviceAttributes::default()
        };
        let attr = ExQueryDeviceResp {
            base,
            response_length: size_of::<ExQueryDeviceResp>() as u32,
            timestamp_mask: TIMESTAMP_MASK,
            hca_core_clock: caps.device_frequency_khz().into(),
            device_cap_flags_ex: flags.0,
            cq_moderation_caps: match caps.cq_moderation() {
                true => CqModerationCaps {
                    max_cq_moderation_count: MAX_MODERATION_COUNT,
                    max_cq_moderation_period: MAX_MODERATION_PERIOD,
                    ..CqModerationCaps::default()
                },
                false => CqModerationCaps::default(),
            },
            rss_caps: self.rss(),
            max_wq_type_rq: match caps.eth_net_offloads() {
                true => power(caps.log_max_rq()),
                false => 0,
            },
            raw_packet_caps: self.raw_packet_caps().0,
            ..ExQueryDeviceResp::default()
        };
        Ok(DeviceAttr {
            attr,
            udata: self.driver_attributes(),
        })
    }

    /// Tables that packets are spread over.
    fn rss(&self) -> RssCaps {
        let caps = &self.caps.general;
        if !caps.eth_net_offloads() {
            return RssCaps::default();
        }
        RssCaps {
            supported_qpts: 1 << QpType::RAW_PACKET.0,
            max_rwq_indirection_tables: 1 << caps.log_max_rqt().min(31),
            max_rwq_indirection_table_size: 1 << caps.log_max_rqt_size().min(31),
            ..RssCaps::default()
        }
    }

    /// What the device does to raw packets.
    fn raw_packet_caps(&self) -> RawPacketCaps {
        use RawPacketCaps as Cap;
        let caps = &self.caps.ethernet;
        [
            (caps.vlan_cap(), Cap::CVLAN_STRIPPING),
            (caps.scatter_fcs(), Cap::SCATTER_FCS),
            (caps.csum_cap(), Cap::IP_CSUM),
        ]
        .into_iter()
        .filter(|(has, _)| *has)
        .fold(Cap::NONE, |caps, (_, cap)| caps | cap)
    }

    fn driver_attributes(&self) -> QueryDeviceResp {
        let caps = &self.caps.general;
        let mut answer = QueryDeviceResp {
            response_length: size_of::<QueryDeviceResp>() as u32,
            ..QueryDeviceResp::default()
        };
        if caps.eth_net_offloads() {
            let raw = 1 << QpType::RAW_PACKET.0;
            answer.packet_pacing_caps = self.pacing_caps(raw);
            if self.caps.ethernet.max_lso_cap() != 0 {
                answer.tso_caps = TsoCaps {
                    max_tso: 1 << self.caps.ethernet.max_lso_cap().min(31),
                    supported_qpts: raw,
                };
            }
            answer.rss_caps = HashCaps {
                rx_hash_fields_mask: HASHED,
                rx_hash_function: RxHashFunction::TOEPLITZ,
                ..HashCaps::default()
            };
        }
        if caps.cqe_compression() {
            let strides = match caps.mini_cqe_resp_stride_index() {
                true => CqeCompFormat::CSUM_STRIDX,
                false => CqeCompFormat::NONE,
            };
            answer.cqe_comp_caps = CqeCompCaps {
                max_num: caps.cqe_compression_max_num().into(),
                supported_format: CqeCompFormat::HASH | CqeCompFormat::CSUM | strides,
            };
        }
        if caps.cqe_compression_128() {
            answer.flags |= QueryDeviceFlags::CQE_128B_COMP;
        }
        if caps.cqe_128_always() {
            answer.flags |= QueryDeviceFlags::CQE_128B_PAD;
        }
        if caps.qp_packet_based() {
            answer.flags |= QueryDeviceFlags::PACKET_BASED_CREDIT_MODE;
        }
        if caps.log_max_dci_stream_channels() != 0 {
            answer.dci_streams_caps = DciStreamsCaps {
                max_log_num_concurent: caps.log_max_dci_stream_channels(),
                max_log_num_errored: caps.log_max_dci_errored_streams(),
            };
        }
        answer
    }
}
