//! Pairs of versions: realistic ones of a refreshed catalogue, and the worst cases of the algorithm.

use serde::{Deserialize, Serialize};

use crate::support::entities::Generator;

/// The number of changes of each type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub modified: u64,
    pub added: u64,
    pub subtracted: u64,
}

/// A pair of versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Entities of 1 KB with a different `_source` each; 5 % modified, 1 % added, 1 % subtracted.
    OwnSource,
    /// The same entities with the same `_source`.
    OneSource,
    /// The same entities with the same `_source`, and version 2 in another order.
    Shuffled,
    /// Every entity is modified, and all entities are equal except for a number, so that any two share values.
    Alike,
    /// Every entity is modified, and 100 entities of each version share each value. This is the maximum number of
    /// candidates.
    Hundreds,
    /// All entities of a version are equal, and both versions share one value.
    OneValue,
}

impl Shape {
    /// All shapes.
    pub const ALL: [Shape; 6] =
        [Shape::OwnSource, Shape::OneSource, Shape::Shuffled, Shape::Alike, Shape::Hundreds, Shape::OneValue];

    /// Returns the name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Shape::OwnSource => "own source",
            Shape::OneSource => "one source",
            Shape::Shuffled => "shuffled",
            Shape::Alike => "alike",
            Shape::Hundreds => "hundreds",
            Shape::OneValue => "one value",
        }
    }

    /// Returns whether real versions can have this shape.
    pub fn is_real(self) -> bool {
        matches!(self, Shape::OwnSource | Shape::OneSource | Shape::Shuffled)
    }

    /// Calls `each` with the canonical text of each entity of version 0 or 1. Returns the expected counts of the diff,
    /// if they are known.
    pub fn write(self, version: usize, entities: u64, mut each: impl FnMut(&str)) -> Option<Counts> {
        match self {
            Shape::OwnSource | Shape::OneSource | Shape::Shuffled => {
                Some(self.write_catalogue(version, entities, &mut each))
            }
            Shape::Alike => {
                for number in 0..entities {
                    each(&format!(
                        r#"{{"n":{},"kind":"alike","size":10,"colour":"blue","stock":true,"tags":["a","b"]}}"#,
                        2 * number + version as u64
                    ));
                }
                // More than 100 entities share every common value, so no entities are paired.
                (entities > 100).then_some(Counts { modified: 0, added: entities, subtracted: entities })
            }
            Shape::Hundreds => {
                let groups = entities.div_ceil(100);
                for number in 0..entities {
                    let row = number / groups;
                    let column = number % groups;
                    let field = |step: u64| (column + row * step) % groups;
                    each(&format!(
                        r#"{{"version":{version},"a":{},"b":{},"c":{},"d":{}}}"#,
                        field(0),
                        field(1),
                        field(7),
                        field(31)
                    ));
                }
                None
            }
            Shape::OneValue => {
                for _ in 0..entities {
                    each([r#"{"a":1}"#, r#"{"a":1,"b":1}"#][version]);
                }
                None
            }
        }
    }

    fn write_catalogue(self, version: usize, entities: u64, each: &mut impl FnMut(&str)) -> Counts {
        let generator = Generator::new();
        let mut counts = Counts { modified: 0, added: 0, subtracted: 0 };
        let mut entity = String::new();
        let mut write = |position: u64, modified: bool, is_there: bool| {
            if !is_there {
                return;
            }
            entity.clear();
            generator.entity(position).write(&mut entity);
            if self != Shape::OwnSource {
                // The entity begins with its source.
                let end = entity.find(r#"","#).expect("a source");
                entity.replace_range(..end, r#"{"_source":"https://shop.example/all"#);
            }
            if modified && version == 1 {
                entity = entity.replacen(r#""name":""#, r#""name":"New "#, 1);
                if position.is_multiple_of(2) {
                    entity = entity.replacen(r#""created_at":"20"#, r#""created_at":"21"#, 1);
                } else {
                    entity = entity.replacen(r#""in_stock":"#, r#""was_in_stock":"#, 1);
                }
            }
            each(&entity);
        };
        // The multiplier is coprime with the number of entities, so that every position occurs once.
        let stride = if self == Shape::Shuffled && version == 1 { 1_000_003 } else { 1 };
        for place in 0..entities {
            let position = place * stride % entities;
            let subtracted = position % 100 == 7;
            let modified = position % 20 == 3;
            counts.subtracted += u64::from(subtracted);
            counts.modified += u64::from(modified);
            write(position, modified, version == 0 || !subtracted);
            if place % 100 == 50 {
                counts.added += 1;
                write(entities + place, false, version == 1);
            }
        }
        counts
    }
}
