//! The explanation for people: sections of aligned lines.

use std::fmt::{self, Formatter};

use indicatif::{HumanBytes, HumanCount};
use strata_query::distribute::{DistributedUse, NodeUse};
use strata_query::explain::PlanOperator;
use strata_query::scan::report::{AccessName, KeyUse, PredicateUse, ScanUse};
use strata_types::text::is_invisible;

use super::Explanation;
use super::record::{KeptAnswer, LookupUse};
use crate::admission::Weight;
use crate::export_cache::ExportState;

impl fmt::Display for Explanation {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let alt = if self.alt { ", alternate" } else { "" };
        let Explanation { dataset_id, name_slug, version, .. } = self;
        writeln!(out, "Query on dataset {dataset_id} ({name_slug}), version {version}{alt}")?;
        let entities = counted(self.entity_count, "entity", "entities");
        writeln!(out, "  {entities}, {} of documents", size(self.document_bytes))?;
        self.request(out)?;
        self.answer(out)?;
        writeln!(out, "\nLogical plan")?;
        indented(out, &self.logical_plan)?;
        if let Some(optimized) = &self.optimized_plan {
            writeln!(out, "\nOptimized plan")?;
            indented(out, optimized)?;
        }
        writeln!(out, "\nPhysical plan")?;
        plan(out, &self.operators)?;
        if let Some(used) = &self.distributed {
            distributed(out, used)?;
        }
        match &self.scan {
            Some(used) => scan(out, used)?,
            None if self.distributed.is_some() => {}
            None => writeln!(out, "\nScan\n  none: no entities had to be read")?,
        }
        self.file(out)?;
        if !self.hints.is_empty() {
            writeln!(out, "\nHints")?;
            self.hints.iter().try_for_each(|hint| writeln!(out, "  - {}", one_line(hint)))?;
        }
        Ok(())
    }
}

impl Explanation {
    fn request(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "\nRequest")?;
        for ignored in &self.ignored {
            writeln!(out, "  {}", one_line(&ignored.to_string()))?;
        }
        if self.request.is_empty() {
            return writeln!(out, "  all defaults");
        }
        let width = self.request.iter().map(|parameter| parameter.name.len()).max().unwrap_or_default();
        self.request
            .iter()
            .try_for_each(|parameter| writeln!(out, "  {:width$}  {}", parameter.name, one_line(&parameter.value)))
    }

    fn answer(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let answer = &self.answer;
        writeln!(out, "\nResponse")?;
        let total = if self.is_count() {
            format!("a count of {}", number(answer.total))
        } else {
            counted(answer.total, "entity", "entities")
        };
        let parts = if answer.streamed { "streamed" } else { "not streamed" };
        write!(out, "  {total}, {} of {}", size(answer.body_bytes), answer.content_type)?;
        if let Some(columns) = answer.columns {
            write!(out, ", {}", counted(columns, "column", "columns"))?;
        }
        writeln!(out, ", {parts}")?;
        if let Some(matches) = answer.matches {
            writeln!(out, "  {} in total, across all pages", counted(matches, "entity matches", "entities match"))?;
        }
        let work = &self.work;
        let [bytes, heavy, medium] = [work.work_bytes, work.heavy_bytes, work.medium_bytes].map(size);
        let weight = match work.weight {
            Weight::Heavy => "heavy",
            Weight::Medium => "medium",
            Weight::Light => "light",
        };
        let limits = format!("query.medium_bytes is {medium}, query.heavy_bytes is {heavy}");
        writeln!(out, "  estimated work: {bytes}, {weight} ({limits})")?;
        match &self.kept {
            Some(kept) => writeln!(out, "  {}", lies_ready(kept))?,
            None => writeln!(out, "  response cache: not available on the command line")?,
        }
        writeln!(out, "\nTime")?;
        for stage in &self.stages {
            writeln!(out, "  {:>10}  {}", duration(stage.duration_us), stage.stage.about())?;
        }
        writeln!(out, "  {:>10}  total", duration(self.total_us))
    }

    fn is_count(&self) -> bool {
        self.request.iter().any(|parameter| parameter.name == "count")
    }

    fn file(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let documents = &self.documents;
        writeln!(out, "\nDocument pages")?;
        for (pages, what) in [
            (documents.pages, "in the file"),
            (documents.pages_to_select, "read to select entities"),
            (documents.pages_to_answer, "read for the response"),
            (documents.pages_not_read, "not read"),
        ] {
            writeln!(out, "  {:>10}  {what}", number(pages))?;
        }
        if let Some(bytes) = documents.spilled_bytes {
            writeln!(out, "  {:>10}  of documents sorted on disk", size(bytes))?;
        }
        let parts = &self.parts;
        writeln!(out, "\nParts of the file\n      cached     fetched")?;
        for (LookupUse { hits, misses }, what) in [
            (parts.footers, "footer"),
            (parts.bloom_filters, "bloom filters"),
            (parts.keyword_index, "keyword index entries and posting lists"),
            (parts.shapes, "path indexes of row groups"),
            (parts.columns, "column chunks"),
            (parts.document_pages, "document pages"),
        ] {
            if hits + misses > 0 {
                writeln!(out, "  {:>10}  {:>10}  {what}", number(hits), number(misses))?;
            }
        }
        let requests = counted(parts.requests, "request", "requests");
        writeln!(out, "  {} from the store in {requests}", size(parts.request_bytes))
    }
}

