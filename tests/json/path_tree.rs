//! What a walk along several paths tells.

use std::ops::{ControlFlow, Range};

use strata_json::{PathTree, Scalar, Visitor};
use strata_types::path::Path;

/// What is told of a walk, as text; it ends after so many scalars.
struct Told(Vec<String>, usize);

impl Visitor for Told {
    fn scalar(&mut self, node: usize, scalar: Scalar<'_>) -> ControlFlow<()> {
        let Scalar::Number(text) = scalar else { return ControlFlow::Continue(()) };
        self.0.push(format!("{node}={text}"));
        self.1 -= 1;
        if self.1 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn ended(&mut self, nodes: Range<usize>) -> ControlFlow<()> {
        self.0.push(format!("{}..{}", nodes.start, nodes.end));
        ControlFlow::Continue(())
    }
}

fn told(paths: &[&str], document: &str, most: usize) -> (Vec<usize>, String) {
    let paths: Vec<Path> = paths.iter().map(|path| Path::parse(path).expect("a path")).collect();
    let (tree, ends) = PathTree::of(&paths);
    let mut told = Told(Vec::new(), most);
    tree.reach(document.as_bytes(), &mut told);
    (ends, told.0.join(" "))
}

#[test]
fn a_walk_tells_what_it_reaches_and_when_nothing_more_can_follow() {
    // The nodes: 1 is a, 2 is a.b, 3 is a.b.c, 4 is d.
    let paths = ["d", "a.b.c", "a", "a.b", "d"];
    for (document, expected) in [
        (r#"{"a":{"b":{"c":1}},"d":2,"e":3}"#, "3=1 3..4 2..4 1..4 4=2 4..5"),
        (r#"{"d":[1,[2]],"a":3}"#, "4=1 4=2 4..5 1=3 1..4"),
        // In an array a key may follow once more.
        (r#"{"a":[1,{"b":2},{"b":{"c":[3]}},[{"b":[{"c":4},5]}]]}"#, "1=1 2=2 3=3 3=4 2=5 1..4"),
        (r#"{"x":{"a":1},"a":{"x":1,"b":[]}}"#, "2..4 1..4"),
        ("{}", ""),
    ] {
        assert_eq!(told(&paths, document, 100), (vec![4, 3, 1, 2, 4], expected.to_owned()), "{document}");
    }
    assert_eq!(told(&paths, r#"{"d":[1,2,3]}"#, 2).1, "4=1 4=2");
}
