//! A device's attributes.

use oxverbs::{Device, DeviceAttributes};

/// Capability flags by bit, with the names that `ibv_devinfo` gives them.
const CAPABILITIES: &[(u32, &str)] = &[
    (0, "RESIZE_MAX_WR"),
    (1, "BAD_PKEY_CNTR"),
    (2, "BAD_QKEY_CNTR"),
    (3, "RAW_MULTI"),
    (4, "AUTO_PATH_MIG"),
    (5, "CHANGE_PHY_PORT"),
    (6, "UD_AV_PORT_ENFORCE"),
    (7, "CURR_QP_STATE_MOD"),
    (8, "SHUTDOWN_PORT"),
    (9, "INIT_TYPE"),
    (10, "PORT_ACTIVE_EVENT"),
    (11, "SYS_IMAGE_GUID"),
    (12, "RC_RNR_NAK_GEN"),
    (13, "SRQ_RESIZE"),
    (14, "N_NOTIFY_CQ"),
    (17, "MEM_WINDOW"),
    (18, "UD_IP_CSUM"),
    (20, "XRC"),
    (21, "MEM_MGT_EXTENSIONS"),
    (23, "MEM_WINDOW_TYPE_2A"),
    (24, "MEM_WINDOW_TYPE_2B"),
    (25, "RC_IP_CSUM"),
    (26, "RAW_IP_CSUM"),
    (29, "MANAGED_FLOW_STEERING"),
];

const EXTENDED_CAPABILITIES: &[(u32, &str)] =
    &[(34, "RAW_SCATTER_FCS"), (36, "PCI_WRITE_END_PADDING")];

const ODP: &[(u32, &str)] = &[(0, "ODP_SUPPORT"), (1, "ODP_SUPPORT_IMPLICIT")];

const ODP_TRANSPORT: &[(u32, &str)] = &[
    (0, "SUPPORT_SEND"),
    (1, "SUPPORT_RECV"),
    (2, "SUPPORT_WRITE"),
    (3, "SUPPORT_READ"),
    (4, "SUPPORT_ATOMIC"),
    (5, "SUPPORT_SRQ"),
];

const QP_TYPES: &[(u32, &str)] = &[(8, "SUPPORT_RAW_PACKET"), (4, "SUPPORT_UD")];

const RAW_PACKET: &[(u32, &str)] = &[
    (0, "C-VLAN stripping offload"),
    (1, "Scatter FCS offload"),
    (2, "IP csum offload"),
    (3, "Delay drop"),
];

/// Prints the names of the bits that are set, and the rest as a number.
fn flags(value: u64, names: &[(u32, &str)]) {
    let mut rest = value;
    for &(bit, name) in names {
        if value >> bit & 1 != 0 {
            println!("\t\t\t\t\t{name}");
            rest &= !(1 << bit);
        }
    }
    if rest != 0 {
        println!("\t\t\t\t\tUnknown flags: 0x{rest:X}");
    }
}

fn transport_odp(name: &str, value: u32) {
    println!("\t{name}:");
    if value == 0 {
        println!("\t\t\t\t\tNO SUPPORT");
    }
    flags(value.into(), ODP_TRANSPORT);
}

pub(crate) fn print(device: &Device, attributes: &DeviceAttributes, verbose: bool) {
    let a = attributes;
    let (major, minor, sub) = a.firmware_version();
    println!("hca_id:\t{}", device.name());
    let rows = [
        (
            "transport",
            format!("{} ({})", device.transport(), device.transport() as i32),
        ),
        ("fw_ver", format!("{major}.{minor}.{sub}")),
        ("node_guid", a.node_guid().to_string()),
        ("sys_image_guid", a.sys_image_guid().to_string()),
        ("vendor_id", format!("0x{:04x}", a.vendor_id)),
        ("vendor_part_id", a.vendor_part_id.to_string()),
        ("hw_ver", format!("0x{:X}", a.hw_ver)),
    ];
    for (name, value) in rows {
        row(name, &value);
    }
    if let Some(board_id) = device.board_id() {
        row("board_id", &board_id);
    }
    row("phys_port_cnt", &a.phys_port_cnt.to_string());
    if verbose {
        limits(a);
        extended(a);
    }
}

/// Values start at column 40, reached with tabs as the C program does.
fn row(name: &str, value: &str) {
    let tabs = (39 - (8 + name.len() + 1)) / 8 + 1;
    println!("\t{name}:{}{value}", "\t".repeat(tabs));
}

