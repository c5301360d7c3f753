//! Email addresses.

use strata_types::user::normalize_email;

#[test]
fn email_addresses_ignore_case() {
    assert_eq!(normalize_email(" Ada@Example.TEST\n"), "ada@example.test");
    assert_eq!(normalize_email("ÄRA@b.test"), normalize_email("ära@B.test"));
}
