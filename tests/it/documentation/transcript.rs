//! Console blocks: commands with their expected output, such as:
//!
//! ````text
//! ```console
//! $ curl -s http://127.0.0.1:8080/healthz
//! ok
//! ```
//! ````
//!
//! A line that begins with `$ ` is a command, and `> ` continues the command. The following lines are its output,
//! including standard error. In the output, `[..]` matches any characters, and a line `...` matches any number of
//! lines.

const ANY_CHARACTERS: &str = "[..]";
const ANY_LINES: &str = "...";

#[derive(Debug, Default, PartialEq)]
pub struct Step {
    pub command: String,
    pub output: Vec<String>,
}

/// Parses the steps of all console blocks of a page, in order.
pub fn steps(page: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut fence: Option<&str> = None;
    for line in page.lines() {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            fence = if fence.is_none() { Some(language) } else { None };
        } else if fence == Some("console") {
            if let Some(command) = line.strip_prefix("$ ") {
                steps.push(Step { command: command.to_owned(), output: Vec::new() });
                continue;
            }
            let step = steps.last_mut().expect("a console block begins with a command");
            match line.strip_prefix("> ") {
                Some(more) if step.output.is_empty() => step.command = format!("{}\n{more}", step.command),
                _ => step.output.push(line.to_owned()),
            }
        }
    }
    steps
}

/// Returns whether the output matches. Empty lines at the end are ignored.
pub fn matches(expected: &[String], output: &str) -> bool {
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let expected = expected.join("\n");
    let expected: Vec<&str> = expected.trim_end().lines().collect();
    let output: Vec<&str> = output.trim_end().lines().collect();
    lines_match(&expected, &output)
}

fn lines_match(expected: &[&str], output: &[&str]) -> bool {
    match expected.split_first() {
        None => output.is_empty(),
        Some((&ANY_LINES, rest)) => (0..=output.len()).any(|skipped_rows| lines_match(rest, &output[skipped_rows..])),
        Some((line, rest)) => {
            output.split_first().is_some_and(|(first, others)| line_matches(line, first) && lines_match(rest, others))
        }
    }
}

fn line_matches(expected: &str, line: &str) -> bool {
    let Some((start, rest)) = expected.split_once(ANY_CHARACTERS) else { return expected == line };
    let Some(line) = line.strip_prefix(start) else { return false };
    let starts = line.char_indices().map(|(at, _)| at).chain([line.len()]);
    starts.into_iter().any(|at| line_matches(rest, &line[at..]))
}

#[test]
fn steps_are_read_in_order() {
    let page = "```sh\n$ not this\n```\n\n```console\n$ one\n1\n$ two \\\n> more\n\n> output\n```\ntext\n```console\n$ three\n```\n";
    let step = |command: &str, output: &[&str]| Step {
        command: command.to_owned(),
        output: output.iter().map(|line| (*line).to_owned()).collect(),
    };
    assert_eq!(steps(page), [step("one", &["1"]), step("two \\\nmore", &["", "> output"]), step("three", &[])]);
}

#[test]
fn wildcards_match_characters_and_lines() {
    let matching = |expected: &str, output: &str| {
        let lines: Vec<String> = expected.lines().map(str::to_owned).collect();
        matches(&lines, output)
    };
    assert!(matching("a\nb", "a\nb\n") && matching("", "\n"));
    assert!(!matching("a", "a\nb") && !matching("a\nb", "a") && !matching("a", "ab"));
    assert!(matching("v[..] of [..]", "v3 of 7") && matching("[..]x", "axbx") && !matching("[..]x", "xé"));
    assert!(matching("a\n...\nd", "a\nb\nc\nd") && matching("...", "") && !matching("a\n...\nd", "a\nb"));
}
