//! Puts the processes' measurements together: table, JSON, limits, picture.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::case::{Case, Poll};
use super::worker::{Measured, Row};

/// Columns: libmlx5 as it comes and with `MLX5_SINGLE_THREADED=1`, our plug-in in the same two modes, our native queues.
pub const COLUMNS: [&str; 5] = [
    "libmlx5_default",
    "libmlx5_best",
    "shim_default",
    "shim_best",
    "native",
];

/// One case.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub case: String,
    /// Nanoseconds per operation.
    pub ns: BTreeMap<&'static str, f64>,
    /// Instructions per operation.
    pub insn: BTreeMap<&'static str, f64>,
    /// Stores to device registers per operation.
    pub mmio: BTreeMap<&'static str, f64>,
    /// Store fences per operation.
    pub fences: BTreeMap<&'static str, f64>,
    /// Distinct cache lines per operation.
    pub lines: BTreeMap<&'static str, f64>,
    /// Bytes stored to device registers per operation.
    pub mmio_bytes: BTreeMap<&'static str, f64>,
    /// Bytes that the device fetches per operation, data apart.
    pub device_reads: BTreeMap<&'static str, f64>,
    /// Bytes that the device writes per operation, data apart.
    pub device_writes: BTreeMap<&'static str, f64>,
    /// Limits that it misses.
    pub missed: Vec<String>,
}

/// A limit: what may be how many times what.
#[derive(Clone, Copy, Debug)]
struct Limit {
    ours: &'static str,
    theirs: &'static str,
    ratio: f64,
}

/// The project's limits for a case.
fn limits(case: &Case) -> Vec<Limit> {
    let native = |theirs, ratio| Limit {
        ours: "native",
        theirs,
        ratio,
    };
    let shim = |ratio| {
        [
            Limit {
                ours: "shim_default",
                theirs: "libmlx5_default",
                ratio,
            },
            Limit {
                ours: "shim_best",
                theirs: "libmlx5_best",
                ratio,
            },
        ]
    };
    let mut limits = Vec::new();
    match case {
        Case::Send { batch: 1, .. } => {
            limits.push(native("libmlx5_best", 0.60));
            limits.push(native("libmlx5_default", 0.40));
            limits.extend(shim(0.70));
        }
        Case::Recv { batch: 1 } => {
            limits.push(native("libmlx5_best", 0.60));
            limits.push(native("libmlx5_default", 0.40));
            limits.extend(shim(0.85));
        }
        Case::Send { .. } | Case::Recv { .. } => {
            limits.push(native("libmlx5_best", 0.45));
            limits.extend(shim(0.70));
        }
        Case::Poll { .. } => {
            limits.push(native("libmlx5_best", 0.30));
            limits.extend(shim(0.60));
        }
        Case::Empty { .. } => {
            limits.push(native("libmlx5_best", 1.0));
            limits.extend(shim(1.0));
        }
        Case::Loop { .. } => {}
    }
    limits
}

/// Merges a process in libmlx5's default mode and one in its best mode.
pub fn merge(default: &Measured, best: &Measured) -> Vec<Line> {
    let mut lines = Vec::new();
    for case in Case::all() {
        let name = case.to_string();
        let find = |measured: &Measured, who: &str| {
            let mut rows = measured.rows.iter();
            rows.find(|row| row.case == name && row.who == who).cloned()
        };
        let faster = |a: Option<Row>, b: Option<Row>| match (a, b) {
            (Some(a), Some(b)) => Some(if a.ns <= b.ns { a } else { b }),
            (a, b) => a.or(b),
        };
        let rows = [
            find(default, "libmlx5"),
            find(best, "libmlx5"),
            find(default, "shim"),
            find(best, "shim"),
            // It knows no modes, so both processes measured the same.
            faster(find(default, "native"), find(best, "native")),
        ];
        if rows.iter().all(Option::is_none) {
            continue;
        }
        let pick = |what: fn(&Row) -> f64| {
            COLUMNS
                .iter()
                .zip(&rows)
                .filter_map(|(name, row)| Some((*name, what(row.as_ref()?))))
                .collect::<BTreeMap<_, _>>()
        };
        let mut line = Line {
            case: name.clone(),
            ns: pick(|row| row.ns),
            insn: pick(|row| row.insn),
            mmio: pick(|row| row.mmio),
            fences: pick(|row| row.fences),
            lines: pick(|row| row.lines),
            mmio_bytes: pick(|row| row.mmio_bytes),
            device_reads: pick(|row| row.device_reads),
            device_writes: pick(|row| row.device_writes),
            missed: Vec::new(),
        };
        line.missed = missed(&case, &line);
        lines.push(line);
    }
    lines
}

fn missed(case: &Case, line: &Line) -> Vec<String> {
    let mut missed = Vec::new();
    for limit in limits(case) {
        for (what, values) in [("ns", &line.ns), ("insn", &line.insn)] {
            let (Some(ours), Some(theirs)) = (values.get(limit.ours), values.get(limit.theirs))
            else {
                continue;
            };
            let ratio = ours / theirs;
            if ratio > limit.ratio {
                missed.push(format!(
                    "{what} {} {ratio:.2}x {} (limit {:.2})",
                    limit.ours, limit.theirs, limit.ratio
                ));
            }
        }
    }
    for (what, values) in [("MMIO stores", &line.mmio), ("fences", &line.fences)] {
        let theirs = values.get("libmlx5_default").copied().unwrap_or_default();
        for ours in ["shim_default", "native"] {
            if let Some(value) = values.get(ours)
                && (value - theirs).abs() > 1e-9
            {
                missed.push(format!("{what}: {ours} {value:.3}, libmlx5 {theirs:.3}"));
            }
        }
    }
    // A lazy poll by one thread is libmlx5's best in either mode.
    if matches!(
        case,
        Case::Poll {
            poll: Poll::Lazy { single: true, .. },
            ..
        }
    ) {
        missed.retain(|text| !text.contains("libmlx5_default (limit 0.40)"));
    }
    missed
}

