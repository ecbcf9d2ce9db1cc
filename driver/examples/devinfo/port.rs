//! A port's attributes.

use oxverbs::{Context, Gid, GidType, LinkLayer, Mtu, Transport};

fn mtu(mtu: Option<Mtu>) -> String {
    mtu.map_or_else(|| "invalid MTU".into(), |mtu| mtu.bytes().to_string())
}

fn width(width: u8) -> &'static str {
    match width {
        1 => "1",
        2 => "4",
        4 => "8",
        8 => "12",
        16 => "2",
        _ => "invalid width",
    }
}

fn speed(speed: u32) -> &'static str {
    match speed {
        1 => "2.5 Gbps",
        2 => "5.0 Gbps",
        4 | 8 => "10.0 Gbps",
        16 => "14.0 Gbps",
        32 => "25.0 Gbps",
        64 => "50.0 Gbps",
        128 => "100.0 Gbps",
        256 => "200.0 Gbps",
        _ => "invalid speed",
    }
}

fn lanes(lanes: u8) -> &'static str {
    match lanes {
        1 => "1",
        2 => "2",
        3 => "4",
        4 => "8",
        5 => "15",
        _ => "invalid value",
    }
}

fn phys_state(state: u8) -> &'static str {
    match state {
        1 => "SLEEP",
        2 => "POLLING",
        3 => "DISABLED",
        // The C program's spelling, which scripts may look for.
        4 => "PORT_CONFIGURATION TRAINNING",
        5 => "LINK_UP",
        6 => "LINK_ERROR_RECOVERY",
        7 => "PHY TEST",
        _ => "invalid physical state",
    }
}

/// Values start at column 48, reached with tabs as the C program does.
fn row(name: &str, value: &str) {
    let tabs = (47 - (24 + name.len() + 1)) / 8 + 1;
    println!("\t\t\t{name}:{}{value}", "\t".repeat(tabs));
}

pub(crate) fn print(context: &Context, number: u8, verbose: bool) -> oxverbs::Result<()> {
    let a = context.query_port(number)?;
    println!("\t\tport:\t{number}");
    row("state", &format!("{} ({})", a.state(), a.state));
    row("max_mtu", &format!("{} ({})", mtu(a.max_mtu()), a.max_mtu));
    row(
        "active_mtu",
        &format!("{} ({})", mtu(a.active_mtu()), a.active_mtu),
    );
    row("sm_lid", &a.sm_lid.to_string());
    row("port_lid", &a.lid.to_string());
    row("port_lmc", &format!("0x{:02x}", a.lmc));
    row("link_layer", &a.link_layer().to_string());
    if verbose {
        let active_speed = match a.extended.active_speed_ex {
            0 => a.active_speed.into(),
            extended => extended,
        };
        row("max_msg_sz", &format!("0x{:x}", a.max_msg_sz));
        row("port_cap_flags", &format!("0x{:08x}", a.port_cap_flags));
        row(
            "port_cap_flags2",
            &format!("0x{:04x}", a.extended.port_cap_flags2),
        );
        row(
            "max_vl_num",
            &format!("{} ({})", lanes(a.max_vl_num), a.max_vl_num),
        );
        row("bad_pkey_cntr", &format!("0x{:x}", a.bad_pkey_cntr));
        row("qkey_viol_cntr", &format!("0x{:x}", a.qkey_viol_cntr));
        row("sm_sl", &a.sm_sl.to_string());
        row("pkey_tbl_len", &a.pkey_tbl_len.to_string());
        row("gid_tbl_len", &a.gid_tbl_len.to_string());
        row("subnet_timeout", &a.subnet_timeout.to_string());
        row("init_type_reply", &a.init_type_reply.to_string());
        row(
            "active_width",
            &format!("{}X ({})", width(a.active_width), a.active_width),
        );
        row(
            "active_speed",
            &format!("{} ({active_speed})", speed(active_speed)),
        );
        if context.device().transport() == Transport::InfiniBand {
            row(
                "phys_state",
                &format!("{} ({})", phys_state(a.phys_state), a.phys_state),
            );
        }
        gids(context, number, a.link_layer())?;
    }
    println!();
    Ok(())
}

fn gids(context: &Context, port: u8, link_layer: LinkLayer) -> oxverbs::Result<()> {
    for entry in context.gid_table()? {
        if entry.port != port || entry.gid.has_no_interface() {
            continue;
        }
        let gid = match entry.gid_type {
            GidType::RoceV2 => entry.gid.to_string(),
            _ => in_words(entry.gid),
        };
        let gid_type = match entry.gid_type {
            _ if link_layer != LinkLayer::ETHERNET => "",
            GidType::RoceV2 => ", RoCE v2",
            _ => ", RoCE v1",
        };
        println!("\t\t\tGID[{:3}]:\t\t{gid}{gid_type}", entry.index);
    }
    Ok(())
}

fn in_words(gid: Gid) -> String {
    let words = gid
        .0
        .chunks(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]));
    words.collect::<Vec<_>>().join(":")
}
