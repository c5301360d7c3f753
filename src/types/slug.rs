//! The form of a dataset's name in its URL.

/// The URL form of a name: lower case, every run of characters that are not alphanumeric (Unicode) one
/// `-`, none at the ends; `None` when nothing is left (docs/reference/management.md, Names and slugs).
///
/// Lower case comes first, so the test sees the lowered characters: `İ` becomes `i` and a combining dot, which is not
/// alphanumeric.
pub fn name_slug(name: &str) -> Option<String> {
    let mut slug = String::with_capacity(name.len());
    for character in name.to_lowercase().chars() {
        if character.is_alphanumeric() {
            slug.push(character);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    if slug.ends_with('-') {
        slug.pop();
    }
    (!slug.is_empty()).then_some(slug)
}