fn limits(a: &DeviceAttributes) {
    row("max_mr_size", &format!("0x{:x}", a.max_mr_size));
    row("page_size_cap", &format!("0x{:x}", a.page_size_cap));
    row("max_qp", &a.max_qp.to_string());
    row("max_qp_wr", &a.max_qp_wr.to_string());
    row("device_cap_flags", &format!("0x{:08x}", a.device_cap_flags));
    flags(a.device_cap_flags.into(), CAPABILITIES);
    let atomic = match a.atomic_cap {
        0 => "ATOMIC_NONE",
        1 => "ATOMIC_HCA",
        2 => "ATOMIC_GLOB",
        _ => "invalid atomic capability",
    };
    let before = [
        ("max_sge", a.max_sge),
        ("max_sge_rd", a.max_sge_rd),
        ("max_cq", a.max_cq),
        ("max_cqe", a.max_cqe),
        ("max_mr", a.max_mr),
        ("max_pd", a.max_pd),
        ("max_qp_rd_atom", a.max_qp_rd_atom),
        ("max_ee_rd_atom", a.max_ee_rd_atom),
        ("max_res_rd_atom", a.max_res_rd_atom),
        ("max_qp_init_rd_atom", a.max_qp_init_rd_atom),
        ("max_ee_init_rd_atom", a.max_ee_init_rd_atom),
    ];
    for (name, value) in before {
        row(name, &value.to_string());
    }
    row("atomic_cap", &format!("{atomic} ({})", a.atomic_cap));
    let after = [
        ("max_ee", a.max_ee),
        ("max_rdd", a.max_rdd),
        ("max_mw", a.max_mw),
        ("max_raw_ipv6_qp", a.max_raw_ipv6_qp),
        ("max_raw_ethy_qp", a.max_raw_ethy_qp),
        ("max_mcast_grp", a.max_mcast_grp),
        ("max_mcast_qp_attach", a.max_mcast_qp_attach),
        ("max_total_mcast_qp_attach", a.max_total_mcast_qp_attach),
        ("max_ah", a.max_ah),
        ("max_fmr", a.max_fmr),
    ];
    for (name, value) in after {
        row(name, &value.to_string());
    }
    if a.max_fmr != 0 {
        row("max_map_per_fmr", &a.max_map_per_fmr.to_string());
    }
    row("max_srq", &a.max_srq.to_string());
    if a.max_srq != 0 {
        row("max_srq_wr", &a.max_srq_wr.to_string());
        row("max_srq_sge", &a.max_srq_sge.to_string());
    }
    row("max_pkeys", &a.max_pkeys.to_string());
    row("local_ca_ack_delay", &a.local_ca_ack_delay.to_string());
}

fn extended(attributes: &DeviceAttributes) {
    let x = &attributes.extended;
    println!("\tgeneral_odp_caps:");
    flags(x.odp_caps.general_caps, ODP);
    let transports = x.odp_caps.per_transport_caps;
    transport_odp("rc_odp_caps", transports.rc_odp_caps);
    transport_odp("uc_odp_caps", transports.uc_odp_caps);
    transport_odp("ud_odp_caps", transports.ud_odp_caps);
    transport_odp("xrc_odp_caps", x.xrc_odp_caps);
    match x.timestamp_mask {
        0 => println!("\tcompletion_timestamp_mask not supported"),
        mask => println!("\tcompletion timestamp_mask:\t\t\t0x{mask:016x}"),
    }
    match x.hca_core_clock {
        0 => println!("\tcore clock not supported"),
        clock => println!("\thca_core_clock:\t\t\t{clock}kHZ"),
    }
    if x.raw_packet_caps != 0 {
        println!("\traw packet caps:");
        flags(x.raw_packet_caps.into(), RAW_PACKET);
    }
    row(
        "device_cap_flags_ex",
        &format!("0x{:X}", x.device_cap_flags_ex),
    );
    flags(x.device_cap_flags_ex & !0xffff_ffff, EXTENDED_CAPABILITIES);
    // Segmentation and pacing are what a driver tells its own provider; rxe has neither.
    println!("\ttso_caps:\n\t\tmax_tso:\t\t\t0");
    let rss = &x.rss_caps;
    println!("\trss_caps:");
    println!(
        "\t\tmax_rwq_indirection_tables:\t\t\t{}",
        rss.max_rwq_indirection_tables
    );
    println!(
        "\t\tmax_rwq_indirection_table_size:\t\t\t{}",
        rss.max_rwq_indirection_table_size
    );
    println!("\t\trx_hash_function:\t\t\t\t0x0");
    println!("\t\trx_hash_fields_mask:\t\t\t\t0x0");
    if rss.supported_qpts != 0 {
        println!("\t\tsupported_qp:");
        flags(rss.supported_qpts.into(), QP_TYPES);
    }
    row("max_wq_type_rq", &x.max_wq_type_rq.to_string());
    println!("\tpacket_pacing_caps:");
    println!("\t\tqp_rate_limit_min:\t0kbps\n\t\tqp_rate_limit_max:\t0kbps");
    let tags = &x.tm_caps;
    if tags.max_num_tags == 0 {
        println!("\ttag matching not supported");
    } else {
        row("max_rndv_hdr_size", &tags.max_rndv_hdr_size.to_string());
        row("max_num_tags", &tags.max_num_tags.to_string());
        row("max_ops", &tags.max_ops.to_string());
        row("max_sge", &tags.max_sge.to_string());
        println!("\tflags:");
        flags(tags.flags.into(), &[(0, "IBV_TM_CAP_RC")]);
    }
    let moderation = &x.cq_moderation_caps;
    let (count, period) = (
        moderation.max_cq_moderation_count,
        moderation.max_cq_moderation_period,
    );
    if count != 0 && period != 0 {
        println!("\n\tcq moderation caps:\n\t\tmax_cq_count:\t{count}");
        println!("\t\tmax_cq_period:\t{period} us\n");
    }
    if x.max_dm_size != 0 {
        println!(
            "\tmaximum available device memory:\t{}Bytes\n",
            x.max_dm_size
        );
    }
    row("num_comp_vectors", &attributes.num_comp_vectors.to_string());
}
