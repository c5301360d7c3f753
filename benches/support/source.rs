//! The source file of each size, with the expected results of all queries. Both are generated once and stored in the
//! build directory.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::entities::{self, Entity, Generator, Key, QueryProbes, Question};

/// The maximum number of positions that are stored for each query, which is one page.
pub const PAGE: usize = 100;

/// The expected results, computed from the generated entities.
#[derive(Serialize, Deserialize)]
struct Truth {
    answers: BTreeMap<String, Matches>,
}

/// The entities that match a query.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Matches {
    /// The number of matching entities.
    pub count: u64,
    /// The positions of the first matching entities, at most [`PAGE`].
    pub first: Vec<u64>,
}

/// A source file in JSON lines, in canonical form.
pub struct Source {
    pub path: PathBuf,
    pub entities: u64,
    /// The bytes of JSON without line ends.
    pub json_bytes: u64,
    file: File,
    /// The offset of each line, and the end of the file.
    starts: Vec<u64>,
    truth: Truth,
}

impl Source {
    /// Opens the source with `entities` entities in `directory`, and generates it if it does not exist. Sources of
    /// other versions of the generator are deleted.
    pub fn open(directory: &Path, entities: u64) -> io::Result<Source> {
        // The version of the generator is a hash of its source code and of this file.
        let text = concat!(include_str!("entities.rs"), include_str!("source.rs"));
        let version = hex::encode(&Sha256::digest(text)[..4]);
        std::fs::create_dir_all(directory)?;
        for entry in std::fs::read_dir(directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with("entities-") && !name.contains(&version) {
                std::fs::remove_file(entry.path())?;
            }
        }
        let path = directory.join(format!("entities-{version}-{entities}.jsonl"));
        let truth_path = path.with_extension("truth.json");
        if !path.exists() {
            eprintln!("generating {entities} entities");
            generate(&path, &truth_path, entities)?;
        }
        let truth = serde_json::from_slice(&std::fs::read(truth_path)?)?;
        let file = File::open(&path)?;
        let mut starts = Vec::with_capacity(entities as usize + 1);
        starts.push(0);
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        loop {
            let read = file.read_at(&mut buffer, at)?;
            if read == 0 {
                break;
            }
            starts.extend(memchr::memchr_iter(b'\n', &buffer[..read]).map(|end| at + end as u64 + 1));
            at += read as u64;
        }
        assert_eq!(starts.len() as u64, entities + 1, "{} is damaged: remove it", path.display());
        Ok(Source { entities, json_bytes: at - entities, path, file, starts, truth })
    }

    /// Returns the entities that match a query.
    pub fn matches(&self, probe: &str) -> &Matches {
        &self.truth.answers[probe]
    }

    /// Returns the line at a position without its end.
    pub fn line(&self, position: u64) -> Vec<u8> {
        let start = self.starts[position as usize];
        let end = self.starts[position as usize + 1] - 1;
        let mut line = vec![0; (end - start) as usize];
        self.read_at(start, &mut line);
        line
    }

    /// Reads bytes of the file, including line ends.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) {
        self.file.read_exact_at(bytes, offset).expect("the source file is readable");
    }
}

/// Collects the expected result of a query, one entity at a time.
#[derive(Default)]
struct MatchCollector {
    matches: Matches,
    keys: HashSet<String>,
    /// For a sort, the first entities so far, in order.
    first: Vec<(Option<Key>, u64)>,
}

impl MatchCollector {
    fn add(&mut self, question: &Question, entity: &Entity, texts: &str, position: u64) {
        let matched = match question {
            Question::Which(matches) => matches(entity),
            Question::Texts(matches) => matches(texts),
            Question::FirstOf(key) => self.keys.insert(key(entity)),
            Question::Least(key) => return self.add_in_order(key(entity), position, false),
            Question::Greatest(key) => return self.add_in_order(key(entity), position, true),
        };
        if matched {
            self.matches.count += 1;
            if self.matches.first.len() < PAGE {
                self.matches.first.push(position);
            }
        }
    }

    fn add_in_order(&mut self, key: Option<Key>, position: u64, descending: bool) {
        self.matches.count += 1;
        // After all keys that are not greater, because the sort is stable.
        let place = self.first.partition_point(|(other, _)| match (other, &key) {
            (Some(other), Some(key)) => {
                if descending {
                    other >= key
                } else {
                    other <= key
                }
            }
            (other, key) => key.is_none() || other.is_some(),
        });
        if place < PAGE {
            self.first.insert(place, (key, position));
            self.first.truncate(PAGE);
        }
    }

    fn finish(mut self) -> Matches {
        self.matches.first.extend(self.first.into_iter().map(|(_, position)| position));
        self.matches
    }
}

fn generate(path: &Path, truth_path: &Path, count: u64) -> io::Result<()> {
    let partial = path.with_extension("partial");
    let mut file = BufWriter::with_capacity(1 << 20, File::create(&partial)?);
    let generator = Generator::new();
    let probes = QueryProbes::new(&generator);
    let mut collectors: Vec<MatchCollector> = probes.0.iter().map(|_| MatchCollector::default()).collect();
    let mut line = String::new();
    for position in 0..count {
        let entity = generator.entity(position);
        line.clear();
        entity.write(&mut line);
        line.push('\n');
        file.write_all(line.as_bytes())?;
        let texts = entities::texts(&line);
        for (probe, collector) in probes.0.iter().zip(&mut collectors) {
            collector.add(&probe.question, &entity, &texts, position);
        }
    }
    file.into_inner().map_err(|error| error.into_error())?.sync_all()?;
    let names = probes.0.iter().map(|probe| probe.name.to_owned());
    let truth = Truth { answers: names.zip(collectors.into_iter().map(MatchCollector::finish)).collect() };
    std::fs::write(truth_path, serde_json::to_vec(&truth)?)?;
    std::fs::rename(partial, path)
}
