//! The table of faults from the field: every rule has a test that exists, or a reason.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The rules that the table must hold: numbers between 1 and 66, with gaps where rules were merged.
const RULES: [u32; 45] = [
    1, 2, 3, 4, 6, 8, 9, 10, 11, 13, 14, 15, 16, 17, 19, 20, 21, 22, 24, 26, 27, 29, 30, 32, 33,
    34, 35, 37, 38, 40, 42, 43, 45, 46, 48, 50, 52, 53, 55, 56, 58, 60, 62, 64, 66,
];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What is wrong with one row, if anything.
fn check_row(row: &str, root: &Path) -> Result<u32, String> {
    let columns: Vec<&str> = row.split('\t').collect();
    let [rule, layers, fault, tests, reason] = columns[..] else {
        return Err(format!("{} columns instead of 5: {row}", columns.len()));
    };
    let number = rule.strip_prefix('B').and_then(|n| n.parse().ok());
    let number = number.ok_or_else(|| format!("not a rule: {rule}"))?;
    if layers.is_empty() || fault.is_empty() {
        return Err(format!("{rule}: no layer or no description"));
    }
    if tests.is_empty() && reason.is_empty() {
        return Err(format!("{rule}: neither a test nor a reason"));
    }
    for test in tests.split_whitespace() {
        let (file, name) = test
            .split_once('#')
            .ok_or_else(|| format!("{rule}: {test} is not file#name"))?;
        let text =
            std::fs::read_to_string(root.join(file)).map_err(|e| format!("{rule}: {file}: {e}"))?;
        let function = format!("fn {name}(");
        let case = format!("\"{name}\"");
        if !text.contains(&function) && !text.contains(&case) {
            return Err(format!("{rule}: {file} has no test {name}"));
        }
    }
    Ok(number)
}

#[test]
fn every_rule_has_a_test_or_a_reason() {
    let root = repository();
    let table = std::fs::read_to_string(root.join("tests/field-faults.tsv")).expect("the table");
    let mut seen = BTreeSet::new();
    let mut wrong = Vec::new();
    for row in table
        .lines()
        .filter(|l| !l.starts_with('#') && !l.is_empty())
    {
        match check_row(row, &root) {
            Ok(rule) if seen.insert(rule) => {}
            Ok(rule) => wrong.push(format!("B{rule:02} stands twice")),
            Err(message) => wrong.push(message),
        }
    }
    let missing: Vec<u32> = RULES.into_iter().filter(|r| !seen.contains(r)).collect();
    if !missing.is_empty() {
        wrong.push(format!("rules without a row: {missing:?}"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_check_can_fail() {
    let root = repository();
    let this = "tests/support/tests/field_faults.rs";
    for bad in [
        "B01\tWQE\tfault\t\t",
        "B01\tWQE\tfault",
        "B01\tWQE\tfault\tno/such/file.rs#x\t",
        &format!("B01\tWQE\tfault\t{this}#not_{}\t", "there"),
        "1\tWQE\tfault\t\treason",
    ] {
        assert!(check_row(bad, &root).is_err(), "{bad}");
    }
    let good = format!("B01\tWQE\tfault\t{this}#the_check_can_fail\t");
    assert_eq!(check_row(&good, &root), Ok(1));
}
