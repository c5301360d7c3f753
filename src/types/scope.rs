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
