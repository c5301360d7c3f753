//! Scopes of API tokens.

/// The calls that a credential allows. A session allows all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TokenScope {
    /// The scope of calls that change nothing. Responses omit private keys and ping URLs, which would give access.
    Read,
    #[default]
    Write,
}

impl TokenScope {
    pub fn can_access(self, needed: TokenScope) -> bool {
        self == TokenScope::Write || needed == TokenScope::Read
    }
}

names!(TokenScope { Read = "read", Write = "write" }, UnknownScope, "{0:?} is not a scope; valid: read, write");
