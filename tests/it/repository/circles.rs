//! Inside of a layer the rule is weaker: its rooms (its files and folders) may use each other, but not in a circle.
//! Whoever reads one then needs those below it, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::layers::{CRATES, paths_after, source_files, without_comments};

/// Layers and folders whose rooms are looked at.
const LAYERS: [&str; 41] = [
    "catalog",
    "cluster/distributed",
    "dashboard",
    "dashboard/browse",
    "diff",
    "encode",
    "http",
    "http/description",
    "http/error",
    "http/headers",
    "http/layers",
    "http/management",
    "http/mcp",
    "http/openapi",
    "http/params",
    "http/read",
    "http/server",
    "json",
    "query",
    "query/fetch",
    "query/plan",
    "query/scan",
    "service",
    "service/account",
    "service/admission",
    "service/dataset",
    "service/explain",
    "service/export_cache",
    "service/lookup",
    "service/maintenance",
    "service/read",
    "service/refresh",
    "source",
    "source/parquet",
    "storage",
    "storage/disk_cache",
    "storage/keywords",
    "storage/profile",
    "storage/reader",
    "storage/shapes",
    "types",
];

/// Circles that there are still, by their layer: the names of their rooms in alphabetical order. None may be added.
const KNOWN: &[(&str, &[&str])] = &[];

/// What each room of a layer uses of its neighbours: where it does so first.
type Uses = BTreeMap<(String, String), String>;

/// What the rooms of a layer use of each other, given the layer's own module and all its files with their paths below
/// it.
fn uses(layer: &str, module: &str, files: &[(String, String)]) -> Uses {
    let exported = exported(module);
    let absolute = match CRATES.contains(&layer) {
        true => "crate::".to_owned(),
        false => format!("crate::{}::", layer.replace('/', "::")),
    };
    let mut uses = Uses::new();
    for (file, text) in files {
        let parts: Vec<&str> = file.trim_end_matches(".rs").split('/').collect();
        if parts == ["mod"] || parts == ["lib"] {
            continue;
        }
        let depth = if parts.last() == Some(&"mod") { parts.len() - 1 } else { parts.len() };
        // What a test uses makes nobody read more.
        let code = without_comments(text);
        let code = code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let mut names = paths_after(code, &absolute);
        names.extend(paths_after(code, &"super::".repeat(depth)));
        for (line, name) in names {
            let to = exported.get(name).map_or(name, String::as_str);
            let is_room = files
                .iter()
                .any(|(file, _)| file.strip_prefix(to).is_some_and(|rest| rest.starts_with('/') || rest == ".rs"));
            if is_room && to != parts[0] {
                let place = format!("{layer}/{file}:{line}");
                uses.entry((parts[0].to_owned(), to.to_owned())).or_insert(place);
            }
        }
    }
    uses
}

/// The names that a module offers of its rooms (`pub use room::Name`), and the room of each.
fn exported(module: &str) -> BTreeMap<&str, String> {
    let mut names = BTreeMap::new();
    for statement in module.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let Some((room, rest)) = statement.split_once("::") else { continue };
        let words = rest.split(|character: char| !character.is_alphanumeric() && character != '_');
        names.extend(words.filter(|word| !word.is_empty()).map(|word| (word, room.to_owned())));
    }
    names
}

/// The circles among rooms: each a set in which every room leads to every other one.
fn circles(uses: &Uses) -> Vec<BTreeSet<&str>> {
    let rooms: BTreeSet<&str> = uses.keys().flat_map(|(from, to)| [from.as_str(), to.as_str()]).collect();
    let reached = |from: &str| {
        let (mut found, mut open) = (BTreeSet::new(), vec![from.to_owned()]);
        while let Some(room) = open.pop() {
            for (_, to) in uses.keys().filter(|(user, _)| *user == room) {
                if found.insert(to.clone()) {
                    open.push(to.clone());
                }
            }
        }
        found
    };
    let reached: BTreeMap<&str, BTreeSet<String>> = rooms.iter().map(|room| (*room, reached(room))).collect();
    let mut circles: Vec<BTreeSet<&str>> = Vec::new();
    for room in rooms.iter().filter(|room| reached[*room].contains(**room)) {
        if !circles.iter().any(|circle| circle.contains(room)) {
            let among =
                rooms.iter().filter(|other| reached[*room].contains(**other) && reached[*other].contains(*room));
            circles.push(among.copied().collect());
        }
    }
    circles
}

