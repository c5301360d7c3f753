//! The hot paths whose instructions are counted, as data.

use serde::{Deserialize, Serialize};

use crate::support::entities::{Generator, Probes};
use crate::support::requests::Expected;
use crate::support::source::{PAGE, Source};

/// A hot path.
pub struct HotPath {
    /// Its name in the table and in the file of figures.
    pub name: &'static str,
    /// What is done.
    pub action: Action,
    /// What the answer must be.
    pub answer: Answer,
    /// How often it is done in the shorter one of the two runs. Two starts of a process differ by some million
    /// instructions, so that it should be some hundred million instructions.
    pub repetitions: u64,
}

/// What is done once, in a form that the child process is given.
#[derive(Clone, Serialize, Deserialize)]
pub enum Action {
    /// A request to the router, by its query; the body is taken to its end. The catalog is asked anew.
    Read(String),
    /// The same with the `ETag` of its answer.
    Revalidate(String),
    /// The catalog is asked for the dataset and its version.
    LookUp,
    /// The source is imported as a new dataset.
    Import,
}

/// What an action must result in.
pub enum Answer {
    /// These bytes, or this count.
    Body(Expected),
    /// A JSON array of so many objects.
    Objects(u64),
    /// So many records of CSV under a line of names.
    Records(usize),
    /// No bytes.
    Nothing,
    /// It is checked where it is done.
    Done,
}

/// Entities of a page of CSV.
const RECORDS: usize = 1_000;

/// All of them, over the entities of `source`.
pub fn all(source: &Source) -> Vec<HotPath> {
    let probes = Probes::new(&Generator::new());
    let query = |name: &str| {
        let probe = probes.0.iter().find(|probe| probe.name == name);
        probe.map(|probe| probe.query.clone()).expect("a path asks a question that there is")
    };
    let first = |name: &'static str, probe: &str, repetitions| HotPath {
        name,
        action: Action::Read(format!("{}&limit={PAGE}&pretty=false", query(probe))),
        answer: Answer::Body(Expected::Compact(source.matches(probe).first.clone())),
        repetitions,
    };
    let middle = source.entities / 2;
    let page = format!("limit={PAGE}&offset={middle}&pretty=false");
    let count = source.matches("keyword frequent").count;
    vec![
        HotPath {
            name: "page of 100",
            action: Action::Read(page.clone()),
            answer: Answer::Body(Expected::Compact((middle..middle + PAGE as u64).collect())),
            repetitions: 1_500,
        },
        HotPath {
            name: "page of 100, answered 304",
            action: Action::Revalidate(page),
            answer: Answer::Nothing,
            repetitions: 4_000,
        },
        first("exact filter, first 100", "category", 600),
        first("filter into an array of objects, first 100", "variants.color", 600),
        first("two keywords, first 100", "keywords and, frequent", 400),
        HotPath {
            name: "keyword, count",
            action: Action::Read(format!("{}&count=true", query("keyword frequent"))),
            answer: Answer::Body(Expected::Count(count)),
            repetitions: 1_500,
        },
        first("top 100 by a number", "sort rating", 1_500),
        HotPath {
            name: "distinct pairs",
            action: Action::Read("keep_field=brand,category&dedup=true&pretty=false".to_owned()),
            answer: Answer::Objects(source.matches("dedup pair").count),
            repetitions: 15,
        },
        HotPath {
            name: "page of 1,000, CSV",
            action: Action::Read(format!("format=csv&limit={RECORDS}")),
            answer: Answer::Records(RECORDS),
            repetitions: 20,
        },
        look_up(),
        HotPath { name: "import of 5,000 entities", action: Action::Import, answer: Answer::Done, repetitions: 1 },
    ]
}

/// What each of the reads does, too.
pub fn look_up() -> HotPath {
    HotPath { name: "look-up of a dataset", action: Action::LookUp, answer: Answer::Done, repetitions: 2_000 }
}