/// For people.
pub fn table(lines: &[Line]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let mut header = vec!["case: ns / instructions per operation".to_owned()];
    header.extend(COLUMNS.map(str::to_owned));
    header.push("native/best".to_owned());
    header.push("shim/default".to_owned());
    header.push("".to_owned());
    table.set_header(header);
    for line in lines {
        let mut cells = vec![line.case.clone()];
        for column in COLUMNS {
            cells.push(match (line.ns.get(column), line.insn.get(column)) {
                (Some(ns), Some(insn)) => format!("{ns:.2} / {insn:.0}"),
                _ => "-".to_owned(),
            });
        }
        for (ours, theirs) in [
            ("native", "libmlx5_best"),
            ("shim_default", "libmlx5_default"),
        ] {
            cells.push(
                match (
                    ratio(&line.ns, ours, theirs),
                    ratio(&line.insn, ours, theirs),
                ) {
                    (Some(ns), Some(insn)) => format!("{ns:.2}x / {insn:.2}x"),
                    _ => "-".to_owned(),
                },
            );
        }
        cells.push(if line.missed.is_empty() { "" } else { "MISSED" }.to_owned());
        table.add_row(cells);
    }
    for column in 1..=COLUMNS.len() + 2 {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string()
}

/// What one operation does to memory and device, for people: libmlx5's as it comes, then our native queues'.
pub fn counts(lines: &[Line]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN);
    let header = [
        "per operation: libmlx5 / native",
        "register stores",
        "bytes of them",
        "store fences",
        "cache lines",
        "device fetches",
        "device writes",
    ];
    table.set_header(header);
    for line in lines {
        let mut cells = vec![line.case.clone()];
        for values in [
            &line.mmio,
            &line.mmio_bytes,
            &line.fences,
            &line.lines,
            &line.device_reads,
            &line.device_writes,
        ] {
            let one = |column: &str| match values.get(column) {
                Some(value) => format!("{value:.2}"),
                None => "-".to_owned(),
            };
            cells.push(format!("{} / {}", one("libmlx5_default"), one("native")));
        }
        table.add_row(cells);
    }
    table.to_string()
}

fn ratio(values: &BTreeMap<&'static str, f64>, ours: &str, theirs: &str) -> Option<f64> {
    Some(values.get(ours)? / values.get(theirs)?)
}

/// What the picture says below its bars.
const SENTENCES: [&str; 2] = [
    "Processor time of the provider only, on plain memory: what a program saves per operation on a real card too.",
    "No PCIe, no device: it says nothing about latency or message rate, which the card limits.",
];

/// A picture of the ratios: a bar per row, ours over libmlx5's best mode; shorter is faster.
pub fn svg(lines: &[Line], versions: &str) -> String {
    const LEFT: f64 = 250.0;
    const SCALE: f64 = 420.0;
    const STEP: f64 = 26.0;
    let rows: Vec<_> = lines
        .iter()
        .filter(|line| line.ns.contains_key("native") || line.ns.contains_key("shim_default"))
        .collect();
    let height = 70.0 + rows.len() as f64 * STEP + 50.0;
    let mut out = String::new();
    let _ = writeln!(
        out,
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="860" height="{height}" viewBox="0 0 860 {height}" font-family="sans-serif" font-size="11">
<rect width="860" height="{height}" fill="#ffffff"/>
<text x="10" y="20" font-size="14" font-weight="bold">Nanoseconds per operation, over libmlx5's ({versions})</text>
<rect x="10" y="30" width="10" height="8" fill="#2f6f4f"/><text x="24" y="38">native / libmlx5 with MLX5_SINGLE_THREADED=1</text>
<rect x="320" y="30" width="10" height="8" fill="#7fa8d0"/><text x="334" y="38">plug-in / libmlx5, both as they come</text>"##
    );
    for (index, line) in rows.iter().enumerate() {
        let y = 55.0 + index as f64 * STEP;
        let _ = writeln!(
            out,
            r##"<text x="10" y="{}">{}</text>"##,
            y + 13.0,
            line.case
        );
        let bars = [
            (ratio(&line.ns, "native", "libmlx5_best"), "#2f6f4f", 0.0),
            (
                ratio(&line.ns, "shim_default", "libmlx5_default"),
                "#7fa8d0",
                10.0,
            ),
        ];
        for (value, colour, shift) in bars {
            let Some(value) = value else { continue };
            let width = value.min(1.35) * SCALE;
            let top = y + shift;
            let _ = writeln!(
                out,
                r##"<rect x="{LEFT}" y="{top}" width="{width:.1}" height="9" fill="{colour}"/><text x="{:.1}" y="{}" font-size="9">{value:.2}</text>"##,
                LEFT + width + 4.0,
                top + 8.0
            );
        }
    }
    let one = LEFT + SCALE;
    let bottom = 55.0 + rows.len() as f64 * STEP;
    let _ = writeln!(
        out,
        r##"<line x1="{one}" y1="50" x2="{one}" y2="{bottom}" stroke="#aa3333" stroke-dasharray="4 3"/><text x="{one}" y="48" font-size="9" text-anchor="middle">libmlx5</text>"##
    );
    for (index, sentence) in SENTENCES.iter().enumerate() {
        let y = bottom + 20.0 + index as f64 * 15.0;
        let _ = writeln!(out, r##"<text x="10" y="{y}">{sentence}</text>"##);
    }
    out.push_str("</svg>\n");
    out
}
