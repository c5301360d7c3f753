//! The length of the README, the targets of links, and the headings that comments cite. Other modules compare the
//! tables and examples of the pages with the code.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use strata_testing::pages::{ROOT, page};

use super::documents;

const MAX_README_LINES: usize = 150;

/// The headings of every page by its path.
type Headings = BTreeMap<String, Vec<String>>;

/// Returns all pages: the documentation, and the other Markdown files in the root directory.
fn pages() -> BTreeMap<String, String> {
    let mut pages = documents();
    for entry in fs::read_dir(ROOT).expect("a directory") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        if name.ends_with(".md") {
            pages.insert(name.clone(), page(&name));
        }
    }
    pages
}

fn headings_of(pages: &BTreeMap<String, String>) -> Headings {
    pages.iter().map(|(path, text)| (path.clone(), headings(text))).collect()
}

/// Returns the lines outside code blocks with their numbers from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut code = false;
    let mut lines = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            code = !code;
        } else if !code {
            lines.push((index + 1, line));
        }
    }
    lines
}

/// Returns the headings of a page without backticks.
fn headings(text: &str) -> Vec<String> {
    let heading =
        |line: &str| Some(line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?.replace('`', ""));
    prose(text).into_iter().filter_map(|(_, line)| heading(line.trim_end())).collect()
}

/// Returns the anchor of a heading, as GitHub creates it.
fn anchor(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower.chars().filter(|character| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_'));
    kept.map(|character| if character == ' ' { '-' } else { character }).collect()
}

/// Returns the link targets of a page with their line numbers. Links in code do not count.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let line: String = line.split('`').step_by(2).collect();
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        links.extend(targets.map(|(target, _)| (number, target.to_owned())));
    }
    links
}

/// Returns the problem with a link on the page at `path`, if any. External links are not checked.
fn link_problem(path: &str, target: &str, headings: &Headings) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (file, wanted) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { path.to_owned() } else { resolve_path(path, file) };
    if !Path::new(ROOT).join(&file).exists() {
        return Some(format!("there is no {file}"));
    }
    let found = || headings.get(&file).is_some_and(|headings| headings.iter().any(|heading| anchor(heading) == wanted));
    (!wanted.is_empty() && !found()).then(|| format!("{file} has no heading #{wanted}"))
}

/// Resolves a path relative to the page at `path`.
fn resolve_path(path: &str, relative: &str) -> String {
    let mut parts: Vec<&str> = path.split('/').collect();
    parts.pop();
    for part in relative.split('/') {
        match part {
            ".." => {
                parts.pop();
            }
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// Joins the lines of a source file without comment markers, because a citation can span lines.
fn running_text(text: &str) -> String {
    let uncommented = |line: &str| {
        let line = line.trim();
        line.strip_prefix("//").map_or(line, |comment| comment.trim_start_matches(['/', '!'])).trim().to_owned()
    };
    text.lines().map(uncommented).collect::<Vec<_>>().join(" ")
}

/// Returns the cited pages, each with the text that begins with the cited heading.
fn citations(running: &str) -> Vec<(String, &str)> {
    let cited = |rest: &str| rest.chars().take_while(|&c| c.is_ascii_alphanumeric() || matches!(c, '-' | '/')).count();
    let citations = running.split("docs/").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_at(cited(rest));
        let heading = rest.strip_prefix(".md, ")?;
        (!name.is_empty()).then(|| (format!("docs/{name}.md"), heading))
    });
    citations.collect()
}

/// Returns whether the text begins with one of the headings, followed by a word boundary.
fn is_heading(text: &str, headings: &[String]) -> bool {
    let ends = |rest: &str| !rest.starts_with(|character: char| character.is_alphanumeric() || character == '_');
    headings.iter().any(|heading| text.strip_prefix(heading.as_str()).is_some_and(ends))
}

/// Collects the Rust and Python files below a directory.
fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs" || extension == "py") {
            found.push(path);
        }
    }
}

#[test]
fn readme_is_short() {
    let lines = page("README.md").lines().count();
    assert!(lines <= MAX_README_LINES, "README.md has {lines} lines, more than {MAX_README_LINES}");
}

/// Returns the commands of a page that download a response: the file name, and the path and query of the URL.
fn downloads(text: &str) -> Vec<(String, String)> {
    let found = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("fo ").filter(|(before, _)| before.contains("curl -"))?;
        let (file, rest) = rest.split_once(' ')?;
        let (_, rest) = rest.split_once("http://127.0.0.1:8080/api/")?;
        let request = rest.split(['\'', '"']).next()?;
        Some((file.to_owned(), request.to_owned()))
    });
    found.collect()
}

