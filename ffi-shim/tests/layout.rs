//! Every layout that crosses the C boundary, against rdma-core's own headers.
//!
//! `OXVERBS_RDMA_CORE_SRC=dir[:dir]` names source trees of rdma-core, such as Debian's source packages 44, 56 and 65
//! unpacked; `cargo xtask test` downloads them. `verbs.h` is installed by libibverbs-dev, but the private `driver.h` is
//! in no binary package. From each tree a C program is built that prints the sizes and offsets that it knows; they
//! are compared with the tables in `oxverbs_ffi::abi`.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use oxverbs_ffi::abi::release::{Layout, MIRRORED, Op};
use oxverbs_ffi::abi::{STRUCTS, StructLayout};
use test_support::c::{compile_and_run, include_dirs};
use test_support::skip::skip;

/// The number in `set(PACKAGE_VERSION "56.1")`.
fn release_of(tree: &Path) -> u32 {
    let file = tree.join("CMakeLists.txt");
    let text = fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let (_, rest) = text
        .split_once("set(PACKAGE_VERSION \"")
        .unwrap_or_else(|| panic!("{}: no PACKAGE_VERSION", file.display()));
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a version")
}

/// Lays links out as rdma-core's build does: its headers include each other by installed names.
fn include_tree(tree: &Path, to: &Path) {
    let infiniband = to.join("infiniband");
    fs::create_dir(&infiniband).unwrap();
    let published = ["ib_user_ioctl_verbs.h", "ib_user_ioctl_cmds.h"];
    let published = published.map(|name| tree.join("kernel-headers/rdma").join(name));
    let own = fs::read_dir(tree.join("libibverbs")).unwrap();
    let own = own.map(|entry| entry.unwrap().path());
    for file in own.chain(published.into_iter().filter(|file| file.exists())) {
        if file.extension().is_some_and(|extension| extension == "h") {
            symlink(&file, infiniband.join(file.file_name().unwrap())).unwrap();
        }
    }
    symlink(tree.join("ccan"), to.join("ccan")).unwrap();
    symlink(tree.join("util"), to.join("util")).unwrap();
    symlink(tree.join("kernel-headers/rdma"), to.join("rdma")).unwrap();
    fs::write(to.join("config.h"), "").unwrap();
}

/// C's name of a field path of ours: keywords of Rust lose their `r#`.
fn c_field(field: &str) -> String {
    field.replace("r#", "").replace(' ', "")
}

/// The size of a struct and the offsets of its fields, as lines of a C program that prints `name value`.
fn questions(release: u32) -> String {
    let mut c = String::new();
    let mut ask = |name: String, expression: String| {
        writeln!(c, "    printf(\"{name} %zu\\n\", (size_t)({expression}));").unwrap();
    };
    for layout in STRUCTS.iter().filter(|layout| layout.since <= release) {
        let &StructLayout { c_type, fields, .. } = layout;
        if layout.size.is_some() {
            ask(format!("{c_type}|"), format!("sizeof({c_type})"));
        }
        for (field, _) in fields {
            let field = c_field(field);
            ask(
                format!("{c_type}|{field}"),
                format!("offsetof({c_type}, {field})"),
            );
        }
    }
    let context = "struct verbs_context";
    ask("context".into(), format!("offsetof({context}, context)"));
    ask("context size".into(), format!("sizeof({context})"));
    ask("sz".into(), format!("offsetof({context}, sz)"));
    ask("priv".into(), format!("offsetof({context}, priv)"));
    ask(
        "qp comp_mask".into(),
        "offsetof(struct verbs_qp, comp_mask)".into(),
    );
    ask("qp size".into(), "sizeof(struct verbs_qp)".into());
    ask(
        "port attr size".into(),
        "sizeof(struct ibv_port_attr)".into(),
    );
    ask(
        "table size".into(),
        "sizeof(struct verbs_context_ops)".into(),
    );
    for op in Op::ALL.iter().filter(|op| op.since() <= release) {
        let name = op.name();
        ask(
            format!("op {name}"),
            format!("offsetof(struct verbs_context_ops, {name})"),
        );
    }
    for &(_, op) in MIRRORED {
        ask(
            format!("mirrored {}", op.name()),
            format!("offsetof(struct ibv_context_ops, {})", mirror(op)),
        );
    }
    for (name, number) in constants() {
        ask(format!("constant {name}"), format!("{name} == {number}"));
    }
    c
}

