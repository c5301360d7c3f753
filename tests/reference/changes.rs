//! Changes between versions (docs/reference/changes.md): applies edits one by one, and finds the fewest edits.

use crate::Value;

/// The maximum number of entities in an insert.
const MAX_INSERT_ENTITIES: usize = 1_000;

/// Applies the lines of a script, without its last line, to a list. Fails if a line is not a valid edit, or if the
/// order of the lines is wrong.
pub fn apply_edits(old: &[Value], lines: &[&str]) -> Result<Vec<Value>, String> {
    let mut new = Vec::new();
    let mut next = 0;
    let mut is_changed = false;
    for line in lines {
        let edit = Value::parse(line).map_err(|error| format!("{line}: {error:?}"))?;
        let Value::Object(members) = edit else { return Err(format!("{line}: not an object")) };
        let [(position_name, Value::Number(position)), (kind, value)] = &members[..] else {
            return Err(format!("{line}: wrong members"));
        };
        let position: usize = position.parse().map_err(|_| format!("{line}: wrong position"))?;
        if position_name != "position" || position + 1 < next || (position + 1 == next && is_changed) {
            return Err(format!("{line}: wrong order"));
        }
        if position >= next {
            new.extend_from_slice(old.get(next..position).ok_or_else(|| format!("{line}: beyond the list"))?);
            next = position;
        }
        is_changed = kind != "insert";
        match (kind.as_str(), value) {
            ("insert", Value::Array(entities)) if (1..=MAX_INSERT_ENTITIES).contains(&entities.len()) => {
                new.extend_from_slice(entities);
            }
            ("set", entity @ Value::Object(_)) => new.push(entity.clone()),
            ("remove", Value::Bool(true)) => {}
            _ => return Err(format!("{line}: wrong edit")),
        }
        if is_changed {
            if position >= old.len() {
                return Err(format!("{line}: beyond the list"));
            }
            next = position + 1;
        }
    }
    new.extend_from_slice(old.get(next..).ok_or("a position is beyond the list")?);
    Ok(new)
}

/// Returns the largest number of entities that can stay unchanged and in order, compared by their text.
pub fn unchanged_count(old: &[Value], new: &[Value]) -> usize {
    let [old, new] = [old, new].map(|list| list.iter().map(Value::write).collect::<Vec<_>>());
    let mut counts = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in 0..old.len() {
        for j in 0..new.len() {
            counts[i + 1][j + 1] = match old[i] == new[j] {
                true => counts[i][j] + 1,
                false => counts[i][j + 1].max(counts[i + 1][j]),
            };
        }
    }
    counts[old.len()][new.len()]
}
