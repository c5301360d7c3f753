//! Paths (docs/reference/paths-and-values.md, Paths).

/// A character of a path: an operator or a literal.
#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Plain(char),
    Literal(char),
}

fn signs(text: &str) -> Vec<Sign> {
    let characters: Vec<char> = text.chars().collect();
    let mut signs = Vec::new();
    let mut at = 0;
    while at < characters.len() {
        match (characters[at], characters.get(at + 1)) {
            ('\\', Some(next)) if ".,:\\ \t".contains(*next) => {
                signs.push(Sign::Literal(*next));
                at += 2;
            }
            (character, _) => {
                signs.push(Sign::Plain(character));
                at += 1;
            }
        }
    }
    signs
}

fn keys(signs: &[Sign]) -> Option<Vec<String>> {
    let keys = signs.split(|sign| *sign == Sign::Plain('.'));
    let key = |signs: &[Sign]| {
        signs
            .iter()
            .map(|sign| match sign {
                Sign::Plain(it) | Sign::Literal(it) => *it,
            })
            .collect()
    };
    let keys: Vec<String> = keys.map(key).collect();
    (keys != [""]).then_some(keys)
}

/// Returns the keys of a path; `None` if the path is empty or invalid.
pub fn parse(text: &str) -> Option<Vec<String>> {
    keys(&signs(text))
}

/// Returns the paths of a list.
pub fn parse_list(text: &str) -> Vec<Vec<String>> {
    let signs = signs(text);
    let items = signs.split(|sign| *sign == Sign::Plain(','));
    let blank = |sign: &Sign| matches!(sign, Sign::Plain(' ' | '\t'));
    items
        .filter_map(|item| {
            let start = item.iter().position(|sign| !blank(sign))?;
            let end = item.iter().rposition(|sign| !blank(sign))?;
            keys(&item[start..=end])
        })
        .collect()
}

/// Returns the path before the first unescaped colon, and the rest.
pub fn parse_prefix(text: &str) -> Option<(Vec<String>, &str)> {
    let signs = signs(text);
    let colon = signs.iter().position(|sign| *sign == Sign::Plain(':'))?;
    let spelled = |sign: &Sign| match sign {
        Sign::Plain(it) => it.len_utf8(),
        Sign::Literal(it) => 1 + it.len_utf8(),
    };
    let length: usize = signs[..colon].iter().map(spelled).sum();
    Some((keys(&signs[..colon])?, &text[length + 1..]))
}
