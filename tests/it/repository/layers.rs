//! The layer rule: modules use each other in one direction only. A workspace of crates would enforce it; here
//! the paths in the source files are read.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules of the library, from the outermost inwards. A module may use those of later rows; neither an
/// earlier row nor a neighbour in its own.
const LAYERS: [&[&str]; 8] = [
    &["cli"],
    &["dashboard"],
    &["http", "jobs"],
    &["service"],
    // Matching two versions runs on the query engine.
    &["diff", "cluster"],
    &["query", "encode", "source", "webhook", "catalog"],
    &["storage", "net"],
    &["config", "metrics", "crash", "memory", "priority", "blocking"],
];

/// Crates of their own: Cargo checks their uses.
pub const CRATES: [&str; 2] = ["json", "types"];

fn row(module: &str) -> Option<usize> {
    LAYERS.iter().position(|row| row.contains(&module))
}

/// What is wrong in one file, given its path below `src/`: one message per use.
fn violations(file: &str, text: &str) -> Vec<String> {
    if file == "lib.rs" {
        return Vec::new();
    }
    let parts: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
    if CRATES.contains(&parts[0]) {
        return Vec::new();
    }
    let Some(from) = row(parts[0]) else {
        return match parts[0] {
            "main" => main_violations(text),
            module => {
                vec![format!("src/{file}: `{module}` stands in no row of LAYERS in tests/it/repository/layers.rs")]
            }
        };
    };
    let depth = if parts.last() == Some(&"mod") { parts.len() - 1 } else { parts.len() };
    let code = without_comments(text);
    let mut uses = paths_after(&code, "crate::");
    uses.extend(paths_after(&code, &"super::".repeat(depth)));
    uses.sort_unstable();
    let wrong = uses.into_iter().filter(|(_, module)| *module != parts[0] && row(module).is_some_and(|to| to <= from));
    wrong.map(|(line, module)| format!("src/{file}:{line}: `{}` must not use `{module}`", parts[0])).collect()
}

/// The binary holds no logic: it has no modules, and uses the library from outside.
fn main_violations(text: &str) -> Vec<String> {
    let code = without_comments(text);
    let lines = code.lines().enumerate();
    let wrong = lines.filter(|(_, line)| line.contains("crate::") || line.trim_start().starts_with("mod "));
    wrong.map(|(index, _)| format!("src/main.rs:{}: the binary only uses the library", index + 1)).collect()
}

/// The text with line comments blanked; offsets of lines stay.
pub fn without_comments(text: &str) -> String {
    let code = |line: &str| {
        let comment = line.match_indices("//").find(|(at, _)| line[..*at].matches('"').count().is_multiple_of(2));
        comment.map_or(line.to_owned(), |(at, _)| line[..at].to_owned())
    };
    text.lines().map(|line| code(line) + "\n").collect()
}

/// The first names after each `prefix`, inside braces too, with their lines from 1.
pub fn paths_after<'a>(code: &'a str, prefix: &str) -> Vec<(usize, &'a str)> {
    let mut names = Vec::new();
    for (at, _) in code.match_indices(prefix) {
        // `super::` inside `super::super::` is found once, at its start; `mycrate::` is another name.
        let before = code[..at].chars().next_back();
        if before.is_some_and(|character| character.is_alphanumeric() || matches!(character, '_' | ':')) {
            continue;
        }
        let start = at + prefix.len();
        let mut starts = vec![start];
        if code[start..].starts_with('{') {
            starts = group_items(code, start);
        }
        names.extend(starts.into_iter().filter_map(|start| {
            let item = code[start..].trim_start();
            let start = code.len() - item.len();
            let end = item.find(|character: char| !character.is_alphanumeric() && character != '_')?;
            (end > 0).then(|| (code[..start].matches('\n').count() + 1, &item[..end]))
        }));
    }
    names
}

/// Where the items of a `{…}` group start, those of groups within it left out.
fn group_items(code: &str, open: usize) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut depth = 0;
    for (at, character) in code[open..].char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            break;
        }
        if depth == 1 && matches!(character, '{' | ',') {
            starts.push(open + at + 1);
        }
    }
    starts
}

pub fn source_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            source_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The formatter leaves comments as they are.
#[test]
fn comments_are_as_short_as_code() {
    let mut files = Vec::new();
    for folder in ["src", "tests", "benches"] {
        source_files(&Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    }
    let mut long = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        for (index, line) in text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//") && !line.contains("://") && !line.contains(" | ");
            if is_comment && line.chars().count() > 120 {
                long.push(format!("{}:{}", file.display(), index + 1));
            }
        }
    }
    assert!(long.is_empty(), "longer than 120 characters: {long:#?}");
}

#[test]
fn modules_use_each_other_in_one_direction_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    source_files(&root, &mut files);
    files.sort();
    assert!(files.len() > 50, "the source files are found: {files:?}");
    let mut wrong = Vec::new();
    for path in files {
        let file = path.strip_prefix(&root).expect("a path below src").to_string_lossy().replace('\\', "/");
        wrong.extend(violations(&file, &fs::read_to_string(&path).expect("UTF-8")));
    }
    assert!(wrong.is_empty(), "the layer rule (lib.rs) is broken:\n{}", wrong.join("\n"));
}

#[test]
fn a_use_against_the_direction_is_caught() {
    let check =
        |file: &str, text: &str, expected: &[&str]| assert_eq!(violations(file, text), expected, "{file}: {text}");
    check(
        "storage/scan.rs",
        "use std::fmt;\nuse crate::query::Engine;\n",
        &["src/storage/scan.rs:2: `storage` must not use `query`"],
    );
    check(
        "query/mod.rs",
        "use crate::{\n    storage::{ids::DatasetId, path},\n    http::{encode, params},\n};\n",
        &["src/query/mod.rs:3: `query` must not use `http`"],
    );
    check(
        "query/plan.rs",
        "fn f() -> crate::encode::Body { crate::service::g() }\n",
        &["src/query/plan.rs:1: `query` must not use `encode`", "src/query/plan.rs:1: `query` must not use `service`"],
    );
    check(
        "storage/writer.rs",
        "use super::super::catalog::{self};\n",
        &["src/storage/writer.rs:1: `storage` must not use `catalog`"],
    );
    check("config/mod.rs", "use super::http;", &["src/config/mod.rs:1: `config` must not use `http`"]);
    check("config/ids.rs", "use crate::net::Guard;\n", &["src/config/ids.rs:1: `config` must not use `net`"]);
    check("metrics.rs", "use super::cli;\n", &["src/metrics.rs:1: `metrics` must not use `cli`"]);
    check(
        "helpers/mod.rs",
        "",
        &["src/helpers/mod.rs: `helpers` stands in no row of LAYERS in tests/it/repository/layers.rs"],
    );
    check(
        "main.rs",
        "mod http;\nuse crate::http::serve;\n",
        &["src/main.rs:1: the binary only uses the library", "src/main.rs:2: the binary only uses the library"],
    );

    check("service/read.rs", "use crate::{catalog::Catalog, query, service::App, config};\n", &[]);
    check("cli/serve.rs", "use crate::http::serve;\nuse super::print;\n", &[]);
    check("diff/mod.rs", "use crate::query::Engine;\n", &[]);
    check("query/mod.rs", "// not crate::http\n/// [`crate::service`]\nuse self::cache;\nuse mycrate::http;\n", &[]);
    check("query/path.rs", "mod tests {\n    use super::*;\n    use super::super::fold;\n}\n", &[]);
    check("main.rs", "//! Uses crate::nothing.\nuse strata::cli;\n", &[]);
}
