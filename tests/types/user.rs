//! Email addresses.

use strata_types::user::email_key;

#[test]
fn addresses_that_differ_in_case_have_one_key() {
    assert_eq!(email_key(" Ada@Example.TEST\n"), "ada@example.test");
    assert_eq!(email_key("ÄRA@b.test"), email_key("ära@B.test"));
}
