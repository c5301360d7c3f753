//! URL forms of dataset names.

/// Returns the URL form of a name: lowercase, with one `-` for each run of characters that are not alphanumeric
/// (Unicode), and none at the ends. Returns `None` if nothing is left (docs/reference/management.md, Names and slugs).
///
/// The name is lowercased first: `İ` becomes `i` and a combining dot, which is not alphanumeric.
pub fn slugify(name: &str) -> Option<String> {
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