/// Returns the file name that the response suggests: `{name_slug}-v{N}.{format}`, with `-typed` for typed Parquet.
fn file_name(request: &str) -> Option<String> {
    let (path, query) = request.split_once('?')?;
    let parts: Vec<&str> = path.split('/').collect();
    let [_, slug, version, ""] = parts[..] else { return None };
    let format = query.split('&').find_map(|parameter| parameter.strip_prefix("format="))?;
    let typed = if query.split('&').any(|parameter| parameter == "typed=true") { "-typed" } else { "" };
    Some(format!("{slug}-{version}{typed}.{format}"))
}

#[test]
fn download_commands_use_names_of_responses() {
    let mut found = 0;
    for (path, text) in pages() {
        // The option -OJ does not overwrite files, so the second run would fail.
        assert!(!text.contains("curl -OJ"), "{path}");
        // Without -f, curl would write the text of an error to the file and succeed.
        assert!(!text.contains("curl -o "), "{path}");
        for (file, request) in downloads(&text) {
            found += 1;
            assert_eq!(Some(&file), file_name(&request).as_ref(), "{path}: {request}");
        }
    }
    assert!(found >= 4, "found only {found} download commands");
}

#[test]
fn heading_anchors_are_unique() {
    for (path, headings) in headings_of(&pages()) {
        let anchors: BTreeSet<String> = headings.iter().map(|heading| anchor(heading)).collect();
        assert_eq!(anchors.len(), headings.len(), "{path}: {headings:?}");
    }
}

#[test]
fn every_link_target_exists() {
    let pages = pages();
    let headings = headings_of(&pages);
    let mut followed = 0;
    let mut wrong = Vec::new();
    for (path, text) in &pages {
        for (line, target) in links(text) {
            followed += 1;
            wrong.extend(
                link_problem(path, &target, &headings).map(|problem| format!("{path}:{line}: {target}: {problem}")),
            );
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(followed >= 50, "found only {followed} links: has the format of the pages changed?");
}

#[test]
fn every_cited_heading_exists() {
    let headings = headings_of(&pages());
    let mut files = Vec::new();
    for folder in ["src", "tests", "benches"] {
        sources(&Path::new(ROOT).join(folder), &mut files);
    }
    let mut found = 0;
    let mut wrong = Vec::new();
    for file in files {
        let text = running_text(&fs::read_to_string(&file).expect("UTF-8"));
        for (path, heading) in citations(&text) {
            found += 1;
            if !headings.get(&path).is_some_and(|headings| is_heading(heading, headings)) {
                let cited: String = heading.chars().take(40).collect();
                wrong.push(format!("{}: {path} has no heading that {cited:?} begins with", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found >= 60, "found only {found} citations: has their format changed?");
}

#[test]
fn missing_targets_are_found() {
    let page = "# A page\n\n## `keep` and drop_field, or none\n\n```sh\n# no heading\n```\n\nSee [that](other.md#x), \
                [here](#a-page) and `[code](none.md)`.\n";
    assert_eq!(headings(page), ["A page", "keep and drop_field, or none"]);
    assert_eq!(anchor("keep and drop_field, or none"), "keep-and-drop_field-or-none");
    assert_eq!(links(page), [(9, "other.md#x".to_owned()), (9, "#a-page".to_owned())]);
    let headings = Headings::from([("docs/index.md".to_owned(), headings(page))]);
    for (target, problem) in [
        ("https://example.test/#none", None),
        ("index.md", None),
        ("#a-page", None),
        ("../docs/index.md#a-page", None),
        ("../README.md", None),
        ("none.md", Some("there is no docs/none.md")),
        ("#a-pag", Some("docs/index.md has no heading #a-pag")),
        ("../README.md#a-page", Some("README.md has no heading #a-page")),
    ] {
        assert_eq!(link_problem("docs/index.md", target, &headings).as_deref(), problem, "{target}");
    }

    // Split, so that this file does not contain the citations.
    let source = ["/// Rules (docs", "/index.md, A\n    /// page; docs", "/none.md), docs", "/x-y.md, keep."].concat();
    let source = running_text(&source);
    let cited = citations(&source);
    let pages: Vec<&str> = cited.iter().map(|(page, _)| page.as_str()).collect();
    assert_eq!(pages, [["docs", "/index.md"].concat(), ["docs", "/x-y.md"].concat()]);
    assert!(is_heading(cited[0].1, &headings["docs/index.md"]), "{cited:?}");
    for text in ["A pageant", "A page_", "a page", "A pag"] {
        assert!(!is_heading(text, &headings["docs/index.md"]), "{text}");
    }
}
