//! What must not compile: operations that a service type does not have, and datagrams without a destination.

#[test]
fn wrong_operations_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/compile_fail/right.rs");
    cases.compile_fail("tests/compile_fail/datagram_*.rs");
    cases.compile_fail("tests/compile_fail/uc_*.rs");
    cases.compile_fail("tests/compile_fail/safe_*.rs");
}
