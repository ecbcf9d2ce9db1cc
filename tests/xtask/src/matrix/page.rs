//! What is shown: the table, the page, the closing line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use comfy_table::{CellAlignment, Table, presets};

use super::row::Row;
use super::{Case, Record};

/// The table of a run.
pub(super) fn table(records: &[Record]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header([
        "row", "kernel", "passed", "failed", "skipped", "seconds", "",
    ]);
    for record in records {
        let seconds = record.suite.as_ref().map(|suite| suite.seconds);
        table.add_row([
            record.row.clone(),
            record.kernel.clone().unwrap_or_else(|| "-".to_owned()),
            record.count("passed").to_string(),
            record.count("failed").to_string(),
            record.count("skipped").to_string(),
            seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.0}")),
            verdict(record),
        ]);
    }
    for column in table.column_iter_mut().skip(2).take(4) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn verdict(record: &Record) -> String {
    match &record.not_run {
        Some(why) => format!("NOT RUN: {why}"),
        None if !record.complaints.is_empty() => "the kernel complained".to_owned(),
        None if record.is_green() => String::new(),
        None => "FAILED".to_owned(),
    }
}

/// Sums a run up.
pub(super) fn closing_line(records: &[Record]) -> String {
    let sum = |outcome: &str| -> usize { records.iter().map(|r| r.count(outcome)).sum() };
    let ran = records.iter().filter(|r| r.suite.is_some()).count();
    let seconds: f64 = (records.iter())
        .filter_map(|record| Some(record.suite.as_ref()?.seconds))
        .sum();
    let complained = records.iter().filter(|r| !r.complaints.is_empty()).count();
    let complained = match complained {
        0 => String::new(),
        some => format!(", the kernel complained in {some}"),
    };
    format!(
        "matrix: {ran} of {} rows ran: {} passed, {} failed, {} skipped in {seconds:.0} s{complained}",
        records.len(),
        sum("passed"),
        sum("failed"),
        sum("skipped"),
    )
}

/// docs/matrix.md, of what was kept of each row.
pub(super) fn page(rows: &[Row], kept: &BTreeMap<String, Record>) -> String {
    let mut page = String::from(
        "# The matrix: hw-tests on every device that needs no hardware\n\n\
         Written by `cargo xtask matrix`, which runs every row; `--only ROW` runs one and leaves what is said of the others\n\
         (kept in `docs/matrix`).\n\
         A row that has not been run, or could not be, says so. Nothing here met a ConnectX: [hardware-lab.md](hardware-lab.md)\n\
         tells how to run the same cases on one.\n\n\
         | row | device | kernel | passed | failed | skipped |\n|---|---|---|--:|--:|--:|\n",
    );
    for row in rows {
        let name = row.name();
        let record = kept.get(&name);
        let cells = match record {
            Some(record) if record.suite.is_some() => {
                let [passed, failed, skipped] =
                    ["passed", "failed", "skipped"].map(|outcome| record.count(outcome));
                let kernel = record.kernel.as_deref().unwrap_or("none");
                format!("{kernel} | {passed} | {failed} | {skipped}")
            }
            _ => "not run | | |".to_owned(),
        };
        let _ = writeln!(page, "| `{name}` | {} | {cells} |", row.what());
    }
    let ran: Vec<&Record> = rows
        .iter()
        .filter_map(|row| kept.get(&row.name()))
        .collect();
    let named = |title: &str, outcome: &str, page: &mut String| {
        let reasons = by_reason(&ran, outcome);
        let _ = writeln!(page, "\n## {title}\n");
        if reasons.is_empty() {
            page.push_str("None.\n");
        }
        for (reason, cases) in reasons {
            let _ = writeln!(page, "- {reason}");
            for (case, rows) in cases {
                let everywhere = rows.len() == ran.iter().filter(|r| r.suite.is_some()).count();
                let rows = if everywhere {
                    "every row".to_owned()
                } else {
                    rows.join(", ")
                };
                let _ = writeln!(page, "  - `{case}`: {rows}");
            }
        }
    };
    named("What failed", "failed", &mut page);
    named("What was skipped, and why", "skipped", &mut page);
    for record in &ran {
        if let Some(why) = &record.not_run {
            let _ = writeln!(page, "\n`{}` could not run: {why}", record.row);
        }
        for complaint in &record.complaints {
            let _ = writeln!(page, "\nThe kernel of `{}` said: {complaint}", record.row);
        }
    }
    page
}

/// Cases and their rows, by the reason of how they ended.
type Reasons<'a> = BTreeMap<&'a str, BTreeMap<&'a str, Vec<&'a str>>>;

fn by_reason<'a>(records: &[&'a Record], outcome: &str) -> Reasons<'a> {
    let mut reasons = Reasons::new();
    for record in records {
        let cases = record.suite.iter().flat_map(|suite| &suite.cases);
        for Case { name, reason, .. } in cases.filter(|case| case.outcome == outcome) {
            let cases = reasons.entry(reason.as_deref().unwrap_or("")).or_default();
            cases.entry(name).or_default().push(&record.row);
        }
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::super::{Suite, row};
    use super::*;

    fn record(row: &str, outcomes: &[(&str, &str)]) -> Record {
        let case = |(name, outcome): &(&str, &str)| Case {
            name: (*name).to_owned(),
            outcome: (*outcome).to_owned(),
            reason: (*outcome != "passed").then(|| "a reason".to_owned()),
        };
        Record {
            row: row.to_owned(),
            command: String::new(),
            kernel: None,
            not_run: None,
            suite: Some(Suite {
                seconds: 1.0,
                passed: 0,
                cases: outcomes.iter().map(case).collect(),
            }),
            complaints: Vec::new(),
        }
    }

    #[test]
    fn failures_and_rows_that_did_not_run_are_named() {
        let bad = record(
            "soft-ib",
            &[("a", "passed"), ("b", "failed"), ("c", "skipped")],
        );
        assert!(!bad.is_green());
        assert!(!record("soft-ib", &[("c", "skipped")]).is_green());
        assert!(record("soft-ib", &[("a", "passed")]).is_green());
        let absent = Record {
            suite: None,
            not_run: Some("no guest".to_owned()),
            ..bad.clone()
        };
        assert!(!absent.is_green());
        assert_eq!(
            closing_line(&[bad.clone(), absent]),
            "matrix: 1 of 2 rows ran: 1 passed, 1 failed, 1 skipped in 1 s"
        );
        // What is kept counts the same.
        let brief = bad.suite.as_ref().unwrap().brief();
        assert_eq!((brief.passed, brief.cases.len()), (1, 2));
        assert_eq!(brief.brief().passed, 1);
        let rows = row::all();
        let page = page(&rows, &BTreeMap::from([("soft-ib".to_owned(), bad)]));
        assert!(page.contains("| none | 1 | 1 | 1 |"), "{page}");
        assert_eq!(page.matches("not run | | | |").count(), rows.len() - 1);
        assert!(page.contains("- a reason\n  - `b`: every row"), "{page}");
    }
}
