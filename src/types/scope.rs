//! What an API token allows.

/// What the calls with an API token may do. A session may do everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Calls that change nothing. What opens a dataset to others, its key and its ping URL, is not shown.
    Read,
    #[default]
    Write,
}

impl Scope {
    /// Whether a credential of this scope allows what needs the other one.
    pub fn allows(self, needed: Scope) -> bool {
        self == Scope::Write || needed == Scope::Read
    }
}

names!(Scope { Read = "read", Write = "write" }, UnknownScope, "{0:?} is not a scope; valid: read, write");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_parses_as_its_name() {
        for scope in Scope::ALL {
            assert_eq!(scope.name().parse(), Ok(scope));
        }
        for text in ["", "Read", "write ", "admin"] {
            assert_eq!(text.parse::<Scope>(), Err(UnknownScope(text.to_owned())));
        }
    }

    #[test]
    fn only_what_changes_something_needs_more_than_reading() {
        let allowed = |scope: Scope| Scope::ALL.map(|needed| scope.allows(needed));
        assert_eq!(Scope::ALL.map(allowed), [[true, false], [true, true]]);
    }
}
