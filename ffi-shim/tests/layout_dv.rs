//! The structs of mlx5dv, against `mlx5dv.h` as libibverbs-dev installs it.
//!
//! `OXVERBS_VERBS_HEADERS=dir[:dir]` names include directories, such as those of Debian's libibverbs-dev 44, 56 and 65 unpacked;
//! `cargo xtask test` downloads them.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs;

use oxverbs_ffi::abi::StructLayout;
use oxverbs_ffi::abi::dv::STRUCTS;
use test_support::c::{compile_and_run, include_dirs};
use test_support::skip::skip;

/// C's name of a field path of ours.
fn c_field(field: &str) -> String {
    field.replace("r#", "").replace(' ', "")
}

#[test]
fn structs_of_mlx5dv_are_those_of_the_headers() {
    let headers = include_dirs("OXVERBS_VERBS_HEADERS");
    if headers.is_empty() {
        skip(
            "ffi-shim::layout_dv",
            "OXVERBS_VERBS_HEADERS names no headers of libibverbs-dev (cargo xtask test downloads them)",
        );
        return;
    }
    for dir in headers {
        let header = dir.join("infiniband/mlx5dv.h");
        let text =
            fs::read_to_string(&header).unwrap_or_else(|e| panic!("{}: {e}", header.display()));
        // Structs that grew by 56 are compared where they have.
        let grown = text.contains("ooo_recv_wrs_caps");
        let mut questions = String::new();
        let mut ours = HashMap::new();
        for described in STRUCTS.iter().filter(|s| s.since == 0 || grown) {
            let &StructLayout {
                c_type,
                size,
                fields,
                ..
            } = described;
            let mut ask = |name: String, expression: String, number: usize| {
                writeln!(
                    questions,
                    "    printf(\"{name}\\t%zu\\n\", (size_t)({expression}));"
                )
                .unwrap();
                ours.insert(name, number);
            };
            if let Some(size) = size {
                ask(c_type.into(), format!("sizeof({c_type})"), size);
            }
            for (field, offset) in fields {
                let field = c_field(field);
                ask(
                    format!("{c_type}.{field}"),
                    format!("offsetof({c_type}, {field})"),
                    *offset,
                );
            }
        }
        let source = format!(
            "#include <stdio.h>\n#include <stddef.h>\n#include <infiniband/mlx5dv.h>\nint main(void)\n{{\n{questions}    return 0;\n}}\n"
        );
        let output = compile_and_run(&source, &[dir.as_path()]).unwrap_or_else(|e| panic!("{e}"));
        let mut compared = 0;
        for line in output.lines() {
            let (name, number) = line.split_once('\t').unwrap();
            assert_eq!(
                ours[name],
                number.parse::<usize>().unwrap(),
                "{}: {name}",
                dir.display()
            );
            compared += 1;
        }
        println!("{}: {compared} numbers are C's", dir.display());
        assert!(compared > 80, "{compared} numbers are too few");
    }
}
