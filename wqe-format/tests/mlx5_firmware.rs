//! Layouts and numbers of firmware commands against Linux' own: `mlx5_ifc.h` and its neighbours in the source tree named
//! by `OXVERBS_LINUX_SRC` (Debian's package linux-source-6.12).
//!
//! In `mlx5_ifc.h` a structure has a byte for every bit, so that a C compiler counts bits with `offsetof` and `sizeof`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use test_support::c::Facts;
use test_support::skip;
use wqe_format::mlx5::firmware::caps::CapType;
use wqe_format::mlx5::firmware::register::RegisterId;
use wqe_format::mlx5::firmware::{
    Count, Delivery, EventType, Field, Layout, Opcode, PortChange, Status, layouts,
};

/// Where this crate's spelling cannot be C's.
const SPELLED: [(&str, &str); 5] = [
    ("type_", "type"),
    (
        "atomic_req_8b_endianness_mode",
        "atomic_req_8B_endianness_mode",
    ),
    (
        "supported_atomic_req_8b_endianness_mode_1",
        "supported_atomic_req_8B_endianness_mode_1",
    ),
    ("fec_100g_per_lane_in_pplm", "fec_100G_per_lane_in_pplm"),
    ("fec_50g_per_lane_in_pplm", "fec_50G_per_lane_in_pplm"),
];

/// Those that are unions in C.
const UNIONS: [&str; 1] = ["gre_key"];

/// The tree, or a named skip.
fn source(test: &str) -> Option<PathBuf> {
    let dir = std::env::var_os("OXVERBS_LINUX_SRC").map(PathBuf::from);
    if dir.is_none() {
        skip(test, "OXVERBS_LINUX_SRC names no source of Linux");
    }
    dir
}

fn read(dir: &Path, file: &str) -> String {
    let path = dir.join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn ifc(dir: &Path) -> String {
    read(dir, "include/linux/mlx5/mlx5_ifc.h")
}

fn cmd_c(dir: &Path) -> String {
    read(dir, "drivers/net/ethernet/mellanox/mlx5/core/cmd.c")
}

/// The text from `start` to the first `end` behind it.
fn cut<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let from = text.find(start).unwrap_or_else(|| panic!("no {start}"));
    let length = text[from..]
        .find(end)
        .unwrap_or_else(|| panic!("no {end} behind {start}"));
    &text[from..from + length + end.len()]
}

/// The enumeration in which `member` is defined.
fn enumeration<'a>(text: &'a str, member: &str) -> &'a str {
    let at = text.find(member).unwrap_or_else(|| panic!("no {member}"));
    let from = text[..at].rfind("enum").expect("an enumeration");
    cut(&text[from..], "enum", "};")
}

/// What the headers want of the rest of Linux, and the headers.
fn preamble(dir: &Path) -> String {
    let cmd = cmd_c(dir);
    let mut text = String::from(
        "typedef unsigned char u8;\n\
         #define DECLARE_FLEX_ARRAY(T, NAME) struct { struct { } empty_ ## NAME; T NAME[]; }\n\
         #define BIT(n) (1UL << (n))\n\
         #define BIT_ULL(n) (1ULL << (n))\n\
         typedef uint16_t __be16; typedef uint32_t __be32; typedef uint64_t __be64;\n\
         #include \"include/linux/mlx5/mlx5_ifc.h\"\n",
    );
    text += cut(&cmd, "struct mlx5_ifc_mbox_out_bits {", "\n};");
    text += cut(&cmd, "struct mlx5_ifc_mbox_in_bits {", "\n};");
    text
}

fn c_name(field: &Field) -> &str {
    let spelled = SPELLED.iter().find(|(ours, _)| *ours == field.name);
    spelled.map_or(field.name, |(_, c)| c)
}

/// The type in C.
fn c_type(kernel: &str) -> String {
    let keyword = if UNIONS.contains(&kernel) {
        "union"
    } else {
        "struct"
    };
    format!("{keyword} mlx5_ifc_{kernel}_bits")
}

