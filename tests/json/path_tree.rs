//! Walks along several paths.

use std::ops::{ControlFlow, Range};

use strata_json::{JsonScalar, PathTrie, PathVisitor};
use strata_types::field_path::FieldPath;

/// Records the events of a walk, which ends after a number of scalars.
struct WalkLog {
    events: Vec<String>,
    remaining_scalars: usize,
}

impl PathVisitor for WalkLog {
    fn visit_scalar(&mut self, node: usize, scalar: JsonScalar<'_>) -> ControlFlow<()> {
        let JsonScalar::Number(text) = scalar else { return ControlFlow::Continue(()) };
        self.events.push(format!("{node}={text}"));
        self.remaining_scalars -= 1;
        if self.remaining_scalars == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn finish_nodes(&mut self, nodes: Range<usize>) -> ControlFlow<()> {
        self.events.push(format!("{}..{}", nodes.start, nodes.end));
        ControlFlow::Continue(())
    }
}

fn walk(paths: &[&str], document: &str, max_scalars: usize) -> (Vec<usize>, String) {
    let paths: Vec<FieldPath> =
        paths.iter().map(|path| FieldPath::parse(path).expect("failed to parse path")).collect();
    let (trie, ends) = PathTrie::from_paths(&paths);
    let mut log = WalkLog { events: Vec::new(), remaining_scalars: max_scalars };
    trie.visit_scalars(document.as_bytes(), &mut log);
    (ends, log.events.join(" "))
}

#[test]
fn walk_reports_scalars_and_finished_nodes() {
    // Node 1 is `a`, node 2 is `a.b`, node 3 is `a.b.c`, and node 4 is `d`.
    let paths = ["d", "a.b.c", "a", "a.b", "d"];
    for (document, expected) in [
        (r#"{"a":{"b":{"c":1}},"d":2,"e":3}"#, "3=1 3..4 2..4 1..4 4=2 4..5"),
        (r#"{"d":[1,[2]],"a":3}"#, "4=1 4=2 4..5 1=3 1..4"),
        // In an array, a key can occur again.
        (r#"{"a":[1,{"b":2},{"b":{"c":[3]}},[{"b":[{"c":4},5]}]]}"#, "1=1 2=2 3=3 3=4 2=5 1..4"),
        (r#"{"x":{"a":1},"a":{"x":1,"b":[]}}"#, "2..4 1..4"),
        ("{}", ""),
    ] {
        assert_eq!(walk(&paths, document, 100), (vec![4, 3, 1, 2, 4], expected.to_owned()), "{document}");
    }
    assert_eq!(walk(&paths, r#"{"d":[1,2,3]}"#, 2).1, "4=1 4=2");
}