fn lies_ready(kept: &KeptAnswer) -> String {
    match (kept.cacheable, kept.export) {
        (false, _) => "never cached: without a seed, each request draws a new sample".to_owned(),
        (true, Some(ExportState::Made)) => "cached on disk: requests use this export".to_owned(),
        (true, Some(ExportState::BeingMade)) => "the export is being built for the disk cache".to_owned(),
        (true, Some(ExportState::TooLarge)) => "not cached: the export does not fit into the export cache".to_owned(),
        (true, None) if kept.response.is_empty() => "not in the response cache".to_owned(),
        (true, None) => format!("cached in memory with these encodings: {}", kept.response.join(", ")),
    }
}

fn plan(out: &mut Formatter<'_>, operators: &[PlanOperator]) -> fmt::Result {
    writeln!(out, "        rows       bytes        time  operator")?;
    for operator in operators {
        let rows = operator.rows.map_or_else(|| "-".to_owned(), number);
        let bytes = operator.bytes.map_or_else(|| "-".to_owned(), size);
        let time = operator.compute_us.map_or_else(|| "-".to_owned(), duration);
        let indent = operator.depth as usize * 2;
        write!(out, "  {rows:>10}  {bytes:>10}  {time:>10}  {:indent$}{}", "", one_line(&operator.operator))?;
        if operator.spills > 0 {
            let files = counted(operator.spills, "file", "files");
            write!(out, " [spilled {} in {files}]", size(operator.spilled_bytes))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn distributed(out: &mut Formatter<'_>, used: &DistributedUse) -> fmt::Result {
    writeln!(out, "\nNodes\n  row groups     to read        rows       bytes  node")?;
    for NodeUse { node, is_own, row_groups, stored_bytes, rows, bytes } in &used.nodes {
        let own = if *is_own { " (this node)" } else { "" };
        let [row_groups, rows] = [number(*row_groups), number(*rows)];
        let [stored, bytes] = [size(*stored_bytes), size(*bytes)];
        writeln!(out, "  {row_groups:>10}  {stored:>10}  {rows:>10}  {bytes:>10}  {}{own}", one_line(node))?;
    }
    match &used.fallback {
        Some(reason) => writeln!(out, "  ran again on this node only: {}", one_line(reason)),
        None => Ok(()),
    }
}

fn scan(out: &mut Formatter<'_>, scan: &ScanUse) -> fmt::Result {
    writeln!(out, "\nScan")?;
    let groups = &scan.row_groups;
    write!(out, "  row groups: {} in total, {} scanned", number(groups.total), number(groups.scanned))?;
    for (count, why) in [
        (groups.pruned_by_bloom_filter, "pruned by bloom filter"),
        (groups.pruned_by_numbers, "pruned by the minimum and maximum numeric values"),
        (groups.pruned_by_texts, "pruned by the minimum and maximum string values"),
        (groups.pruned_by_keyword_index, "pruned by keyword index"),
        (groups.pruned_by_hash_index, "pruned by hash index"),
        (groups.pruned_by_order, "pruned by the top-k threshold"),
        (groups.outside_positions, "outside the requested positions"),
        (groups.not_reached, "not reached"),
    ] {
        if count > 0 {
            write!(out, ", {} {why}", number(count))?;
        }
    }
    let [first, end] = [scan.first_position, scan.end_position].map(number);
    writeln!(out, "\n  positions: from {first} up to {end}")?;
    writeln!(out, "  entities: {} tested, {} selected", number(scan.rows_tested), number(scan.rows_selected))?;
    scan.predicates.iter().try_for_each(|used| predicate(out, used))?;
    if let Some(verified) = &scan.verification {
        let [before, after] = [verified.rows_in, verified.rows_out].map(number);
        let pages = counted(verified.pages, "page", "pages");
        writeln!(out, "  verified in documents: {before} -> {after}, {pages}")?;
    }
    if let Some(rows) = scan.left_out_early {
        writeln!(out, "  entities skipped by the top-k threshold: {}", number(rows))?;
    }
    if let Some(rows) = scan.duplicates_left_out {
        writeln!(out, "  duplicates skipped during the scan: {}", number(rows))?;
    }
    for (name, keys) in [("sort", &scan.sort), ("dedup", &scan.dedup)] {
        if let Some(KeyUse { by, access, column, pages }) = keys {
            let from = source(*access, column.as_deref());
            write!(out, "  {name} by {}: from {from}", one_line(by))?;
            match pages {
                0 => writeln!(out)?,
                pages => writeln!(out, ", {}", counted(*pages, "document page", "document pages"))?,
            }
        }
    }
    Ok(())
}

fn predicate(out: &mut Formatter<'_>, used: &PredicateUse) -> fmt::Result {
    write!(out, "  {}: by {}", one_line(&used.predicate), source(used.access, used.column.as_deref()))?;
    match used.rows_in.zip(used.rows_out) {
        Some((before, after)) => writeln!(out, ", {} -> {}", number(before), number(after))?,
        None => writeln!(out)?,
    }
    if let Some(shapes) = &used.shapes {
        let [settled, left] = [shapes.settled, shapes.left_to_documents].map(number);
        writeln!(out, "    path index: row groups: {settled} decided without documents, {left} verified in documents")?;
    }
    if let Some(whole) = used.settled_by_statistics.filter(|whole| *whole > 0) {
        let row_groups = counted(whole, "row group", "row groups");
        writeln!(out, "    statistics: all entities of {row_groups} match")?;
    }
    let Some(index) = &used.keyword_index else { return Ok(()) };
    let entities = counted(index.rows, "entity", "entities");
    write!(out, "    keyword index: {entities}; row groups:")?;
    let mut separator = "";
    for (count, what) in
        [(index.exact, "exact"), (index.candidates, "with candidates"), (index.left_to_scan, "scanned instead")]
    {
        if count > 0 {
            write!(out, "{separator} {} {what}", number(count))?;
            separator = ",";
        }
    }
    writeln!(out)
}

fn source(access: AccessName, shredded: Option<&str>) -> String {
    match access {
        AccessName::ShreddedColumn => format!("the indexed column {}", one_line(shredded.unwrap_or_default())),
        AccessName::SearchText => "the full-text column".to_owned(),
        AccessName::SearchTextAndShapes => "the full-text column and the path index".to_owned(),
        AccessName::SearchTextThenDocuments => "the full-text column, then documents".to_owned(),
        AccessName::Documents => "documents".to_owned(),
        AccessName::StoredHashes => "the stored hashes".to_owned(),
        AccessName::Codes => "the cached codes".to_owned(),
        AccessName::HashIndex => format!("the hash index of column {}", one_line(shredded.unwrap_or_default())),
        AccessName::KeptSet => "the cached first entity of each group".to_owned(),
        AccessName::KeptOrder => format!("the cached order of column {}", one_line(shredded.unwrap_or_default())),
    }
}

fn indented(out: &mut Formatter<'_>, lines: &str) -> fmt::Result {
    lines.lines().try_for_each(|line| writeln!(out, "  {}", one_line(line)))
}

/// A text that may come from a request, with what could break or reorder its line escaped.
fn one_line(text: &str) -> String {
    let escaped = |character: char| {
        if is_invisible(character) { character.escape_unicode().collect() } else { character.to_string() }
    };
    text.chars().map(escaped).collect()
}

fn counted(number_of: u64, one: &str, more: &str) -> String {
    format!("{} {}", number(number_of), if number_of == 1 { one } else { more })
}

fn number(number: u64) -> String {
    HumanCount(number).to_string()
}

pub(super) fn size(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

fn duration(microseconds: u64) -> String {
    match microseconds {
        0..10_000_000 => format!("{:.2} ms", microseconds as f64 / 1e3),
        _ => format!("{:.2} s", microseconds as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_readable_units() {
        for (microseconds, text) in [(0, "0.00 ms"), (1_234, "1.23 ms"), (61_000_000, "61.00 s")] {
            assert_eq!(duration(microseconds), text);
        }
    }

    #[test]
    fn line_breaks_are_escaped() {
        assert_eq!(one_line("a\nb\u{202e}c\u{e9}"), "a\\u{a}b\\u{202e}c\u{e9}");
    }
}
