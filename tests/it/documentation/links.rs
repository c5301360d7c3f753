//! How long the README is, whether links have targets, and whether the headings that sources cite exist. Other modules
//! compare tables and examples of the pages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use strata_testing::pages::{ROOT, page};

use super::documents;

/// Most lines of the README.
const README_LINES: usize = 150;

/// The headings of every page, by the page's path below the root.
type Headings = BTreeMap<String, Vec<String>>;

/// All pages: the documents, and the others at the root.
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

/// The lines of a page that are no code, from 1.
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

/// The headings of a page, without marks of code in them.
fn headings(text: &str) -> Vec<String> {
    let heading =
        |line: &str| Some(line.strip_prefix('#')?.trim_start_matches('#').strip_prefix(' ')?.replace('`', ""));
    prose(text).into_iter().filter_map(|(_, line)| heading(line.trim_end())).collect()
}

/// What a link to a heading ends in.
fn anchor(heading: &str) -> String {
    let lower = heading.to_lowercase();
    let kept = lower.chars().filter(|character| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_'));
    kept.map(|character| if character == ' ' { '-' } else { character }).collect()
}

/// Where the links of a page lead, with their lines. Code holds none.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let line: String = line.split('`').step_by(2).collect();
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        links.extend(targets.map(|(target, _)| (number, target.to_owned())));
    }
    links
}

/// What is wrong with a link of the page at `path`, if anything. Links to other sites are not followed.
fn broken(path: &str, target: &str, headings: &Headings) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (file, wanted) = target.split_once('#').unwrap_or((target, ""));
    let file = if file.is_empty() { path.to_owned() } else { resolved(path, file) };
    if !Path::new(ROOT).join(&file).exists() {
        return Some(format!("there is no {file}"));
    }
    let found = || headings.get(&file).is_some_and(|headings| headings.iter().any(|heading| anchor(heading) == wanted));
    (!wanted.is_empty() && !found()).then(|| format!("{file} has no heading #{wanted}"))
}

/// The path below the root that a relative one stands for on the page at `path`.
fn resolved(path: &str, relative: &str) -> String {
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

/// The text of a source with its comments as running text, since a citation may go on in the next line.
fn running(text: &str) -> String {
    let uncommented = |line: &str| {
        let line = line.trim();
        line.strip_prefix("//").map_or(line, |comment| comment.trim_start_matches(['/', '!'])).trim().to_owned()
    };
    text.lines().map(uncommented).collect::<Vec<_>>().join(" ")
}

/// What a running text cites: the page, and the text that begins with the heading.
fn citations(running: &str) -> Vec<(String, &str)> {
    let cited = |rest: &str| rest.chars().take_while(|&c| c.is_ascii_alphanumeric() || matches!(c, '-' | '/')).count();
    let citations = running.split("docs/").skip(1).filter_map(|rest| {
        let (name, rest) = rest.split_at(cited(rest));
        let heading = rest.strip_prefix(".md, ")?;
        (!name.is_empty()).then(|| (format!("docs/{name}.md"), heading))
    });
    citations.collect()
}

/// Whether the text begins with one of the page's headings, as a whole.
fn is_heading(text: &str, headings: &[String]) -> bool {
    let ends = |rest: &str| !rest.starts_with(|character: char| character.is_alphanumeric() || character == '_');
    headings.iter().any(|heading| text.strip_prefix(heading.as_str()).is_some_and(ends))
}

/// The files below a directory that hold comments.
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
fn the_readme_is_short() {
    let lines = page("README.md").lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines; at most {README_LINES} may be there");
}

/// The commands of a page that write an answer to a file: the file, and the path and query of the URL.
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

/// The name that an answer gives to its file: `{name_slug}-v{N}.{format}`; what is typed gets a name beside it.
fn file_name(request: &str) -> Option<String> {
    let (path, query) = request.split_once('?')?;
    let parts: Vec<&str> = path.split('/').collect();
    let [_, slug, version, ""] = parts[..] else { return None };
    let format = query.split('&').find_map(|parameter| parameter.strip_prefix("format="))?;
    let typed = if query.split('&').any(|parameter| parameter == "typed=true") { "-typed" } else { "" };
    Some(format!("{slug}-{version}{typed}.{format}"))
}

#[test]
fn downloads_can_be_repeated_and_have_the_name_that_answers_give() {
    let mut found = 0;
    for (path, text) in pages() {
        // It refuses a file that exists, so the second run of such a command fails.
        assert!(!text.contains("curl -OJ"), "{path}");
        // Without -f an error's text becomes the file, and the command succeeds.
        assert!(!text.contains("curl -o "), "{path}");
        for (file, request) in downloads(&text) {
            found += 1;
            assert_eq!(Some(&file), file_name(&request).as_ref(), "{path}: {request}");
        }
    }
    assert!(found >= 4, "only {found} were found");
}

#[test]
fn no_page_has_two_headings_of_one_anchor() {
    for (path, headings) in headings_of(&pages()) {
        let anchors: BTreeSet<String> = headings.iter().map(|heading| anchor(heading)).collect();
        assert_eq!(anchors.len(), headings.len(), "{path}: {headings:?}");
    }
}

#[test]
fn every_link_leads_to_a_file_and_a_heading_that_exist() {
    let pages = pages();
    let headings = headings_of(&pages);
    let (mut followed, mut wrong) = (0, Vec::new());
    for (path, text) in &pages {
        for (line, target) in links(text) {
            followed += 1;
            wrong.extend(broken(path, &target, &headings).map(|problem| format!("{path}:{line}: {target}: {problem}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(followed >= 50, "only {followed} links were followed: has the form of the pages changed?");
}

#[test]
fn every_heading_that_is_cited_exists() {
    let headings = headings_of(&pages());
    let mut files = Vec::new();
    for folder in ["src", "tests", "benches"] {
        sources(&Path::new(ROOT).join(folder), &mut files);
    }
    let (mut found, mut wrong) = (0, Vec::new());
    for file in files {
        let text = running(&fs::read_to_string(&file).expect("UTF-8"));
        for (path, heading) in citations(&text) {
            found += 1;
            if !headings.get(&path).is_some_and(|headings| is_heading(heading, headings)) {
                let cited: String = heading.chars().take(40).collect();
                wrong.push(format!("{}: {path} has no heading that {cited:?} begins with", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(found >= 60, "only {found} citations were found: has their form changed?");
}

#[test]
fn what_does_not_exist_is_found() {
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
        assert_eq!(broken("docs/index.md", target, &headings).as_deref(), problem, "{target}");
    }

    // Put together, so that they are no citations of this file.
    let source = ["/// Rules (docs", "/index.md, A\n    /// page; docs", "/none.md), docs", "/x-y.md, keep."].concat();
    let source = running(&source);
    let cited = citations(&source);
    let pages: Vec<&str> = cited.iter().map(|(page, _)| page.as_str()).collect();
    assert_eq!(pages, [["docs", "/index.md"].concat(), ["docs", "/x-y.md"].concat()]);
    assert!(is_heading(cited[0].1, &headings["docs/index.md"]), "{cited:?}");
    for text in ["A pageant", "A page_", "a page", "A pag"] {
        assert!(!is_heading(text, &headings["docs/index.md"]), "{text}");
    }
}
