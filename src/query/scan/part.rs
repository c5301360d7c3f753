//! A scan in parts: other nodes look at some of its row groups. What each would have to read, and a part as text, which
//! another process of the same version of the program opens.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::{exec_datafusion_err, internal_datafusion_err};
use datafusion::error::Result;
use serde::{Deserialize, Serialize};

use crate::model::path::Path;
use crate::model::request::{KeywordsMode, RangeBound};
use crate::query::fetch::reshape::Reshape;
use crate::query::scan::access::Access;
use crate::query::scan::dedup_key::GroupSpec;
use crate::query::scan::kept_groups;
use crate::query::scan::kept_index;
use crate::query::scan::kept_order::{self, Kept};
use crate::query::scan::predicate::{Compare, Comparison, Keywords, Predicate};
use crate::query::scan::schema::{Computed, GROUP, ORDER, POSITION};
use crate::query::scan::sort_key::{self, OrderSpec};
use crate::query::scan::spec::ScanSpec;
use crate::query::scan::version_scan::VersionScan;
use crate::storage::reader::{FileDescription, VersionReader, Wanted};

/// Documents that verify what the search text has found are one in so many bytes of all of them.
const VERIFIED_DIVISOR: u64 = 16;

/// A part of a scan as text. The program that reads it must be of the same version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ScanDescription {
    file: FileDescription,
    row_groups: Vec<usize>,
    range: Range<u64>,
    columns: Vec<String>,
    predicates: Vec<PredicateDescription>,
    order: Option<OrderDescription>,
    /// What whole entities are compared by, where groups are wanted.
    group: Option<ReshapeDescription>,
    fetch: Option<usize>,
    /// How many of the first of the order are wanted.
    first: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum PredicateDescription {
    Compare {
        /// The parameter of the comparison.
        parameter: String,
        path: Vec<String>,
        value: String,
        denull: bool,
    },
    Keywords {
        words: Vec<String>,
        all: bool,
        reshape: ReshapeDescription,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ReshapeDescription {
    include_source: bool,
    denull: bool,
    keep: Vec<Vec<String>>,
    drop: Vec<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OrderDescription {
    field: String,
    descending: bool,
    denull: bool,
}

impl VersionScan {
    /// Whether other nodes can look at parts of it. Those of an edited file lie in another one. Documents are fetched
    /// by who answers. The keys of groups are hashes of whole entities, or may be codes that have a meaning in this
    /// process alone.
    pub(crate) fn is_divisible(&self) -> bool {
        let spec = self.spec();
        let is_hashed = || spec.computed.group.as_ref().is_some_and(|group| group.compared().is_none());
        let is_known = |field: &Arc<Field>| match field.name().as_str() {
            POSITION | ORDER => true,
            GROUP => is_hashed(),
            _ => false,
        };
        spec.part.is_none() && !spec.reader.is_edited() && spec.schema.fields().iter().all(is_known)
    }

    /// Bytes of the file. No scan reads more.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.spec().reader.size_bytes()
    }

    /// Whether something that is kept of the whole version leaves little to read: the order, the first of all groups,
    /// or a hash index.
    pub(crate) async fn is_kept(&self) -> bool {
        let spec = self.spec();
        if let (Some(_), Some(order)) = (&spec.threshold, &spec.computed.order)
            && matches!(kept_order::kept_order(&spec.reader, order).await, Kept::Order(_))
        {
            return true;
        }
        if let (true, Some(groups)) = (spec.distinct, &spec.computed.group)
            && spec.predicates.is_empty()
            && kept_groups::kept_firsts(&spec.reader, groups).await.is_some()
        {
            return true;
        }
        for (access, predicate) in spec.predicates.iter() {
            let (Access::ShreddedColumn(shredded), Predicate::Compare(compare)) = (access, predicate) else { continue };
            if kept_index::candidate_count(&spec.reader, *shredded, compare).await.is_some() {
                return true;
            }
        }
        false
    }

    /// The row groups that it looks at, each with a name of its bytes that is the same everywhere, and about how many
    /// bytes of it are to be read that are not in the cache.
    pub(crate) fn bytes_to_read(&self) -> Vec<(usize, Vec<u8>, u64)> {
        let spec = self.spec();
        let (file, wanted) = (spec.reader.path(), spec.wanted());
        let named = |row_group: usize| {
            let name = format!("{file} {row_group}").into_bytes();
            (row_group, name, spec.uncached_bytes(row_group, &wanted))
        };
        spec.row_groups().map(named).collect()
    }

    /// The same scan of some of the row groups, ascending. It shares no metrics with this one, and nothing that is kept
    /// of the whole version is used.
    pub(crate) fn part(&self, row_groups: Vec<usize>) -> VersionScan {
        let spec = self.spec();
        let predicates = spec.predicates.iter().map(|(_, predicate)| predicate.clone()).collect();
        let (schema, computed) = (spec.schema.clone(), spec.computed.clone());
        let scan = VersionScan::new(spec.reader.clone(), schema, computed, predicates, spec.fetch, self.threads());
        let scan = match &spec.threshold {
            Some(threshold) => scan.with_top_k(threshold.k()),
            None => scan,
        };
        let scan = if spec.distinct { scan.with_distinct() } else { scan };
        scan.looking_at(spec.range.clone(), row_groups.into())
    }

    /// A part as text; `None` where it is none that another process could open.
    pub(crate) fn describe(&self) -> Option<ScanDescription> {
        let spec = self.spec();
        let part = spec.part.as_ref()?;
        Some(ScanDescription {
            file: spec.reader.description(),
            row_groups: part.to_vec(),
            range: spec.range.clone(),
            columns: spec.schema.fields().iter().map(|field| field.name().clone()).collect(),
            predicates: spec.predicates.iter().map(|(_, predicate)| PredicateDescription::of(predicate)).collect(),
            order: spec.computed.order.as_ref().map(|order| OrderDescription {
                field: order.field.clone(),
                descending: order.descending,
                denull: order.denull,
            }),
            group: spec.computed.group.as_ref().map(|group| ReshapeDescription::of(&group.reshape)),
            fetch: spec.fetch,
            first: spec.threshold.as_ref().map(|threshold| threshold.k()),
        })
    }
}

impl ScanSpec {
    /// About how many bytes of a row group are to be read that are not in the cache, as they are stored: at most, as
    /// far as statistics and filters may rule it out.
    fn uncached_bytes(&self, row_group: usize, wanted: &Wanted) -> u64 {
        let reader = &self.reader;
        let missing = |column: &&usize| !reader.caches_columns(row_group, &[**column]);
        let columns: Vec<usize> = wanted.columns.iter().filter(missing).copied().collect();
        let mut bytes = reader.column_bytes(row_group, &columns).0;
        let (search, documents) = reader.search_and_document_bytes(row_group);
        let has = |accesses: &[Access]| self.predicates.iter().any(|(access, _)| accesses.contains(access));
        if has(&[Access::Search, Access::Shapes, Access::SearchThenDocuments]) && !reader.caches_search(row_group) {
            bytes += match &self.keywords {
                Some(keywords) => keywords.row_group_bytes(reader, row_group).min(search),
                None => search,
            };
        }
        let order = self.computed.order.as_ref().filter(|_| self.gives(ORDER));
        let orders_documents =
            order.is_some_and(|order| sort_key::order_column(reader.layout(), &order.field).is_none());
        let pages = reader.page_count(row_group);
        let missing = || (0..pages).filter(|page| !reader.caches_page(row_group, *page)).count() as u64;
        let group = self.computed.group.as_ref().filter(|_| self.gives(GROUP));
        let hashes_documents = group.is_some_and(|group| !group.is_stored());
        if has(&[Access::Documents]) || orders_documents || hashes_documents {
            bytes += documents / pages.max(1) as u64 * missing();
        } else if has(&[Access::SearchThenDocuments]) {
            bytes += documents / pages.max(1) as u64 * missing() / VERIFIED_DIVISOR;
        }
        bytes
    }
}

impl ScanDescription {
    /// What the part gives.
    ///
    /// # Errors
    /// When it gives what no part does.
    pub(crate) fn schema(&self) -> Result<SchemaRef> {
        let field = |name: &String| match name.as_str() {
            POSITION => Ok(Field::new(POSITION, DataType::UInt64, false)),
            ORDER if self.order.is_some() => Ok(Field::new(ORDER, DataType::Binary, false)),
            GROUP if self.group.is_some() => Ok(Field::new(GROUP, DataType::Binary, false)),
            other => Err(internal_datafusion_err!("a part of a scan gives no column {other}")),
        };
        Ok(Arc::new(Schema::new(self.columns.iter().map(field).collect::<Result<Vec<Field>>>()?)))
    }

    /// The file.
    pub(crate) fn file(&self) -> &FileDescription {
        &self.file
    }

    /// The scan of an opened file, on so many row groups at once.
    ///
    /// # Errors
    /// When the file has no such row groups, or the text is none that [`VersionScan::describe`] gives.
    pub(crate) fn open(&self, reader: VersionReader, threads: usize) -> Result<VersionScan> {
        let schema = self.schema()?;
        let (groups, entities) = (reader.row_groups().len(), reader.entity_count());
        let is_ascending = self.row_groups.windows(2).all(|pair| pair[0] < pair[1]);
        if !is_ascending || self.row_groups.last().is_some_and(|last| *last >= groups) || self.range.end > entities {
            return Err(exec_datafusion_err!("the file has other row groups than the part of its scan"));
        }
        let order = self.order.as_ref().map(|order| OrderSpec {
            field: order.field.clone(),
            descending: order.descending,
            denull: order.denull,
        });
        let predicates = self.predicates.iter().map(PredicateDescription::predicate).collect::<Result<Vec<_>>>()?;
        let group = match &self.group {
            Some(reshape) => Some(GroupSpec { paths: Vec::new(), reshape: reshape.reshape()? }),
            None => None,
        };
        if group.as_ref().is_some_and(|group| group.compared().is_some()) {
            return Err(exec_datafusion_err!("a part of a scan groups by paths"));
        }
        let computed = Computed { order, group };
        let scan = VersionScan::new(reader, schema, computed, predicates, self.fetch, threads);
        let scan = match self.first {
            Some(k) => scan.with_top_k(k),
            None => scan,
        };
        Ok(scan.looking_at(self.range.clone(), self.row_groups.clone().into()))
    }
}

impl PredicateDescription {
    fn of(predicate: &Predicate) -> PredicateDescription {
        match predicate {
            Predicate::Compare(compare) => PredicateDescription::Compare {
                parameter: compare.comparison().parameter().to_owned(),
                path: compare.path().keys().to_vec(),
                value: compare.value().to_owned(),
                denull: compare.ignores_empty(),
            },
            Predicate::Keywords(keywords) => PredicateDescription::Keywords {
                words: keywords.words().to_vec(),
                all: keywords.mode() == KeywordsMode::And,
                reshape: ReshapeDescription::of(keywords.reshape()),
            },
        }
    }

    fn predicate(&self) -> Result<Predicate> {
        match self {
            PredicateDescription::Compare { parameter, path: keys, value, denull } => {
                let all = [Comparison::Equal, Comparison::Contains];
                let mut all = all.into_iter().chain(RangeBound::ALL.map(Comparison::Range));
                let comparison = all.find(|comparison| comparison.parameter() == parameter);
                let comparison = comparison.ok_or_else(|| exec_datafusion_err!("no comparison is {parameter}"))?;
                Ok(Predicate::Compare(Box::new(Compare::new(comparison, path(keys)?, value, *denull))))
            }
            PredicateDescription::Keywords { words, all, reshape } => {
                if words.is_empty() || words.iter().any(String::is_empty) {
                    return Err(exec_datafusion_err!("a part of a scan looks for no word"));
                }
                let mode = if *all { KeywordsMode::And } else { KeywordsMode::Or };
                Ok(Predicate::Keywords(Keywords::new(words.clone(), mode, reshape.reshape()?)))
            }
        }
    }
}

impl ReshapeDescription {
    fn of(reshape: &Reshape) -> ReshapeDescription {
        let keys = |paths: &[Path]| paths.iter().map(|path| path.keys().to_vec()).collect();
        ReshapeDescription {
            include_source: reshape.include_source(),
            denull: reshape.denull(),
            keep: keys(reshape.keep()),
            drop: keys(reshape.drop()),
        }
    }

    fn reshape(&self) -> Result<Reshape> {
        let ReshapeDescription { include_source, denull, keep, drop } = self;
        let paths = |paths: &[Vec<String>]| paths.iter().map(|keys| path(keys)).collect::<Result<Vec<Path>>>();
        Ok(Reshape::new(*include_source, *denull, paths(keep)?, paths(drop)?))
    }
}

fn path(keys: &[String]) -> Result<Path> {
    Path::from_keys(keys.iter().cloned()).map_err(|error| exec_datafusion_err!("a path of a part: {error}"))
}