#[test]
fn rooms_of_a_layer_use_each_other_without_circles() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut wrong, mut known) = (Vec::new(), BTreeSet::new());
    for layer in LAYERS {
        let mut paths = Vec::new();
        source_files(&root.join(layer), &mut paths);
        let files: Vec<(String, String)> = paths
            .iter()
            .map(|path| {
                let below = path.strip_prefix(root.join(layer)).expect("a path below the layer");
                (below.to_string_lossy().replace('\\', "/"), fs::read_to_string(path).expect("UTF-8"))
            })
            .collect();
        assert!(files.len() > 3, "{layer}: its files are found");
        let module = files.iter().find(|(file, _)| file == "mod.rs" || file == "lib.rs").map_or("", |(_, text)| text);
        let uses = uses(layer, module, &files);
        for circle in circles(&uses) {
            let names: Vec<&str> = circle.iter().copied().collect();
            if let Some(index) = KNOWN.iter().position(|(of, rooms)| *of == layer && *rooms == names) {
                known.insert(index);
                continue;
            }
            let within = uses.iter().filter(|((from, to), _)| circle.contains(&**from) && circle.contains(&**to));
            let lines: Vec<String> = within.map(|((from, to), at)| format!("  {from} -> {to}: src/{at}")).collect();
            wrong.push(format!("{layer}: {names:?}\n{}", lines.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "rooms that use each other in a circle:\n{}", wrong.join("\n"));
    assert_eq!(known.len(), KNOWN.len(), "a circle in KNOWN is gone: remove it there");
}

#[test]
fn circles_are_found() {
    let check = |files: &[(&str, &str)], expected: &[&[&str]]| {
        let files: Vec<(String, String)> =
            files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect();
        let module = files.iter().find(|(file, _)| file == "mod.rs").map_or("", |(_, text)| text);
        let uses = uses("query", module, &files);
        let found: Vec<Vec<&str>> = circles(&uses).into_iter().map(|circle| circle.into_iter().collect()).collect();
        assert_eq!(found, expected, "{files:?}");
    };
    check(&[("a.rs", "use crate::query::b::B;"), ("b.rs", "use super::c;"), ("c.rs", "")], &[]);
    check(&[("a.rs", "use crate::query::b::B;"), ("b.rs", "use super::a;")], &[&["a", "b"]]);
    check(&[("a/mod.rs", "use super::b::B;"), ("b.rs", "crate::query::{c, a::A}"), ("c.rs", "")], &[&["a", "b"]]);
    check(&[("a/x.rs", "use super::super::b::B;"), ("b.rs", "use super::a::x;")], &[&["a", "b"]]);
    // By a name that the layer offers of a room.
    check(
        &[("mod.rs", "pub use a::{A, Other};"), ("a.rs", "use super::b::B;"), ("b.rs", "use crate::query::Other;")],
        &[&["a", "b"]],
    );
    check(
        &[("a.rs", "super::b"), ("b.rs", "super::c"), ("c.rs", "super::a"), ("d.rs", "super::a")],
        &[&["a", "b", "c"]],
    );
    // Comments, tests and the room itself.
    check(&[("a.rs", "use super::b;"), ("b.rs", "// super::a\n#[cfg(test)]\nmod tests { use super::super::a; }")], &[]);
    check(&[("a/x.rs", "use super::y;"), ("a/y.rs", "use crate::query::a::x;")], &[]);
}