/// Eight members of `ibv_context_ops` are called by inline functions; the others carry `_compat_`.
fn mirror(op: Op) -> String {
    let called = [
        Op::alloc_mw,
        Op::bind_mw,
        Op::dealloc_mw,
        Op::poll_cq,
        Op::req_notify_cq,
        Op::post_srq_recv,
        Op::post_send,
        Op::post_recv,
    ];
    let prefix = if called.contains(&op) { "" } else { "_compat_" };
    format!("{prefix}{}", op.name())
}

fn constants() -> [(&'static str, u64); 8] {
    use oxverbs_ffi::abi::driver as ours;
    [
        ("VERBS_MATCH_PCI", ours::VERBS_MATCH_PCI.into()),
        ("IBV_MR_TYPE_NULL_MR", ours::IBV_MR_TYPE_NULL_MR.into()),
        (
            "IBV_MR_TYPE_IMPORTED_MR",
            ours::IBV_MR_TYPE_IMPORTED_MR.into(),
        ),
        ("VERBS_MATCH_SENTINEL", ours::VERBS_MATCH_SENTINEL.into()),
        ("VERBS_MATCH_MODALIAS", ours::VERBS_MATCH_MODALIAS.into()),
        ("VERBS_MATCH_DRIVER_ID", ours::VERBS_MATCH_DRIVER_ID.into()),
        ("VERBS_QP_EX", ours::VERBS_QP_EX.into()),
        ("IBV_MR_TYPE_DMABUF_MR", ours::IBV_MR_TYPE_DMABUF_MR.into()),
    ]
}

/// What C says of one tree.
fn answers(tree: &Path, release: u32) -> HashMap<String, usize> {
    // driver.h wants kern-abi.h for prototypes only, and that one wants files which a build generates.
    let source = format!(
        "#define KERN_ABI_H\n#include <stdio.h>\n#include <stddef.h>\n#include <rdma/ib_user_verbs.h>\n\
         #include <infiniband/driver.h>\nint main(void)\n{{\n{}    return 0;\n}}\n",
        questions(release)
    );
    let include = tempfile::tempdir().unwrap();
    include_tree(tree, include.path());
    let output = compile_and_run(&source, &[include.path()]).unwrap_or_else(|e| panic!("{e}"));
    let line = |line: &str| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    };
    output.lines().map(line).collect()
}

#[test]
fn layouts_are_those_of_rdma_cores_headers() {
    let trees = include_dirs("OXVERBS_RDMA_CORE_SRC");
    if trees.is_empty() {
        skip(
            "ffi-shim::layout",
            "OXVERBS_RDMA_CORE_SRC names no source tree of rdma-core (cargo xtask test downloads them)",
        );
        return;
    }
    for tree in trees {
        let release = release_of(&tree);
        let layout = Layout::of_release(release)
            .unwrap_or_else(|| panic!("{}: release {release} is not supported", tree.display()));
        let c = answers(&tree, release);
        let mut wrong = Vec::new();
        let mut compared = 0;
        let mut check = |name: String, ours: usize| {
            compared += 1;
            match c.get(&name) {
                Some(theirs) if *theirs == ours => {}
                theirs => wrong.push(format!("{name}: C has {theirs:?}, we have {ours}")),
            }
        };
        for described in STRUCTS
            .iter()
            .filter(|described| described.since <= release)
        {
            let &StructLayout {
                c_type,
                base,
                fields,
                ..
            } = described;
            if let Some(size) = described.size {
                check(format!("{c_type}|"), size);
            }
            for (field, offset) in fields {
                check(format!("{c_type}|{}", c_field(field)), base + offset);
            }
        }
        check("context".into(), layout.context_offset);
        check("context size".into(), layout.verbs_context_size());
        check("sz".into(), layout.sz_offset());
        check("priv".into(), layout.priv_offset());
        check("qp comp_mask".into(), layout.qp_comp_mask_offset());
        check("qp size".into(), layout.verbs_qp_size());
        check("port attr size".into(), layout.port_attr_size);
        check("table size".into(), layout.ops * 8);
        for op in Op::ALL {
            if let Some(slot) = layout.slot(*op) {
                check(format!("op {}", op.name()), slot * 8);
            }
        }
        for &(place, op) in MIRRORED {
            check(format!("mirrored {}", op.name()), place * 8);
        }
        for (name, _) in constants() {
            check(format!("constant {name}"), 1);
        }
        assert!(
            wrong.is_empty(),
            "rdma-core {release}:\n{}",
            wrong.join("\n")
        );
        println!("rdma-core {release}: {compared} numbers are C's");
        assert!(compared > 400, "{compared} numbers are too few");
    }
}
