//! What must not compile: operations that a service type does not have, and datagrams without a destination.

#[test]
fn wrong_operations_do_not_compile() {
    let cases = trybuild::TestCases::new();
    cases.pass("cases/right.rs");
    cases.compile_fail("cases/datagram_*.rs");
    cases.compile_fail("cases/uc_*.rs");
    cases.compile_fail("cases/safe_*.rs");
}
