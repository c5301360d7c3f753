//! Tables as fixed-width text.

/// Formats rows below their headings and a rule. Each column is as wide as its widest cell; the first column is
/// left-aligned and the others are right-aligned.
pub fn aligned<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut lines = vec![headings.map(str::to_owned)];
    lines.extend(rows);
    let width = |column: usize| lines.iter().map(|cells| cells[column].chars().count()).max().unwrap_or_default();
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for (number, cells) in lines.iter().enumerate() {
        let mut line = String::new();
        for (column, (cell, width)) in cells.iter().zip(widths).enumerate() {
            line.push_str(&if column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") });
        }
        text.push_str(line.trim_end());
        text.push('\n');
        if number == 0 {
            text.push_str(&"-".repeat(widths.iter().sum::<usize>() + 2 * (N - 1)));
            text.push('\n');
        }
    }
    text
}