/// What C must say of a layout.
fn facts_of(layout: &Layout, facts: &mut Facts) {
    let c = c_type(layout.kernel);
    // QUERY_QP's reply ends in a union of pages with and without an extension of the context before them; older
    // firmware and older drivers stop before that.
    let c_size = match layout.kernel {
        "query_qp_out" => format!("offsetof({c}, qp_pas_or_qpc_ext_and_pas)"),
        _ => format!("sizeof({c})"),
    };
    facts.add(c_size, layout.size as u64 * 8);
    for field in layout.fields {
        let name = c_name(field);
        let member = format!("(({c} *)0)->{name}");
        facts.add(format!("offsetof({c}, {name})"), field.offset as u64);
        let element = match field.count {
            Count::One => member,
            Count::Times(times) => {
                let all = field.width * times;
                facts.add(format!("sizeof({member})"), all as u64);
                format!("{member}[0]")
            }
            Count::Rest if name == "qp_pas_or_qpc_ext_and_pas" => member,
            Count::Rest => format!("{member}[0]"),
        };
        facts.add(format!("sizeof({element})"), field.width as u64);
        if let Some(nested) = field.nested {
            let c = c_type(nested.kernel);
            facts.add(
                format!("__builtin_types_compatible_p(__typeof__({element}), {c})"),
                1_u64,
            );
        }
    }
}

#[test]
fn every_field_stands_where_linux_has_it() {
    let Some(dir) = source("wqe-format::mlx5_ifc::layouts") else {
        return;
    };
    let mut facts = Facts::default();
    for layout in layouts() {
        facts_of(layout, &mut facts);
    }
    let fields: usize = layouts().map(|layout| layout.fields.len()).sum();
    println!(
        "{} layouts, {fields} fields, {} facts",
        layouts().count(),
        facts.count()
    );
    assert!(layouts().count() > 400 && fields > 2900, "some are missing");
    facts
        .check(&preamble(&dir), &[&dir, &dir.join("include")])
        .unwrap();
}

