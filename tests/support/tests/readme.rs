//! README shows what is in the repository, not what once was.

use std::path::Path;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).expect(path)
}

#[test]
fn the_example_is_the_one_that_compiles() {
    let readme = read("README.md");
    let example = read("driver/examples/hello.rs");
    let code: String = example
        .lines()
        .filter(|line| !line.starts_with("//!"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert!(
        readme.contains(code.trim()),
        "README.md and driver/examples/hello.rs differ"
    );
    let lines = code.trim().lines().count();
    assert!(lines <= 25, "{lines} lines");
}
