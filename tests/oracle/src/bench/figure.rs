//! Measurements beside the rows of single calls: each a number of one implementation, put together by case.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use super::report::COLUMNS;

/// One number.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Table that it stands in.
    pub section: String,
    /// Row.
    pub case: String,
    /// What it counts.
    pub what: String,
    /// Whose: `libmlx5`, `shim`, `native`.
    pub who: String,
    /// The number.
    pub value: f64,
}

/// A row of them.
#[derive(Clone, Debug, Serialize)]
pub struct FigureLine {
    /// Table that it stands in.
    pub section: String,
    /// What is measured.
    pub case: String,
    /// What is counted.
    pub what: String,
    /// By column.
    pub values: BTreeMap<&'static str, f64>,
    /// Limits that it misses.
    pub missed: Vec<String>,
}

/// Collects the numbers of one process.
#[derive(Debug, Default)]
pub struct Figures {
    section: &'static str,
    /// In the order in which they were measured.
    pub all: Vec<Figure>,
}

impl Figures {
    /// What follows stands in this table.
    pub fn section(&mut self, name: &'static str) {
        self.section = name;
    }

    /// One more.
    pub fn add(&mut self, case: &str, what: &str, who: &str, value: f64) {
        self.all.push(Figure {
            section: self.section.to_owned(),
            case: case.to_owned(),
            what: what.to_owned(),
            who: who.to_owned(),
            value,
        });
    }
}

/// Puts those of libmlx5's default mode and of its best together. Ours natively knows no modes: the better one of each.
pub fn merge(default: &[Figure], best: &[Figure]) -> Vec<FigureLine> {
    let mut lines: Vec<FigureLine> = Vec::new();
    for (figures, mode) in [(default, 0), (best, 1)] {
        for figure in figures {
            let column = match (figure.who.as_str(), mode) {
                ("libmlx5", mode) => COLUMNS[mode],
                ("shim", mode) => COLUMNS[2 + mode],
                _ => COLUMNS[4],
            };
            let is_same = |line: &FigureLine| {
                (&line.section, &line.case, &line.what)
                    == (&figure.section, &figure.case, &figure.what)
            };
            let index = lines.iter().position(is_same).unwrap_or_else(|| {
                lines.push(FigureLine {
                    section: figure.section.clone(),
                    case: figure.case.clone(),
                    what: figure.what.clone(),
                    values: BTreeMap::new(),
                    missed: Vec::new(),
                });
                lines.len() - 1
            });
            let value = lines[index].values.entry(column).or_insert(figure.value);
            *value = value.min(figure.value);
        }
    }
    lines
}

/// For people: a table for each section.
pub fn tables(lines: &[FigureLine]) -> String {
    let mut out = String::new();
    let mut rest = lines;
    while let Some(first) = rest.first() {
        let n = rest
            .iter()
            .take_while(|line| line.section == first.section)
            .count();
        let mut table = Table::new();
        table.load_preset(presets::ASCII_MARKDOWN);
        let mut header = vec![first.section.clone(), String::new()];
        header.extend(COLUMNS.map(str::to_owned));
        header.push(String::new());
        table.set_header(header);
        for line in &rest[..n] {
            let mut cells = vec![line.case.clone(), line.what.clone()];
            for column in COLUMNS {
                cells.push(line.values.get(column).map_or("-".to_owned(), number));
            }
            cells.push(if line.missed.is_empty() { "" } else { "MISSED" }.to_owned());
            table.add_row(cells);
        }
        for column in 2..2 + COLUMNS.len() {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        out.push_str(&table.to_string());
        out.push_str("\n\n");
        rest = &rest[n..];
    }
    out
}

fn number(value: &f64) -> String {
    if value.abs() >= 1000.0 || value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.1}")
    }
}