#[test]
fn a_field_at_a_wrong_place_is_noticed() {
    let Some(dir) = source("wqe-format::mlx5_ifc::planted") else {
        return;
    };
    static NESTED: Layout = Layout {
        name: "Qpc",
        kernel: "qpc",
        size: 0xe8,
        fields: &[],
    };
    let field = |name, offset, width, count, nested| Field {
        name,
        offset,
        width,
        count,
        nested,
    };
    let planted: [(&'static str, usize, Field); 6] = [
        ("cqc", 0x40, field("log_cq_size", 0x64, 5, Count::One, None)),
        ("cqc", 0x40, field("log_cq_size", 0x63, 4, Count::One, None)),
        ("cqc", 0x48, field("log_cq_size", 0x63, 5, Count::One, None)),
        (
            "create_cq_in",
            0x110,
            field("pas", 0x880, 0x20, Count::Rest, None),
        ),
        (
            "flow_context",
            0x300,
            field("execute_aso", 0x1200, 0x40, Count::Times(5), None),
        ),
        (
            "create_cq_in",
            0x110,
            field("cq_context", 0x80, 0x200, Count::One, Some(&NESTED)),
        ),
    ];
    for (kernel, size, field) in planted {
        let layout = Layout {
            name: "Planted",
            kernel,
            size,
            fields: Vec::leak(vec![field]),
        };
        let mut facts = Facts::default();
        facts_of(&layout, &mut facts);
        let wrong = facts
            .check(&preamble(&dir), &[&dir, &dir.join("include")])
            .unwrap_err();
        assert_eq!(wrong.lines().count(), 1, "{wrong}");
        assert!(wrong.contains(kernel) && wrong.contains("Rust"), "{wrong}");
    }
}

/// The names that a structure's text declares; those inside a part that has a name of its own stand for nothing else.
fn declared(text: &str) -> BTreeSet<&str> {
    let mut open = vec![BTreeSet::new()];
    for line in text.lines().skip(1) {
        let line = line.split("/*").next().unwrap_or_default().trim();
        if line.ends_with('{') {
            open.push(BTreeSet::new());
            continue;
        }
        let name = match line.split_once("DECLARE_FLEX_ARRAY(") {
            Some((_, inside)) => inside.split(')').next(),
            None => line.split(['[', ';']).next(),
        };
        let name = name
            .and_then(|text| text.split([' ', '\t', '}']).next_back())
            .filter(|name| !name.is_empty() && line.contains(';'));
        let Some(names) = (match line.starts_with('}') {
            true if open.len() > 1 => open.pop(),
            _ => Some(BTreeSet::new()),
        }) else {
            continue;
        };
        let around = open.last_mut().expect("the structure itself");
        match name {
            Some(name) => _ = around.insert(name),
            None => around.extend(names),
        }
    }
    open.swap_remove(0)
}

#[test]
fn bits_that_no_layout_knows_are_reserved_in_linux() {
    let Some(dir) = source("wqe-format::mlx5_ifc::reserved") else {
        return;
    };
    let text = ifc(&dir) + &cmd_c(&dir);
    let mut missing = Vec::new();
    let mut seen = 0;
    for layout in layouts() {
        let start = c_type(layout.kernel) + " {";
        let known: BTreeSet<&str> = layout.fields.iter().map(c_name).collect();
        for name in declared(cut(&text, &start, "\n};")) {
            seen += 1;
            if !known.contains(name) && !name.starts_with("reserved") && !name.starts_with("rsvd") {
                missing.push(format!("{}.{name}", layout.kernel));
            }
        }
    }
    println!("{seen} names");
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(seen > 4000, "only {seen} names were found in the text");
}

#[test]
fn numbers_are_those_of_linux() {
    let Some(dir) = source("wqe-format::mlx5_ifc::numbers") else {
        return;
    };
    let device = read(&dir, "include/linux/mlx5/device.h");
    let driver = read(&dir, "include/linux/mlx5/driver.h");
    let cmd = cmd_c(&dir);
    let mut text = preamble(&dir);
    for block in [
        enumeration(&device, "MLX5_EVENT_TYPE_NOTIFY_ANY"),
        enumeration(&device, "MLX5_PORT_CHANGE_SUBTYPE_DOWN"),
        enumeration(&device, "MLX5_CMD_STAT_OK"),
        enumeration(&device, "MLX5_CAP_GENERAL"),
        enumeration(&driver, "MLX5_REG_SBPR"),
        enumeration(&cmd, "MLX5_CMD_DELIVERY_STAT_OK"),
    ] {
        text += block;
        text += "\n";
    }
    let mut facts = Facts::default();
    let mut add = |prefix: &str, name: Option<&str>, value: u64| {
        facts.add(format!("{prefix}{}", name.expect("a name")), value);
    };
    for x in Opcode::ALL {
        add("MLX5_CMD_OP_", x.name(), x.0.into());
    }
    for x in Status::ALL {
        add("MLX5_CMD_STAT_", x.name(), x.0.into());
    }
    for x in Delivery::ALL {
        add("MLX5_CMD_DELIVERY_STAT_", x.name(), x.0.into());
    }
    for x in EventType::ALL {
        add("MLX5_EVENT_TYPE_", x.name(), x.0.into());
    }
    for x in PortChange::ALL {
        add("MLX5_PORT_CHANGE_SUBTYPE_", x.name(), x.0.into());
    }
    for x in CapType::ALL {
        add("MLX5_CAP_", x.name(), x.0.into());
    }
    for x in RegisterId::ALL {
        add("MLX5_REG_", x.name(), x.0.into());
    }
    println!("{} numbers", facts.count());
    facts.check(&text, &[&dir, &dir.join("include")]).unwrap();
}
