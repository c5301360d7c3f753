//! The hot paths whose instructions are counted, as data.

use serde::{Deserialize, Serialize};

use crate::support::entities::{Generator, QueryProbes};
use crate::support::requests::Expected;
use crate::support::source::{PAGE, Source};

/// A hot path.
pub struct HotPath {
    /// The name in the table and in the file of counts.
    pub name: &'static str,
    pub action: HotPathAction,
    pub expected: ExpectedResult,
    /// The number of repetitions in the shorter of the two runs. Two starts of a process differ by a few million
    /// instructions, so the repetitions should take a few hundred million.
    pub repetitions: u64,
}

/// One execution of a path, in a form that a child process can parse.
#[derive(Clone, Serialize, Deserialize)]
pub enum HotPathAction {
    /// A request to the router with this query string. The body is read to its end, and the catalog records are not
    /// cached.
    Read(String),
    /// The same request with the `ETag` of its response.
    Revalidate(String),
    /// A catalog lookup of the dataset and its version.
    LookUp,
    /// An import of the source as a new dataset.
    Import,
}

/// The expected result of an action.
pub enum ExpectedResult {
    /// The exact bytes or the count.
    Body(Expected),
    /// A JSON array of this many objects.
    Objects(u64),
    /// This many CSV records after a header line.
    Records(usize),
    /// An empty body.
    Nothing,
    /// The action itself checks its result.
    Done,
}

/// The number of entities on a page of CSV.
const RECORDS: usize = 1_000;

/// Returns all paths, for the entities of `source`.
pub fn hot_paths(source: &Source) -> Vec<HotPath> {
    let probes = QueryProbes::new(&Generator::new());
    let query = |name: &str| {
        let probe = probes.0.iter().find(|probe| probe.name == name);
        probe.map(|probe| probe.query.clone()).expect("a path uses an unknown query")
    };
    let first = |name: &'static str, probe: &str, repetitions| HotPath {
        name,
        action: HotPathAction::Read(format!("{}&limit={PAGE}&pretty=false", query(probe))),
        expected: ExpectedResult::Body(Expected::Compact(source.matches(probe).first.clone())),
        repetitions,
    };
    let middle = source.entities / 2;
    let page = format!("limit={PAGE}&offset={middle}&pretty=false");
    let count = source.matches("keyword frequent").count;
    vec![
        HotPath {
            name: "page of 100",
            action: HotPathAction::Read(page.clone()),
            expected: ExpectedResult::Body(Expected::Compact((middle..middle + PAGE as u64).collect())),
            repetitions: 1_500,
        },
        HotPath {
            name: "page of 100, answered 304",
            action: HotPathAction::Revalidate(page),
            expected: ExpectedResult::Nothing,
            repetitions: 4_000,
        },
        first("exact filter, first 100", "category", 600),
        first("filter into an array of objects, first 100", "variants.color", 600),
        first("two keywords, first 100", "keywords and, frequent", 400),
        HotPath {
            name: "keyword, count",
            action: HotPathAction::Read(format!("{}&count=true", query("keyword frequent"))),
            expected: ExpectedResult::Body(Expected::Count(count)),
            repetitions: 1_500,
        },
        first("top 100 by a number", "sort rating", 1_500),
        HotPath {
            name: "distinct pairs",
            action: HotPathAction::Read("keep_field=brand,category&dedup=true&pretty=false".to_owned()),
            expected: ExpectedResult::Objects(source.matches("dedup pair").count),
            repetitions: 15,
        },
        HotPath {
            name: "page of 1,000, CSV",
            action: HotPathAction::Read(format!("format=csv&limit={RECORDS}")),
            expected: ExpectedResult::Records(RECORDS),
            repetitions: 20,
        },
        look_up(),
        HotPath {
            name: "import of 5,000 entities",
            action: HotPathAction::Import,
            expected: ExpectedResult::Done,
            repetitions: 1,
        },
    ]
}

/// Returns the catalog lookup that is part of each read.
pub fn look_up() -> HotPath {
    HotPath {
        name: "look-up of a dataset",
        action: HotPathAction::LookUp,
        expected: ExpectedResult::Done,
        repetitions: 2_000,
    }
}
