//! The path of a read (docs/reference/query-semantics.md, Path of a read).

/// Returns the dataset, the slug, the version (a number without `v`), and true for an alternate; `None` if the path is
/// invalid.
pub fn parse(path: &str) -> Option<(u64, String, String, bool)> {
    let mut parts: Vec<&str> = path.split('/').collect();
    if parts.len() > 3 && parts.last() == Some(&"") {
        parts.pop();
    }
    let alt = match parts.as_slice() {
        ["", "api", _, _, _] => false,
        ["", "api", _, _, _, "alt"] => true,
        _ => return None,
    };
    let version = match parts[4] {
        "active" | "latest" => parts[4].to_owned(),
        version => number(version.strip_prefix('v')?)?.to_string(),
    };
    let dataset = number(parts[2]).filter(|number| *number > 0)?;
    Some((dataset, slug(parts[3])?, version, alt))
}

/// Parses decimal digits without leading zeros. Numbers that are too large become the maximum.
fn number(text: &str) -> Option<u64> {
    let well_formed = text == "0" || (!text.is_empty() && !text.starts_with('0'));
    let mut number = 0_u64;
    for byte in text.bytes() {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number.saturating_mul(10).saturating_add(u64::from(byte - b'0'));
    }
    well_formed.then_some(number)
}

fn slug(text: &str) -> Option<String> {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digit = |at: usize| char::from(*after.get(at)?).to_digit(16);
            out.push((digit(0)? * 16 + digit(1)?) as u8);
            rest = &after[2..];
        } else {
            out.push(*first);
            rest = after;
        }
    }
    (!text.is_empty()).then(|| String::from_utf8(out).ok())?
}
