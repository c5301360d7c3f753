//! The explanation as text for people: sections of aligned lines.

use std::fmt::{self, Formatter};

use indicatif::{HumanBytes, HumanCount};
use strata_query::distribution::{DistributionReport, NodeReport};
use strata_query::explain::PlanOperator;
use strata_query::scan::scan_report::{AccessPath, KeySourceReport, PredicateReport, ScanReport};
use strata_types::invisible_text::is_invisible;

use super::ReadExplanation;
use super::record::{CacheLookups, CachedResponses};
use crate::admission::CostClass;
use crate::export_cache::ExportState;

impl fmt::Display for ReadExplanation {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let alt = if self.alt { ", alternate" } else { "" };
        let ReadExplanation { dataset_id, name_slug, version, .. } = self;
        writeln!(out, "Query on dataset {dataset_id} ({name_slug}), version {version}{alt}")?;
        let entities = format_count_with_noun(self.entity_count, "entity", "entities");
        writeln!(out, "  {entities}, {} of documents", format_size(self.document_bytes))?;
        self.write_request(out)?;
        self.write_response(out)?;
        writeln!(out, "\nLogical plan")?;
        write_indented(out, &self.logical_plan)?;
        if let Some(optimized) = &self.optimized_plan {
            writeln!(out, "\nOptimized plan")?;
            write_indented(out, optimized)?;
        }
        writeln!(out, "\nPhysical plan")?;
        write_plan(out, &self.operators)?;
        if let Some(report) = &self.distributed {
            write_nodes(out, report)?;
        }
        match &self.scan {
            Some(scan) => write_scan(out, scan)?,
            None if self.distributed.is_some() => {}
            None => writeln!(out, "\nScan\n  none: no entities had to be read")?,
        }
        self.write_file_parts(out)?;
        if !self.hints.is_empty() {
            writeln!(out, "\nHints")?;
            self.hints.iter().try_for_each(|hint| writeln!(out, "  - {}", escape_line(hint)))?;
        }
        Ok(())
    }
}

impl ReadExplanation {
    fn write_request(&self, out: &mut Formatter<'_>) -> fmt::Result {
        writeln!(out, "\nRequest")?;
        for ignored in &self.ignored {
            writeln!(out, "  {}", escape_line(&ignored.to_string()))?;
        }
        if self.request.is_empty() {
            return writeln!(out, "  all defaults");
        }
        let width = self.request.iter().map(|parameter| parameter.name.len()).max().unwrap_or_default();
        self.request
            .iter()
            .try_for_each(|parameter| writeln!(out, "  {:width$}  {}", parameter.name, escape_line(&parameter.value)))
    }

    fn write_response(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let answer = &self.answer;
        writeln!(out, "\nResponse")?;
        let total = if self.request.iter().any(|parameter| parameter.name == "count") {
            format!("a count of {}", format_count(answer.total))
        } else {
            format_count_with_noun(answer.total, "entity", "entities")
        };
        let parts = if answer.streamed { "streamed" } else { "not streamed" };
        write!(out, "  {total}, {} of {}", format_size(answer.body_bytes), answer.content_type)?;
        if let Some(columns) = answer.columns {
            write!(out, ", {}", format_count_with_noun(columns, "column", "columns"))?;
        }
        writeln!(out, ", {parts}")?;
        if let Some(matches) = answer.matches {
            let matches = format_count_with_noun(matches, "entity matches", "entities match");
            writeln!(out, "  {matches} in total, across all pages")?;
        }
        let work = &self.work;
        let [bytes, heavy, medium] = [work.work_bytes, work.heavy_bytes, work.medium_bytes].map(format_size);
        let weight = match work.weight {
            CostClass::Heavy => "heavy",
            CostClass::Medium => "medium",
            CostClass::Light => "light",
        };
        let limits = format!("query.medium_bytes is {medium}, query.heavy_bytes is {heavy}");
        writeln!(out, "  estimated work: {bytes}, {weight} ({limits})")?;
        match &self.kept {
            Some(cached) => writeln!(out, "  {}", describe_cached(cached))?,
            None => writeln!(out, "  response cache: not available on the command line")?,
        }
        writeln!(out, "\nTime")?;
        for stage in &self.stages {
            writeln!(out, "  {:>10}  {}", format_duration(stage.duration_us), stage.stage.description())?;
        }
        writeln!(out, "  {:>10}  total", format_duration(self.total_us))
    }

    fn write_file_parts(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let documents = &self.documents;
        writeln!(out, "\nDocument pages")?;
        for (pages, what) in [
            (documents.pages, "in the file"),
            (documents.pages_to_select, "read to select entities"),
            (documents.pages_to_answer, "read for the response"),
            (documents.pages_not_read, "not read"),
        ] {
            writeln!(out, "  {:>10}  {what}", format_count(pages))?;
        }
        if let Some(bytes) = documents.spilled_bytes {
            writeln!(out, "  {:>10}  of documents sorted on disk", format_size(bytes))?;
        }
        let parts = &self.parts;
        writeln!(out, "\nParts of the file\n      cached     fetched")?;
        for (CacheLookups { hits, misses }, what) in [
            (parts.footers, "footer"),
            (parts.keyword_index, "keyword index entries and posting lists"),
            (parts.columns, "column chunks"),
            (parts.document_pages, "document pages"),
        ] {
            if hits + misses > 0 {
                writeln!(out, "  {:>10}  {:>10}  {what}", format_count(hits), format_count(misses))?;
            }
        }
        let requests = format_count_with_noun(parts.requests, "request", "requests");
        writeln!(out, "  {} from the store in {requests}", format_size(parts.request_bytes))
    }
}

fn describe_cached(cached: &CachedResponses) -> String {
    match (cached.cacheable, cached.export) {
        (false, _) => "never cached: without a seed, each request draws a new sample".to_owned(),
        (true, Some(ExportState::Made)) => "cached on disk: requests use this export".to_owned(),
        (true, Some(ExportState::BeingMade)) => "the export is being built for the disk cache".to_owned(),
        (true, Some(ExportState::TooLarge)) => "not cached: the export does not fit into the export cache".to_owned(),
        (true, None) if cached.response.is_empty() => "not in the response cache".to_owned(),
        (true, None) => format!("cached in memory with these encodings: {}", cached.response.join(", ")),
    }
}

fn write_plan(out: &mut Formatter<'_>, operators: &[PlanOperator]) -> fmt::Result {
    writeln!(out, "        rows       bytes        time  operator")?;
    for operator in operators {
        let rows = operator.rows.map_or_else(|| "-".to_owned(), format_count);
        let bytes = operator.bytes.map_or_else(|| "-".to_owned(), format_size);
        let time = operator.compute_us.map_or_else(|| "-".to_owned(), format_duration);
        let indent = operator.depth as usize * 2;
        write!(out, "  {rows:>10}  {bytes:>10}  {time:>10}  {:indent$}{}", "", escape_line(&operator.operator))?;
        if operator.spills > 0 {
            let files = format_count_with_noun(operator.spills, "file", "files");
            write!(out, " [spilled {} in {files}]", format_size(operator.spilled_bytes))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_nodes(out: &mut Formatter<'_>, report: &DistributionReport) -> fmt::Result {
    writeln!(out, "\nNodes\n  row groups     to read        rows       bytes  node")?;
    for NodeReport { node, is_own, row_groups, stored_bytes, rows, bytes } in &report.nodes {
        let suffix = if *is_own { " (this node)" } else { "" };
        let [row_groups, rows] = [format_count(*row_groups), format_count(*rows)];
        let [stored, bytes] = [format_size(*stored_bytes), format_size(*bytes)];
        writeln!(out, "  {row_groups:>10}  {stored:>10}  {rows:>10}  {bytes:>10}  {}{suffix}", escape_line(node))?;
    }
    match &report.fallback {
        Some(reason) => writeln!(out, "  ran again on this node only: {}", escape_line(reason)),
        None => Ok(()),
    }
}

fn write_scan(out: &mut Formatter<'_>, scan: &ScanReport) -> fmt::Result {
    writeln!(out, "\nScan")?;
    let groups = &scan.row_groups;
    write!(out, "  row groups: {} in total, {} scanned", format_count(groups.total), format_count(groups.scanned))?;
    for (count, why) in [
        (groups.pruned_by_numbers, "pruned by the minimum and maximum numeric values"),
        (groups.pruned_by_texts, "pruned by the minimum and maximum string values"),
        (groups.pruned_by_keyword_index, "pruned by keyword index"),
        (groups.pruned_by_hash_index, "pruned by hash index"),
        (groups.pruned_by_order, "pruned by the top-k threshold"),
        (groups.outside_positions, "outside the requested positions"),
        (groups.not_reached, "not reached"),
    ] {
        if count > 0 {
            write!(out, ", {} {why}", format_count(count))?;
        }
    }
    let [first, end] = [scan.first_position, scan.end_position].map(format_count);
    writeln!(out, "\n  positions: from {first} up to {end}")?;
    let [tested, selected] = [scan.rows_tested, scan.rows_selected].map(format_count);
    writeln!(out, "  entities: {tested} tested, {selected} selected")?;
    scan.predicates.iter().try_for_each(|predicate| write_predicate(out, predicate))?;
    if let Some(verified) = &scan.verification {
        let [before, after] = [verified.rows_in, verified.rows_out].map(format_count);
        let pages = format_count_with_noun(verified.pages, "page", "pages");
        writeln!(out, "  verified in documents: {before} -> {after}, {pages}")?;
    }
    if let Some(rows) = scan.left_out_early {
        writeln!(out, "  entities skipped by the top-k threshold: {}", format_count(rows))?;
    }
    if let Some(rows) = scan.duplicates_left_out {
        writeln!(out, "  duplicates skipped during the scan: {}", format_count(rows))?;
    }
    for (name, keys) in [("sort", &scan.sort), ("dedup", &scan.dedup)] {
        if let Some(KeySourceReport { by, access, column, pages }) = keys {
            let from = describe_access(*access, column.as_deref());
            write!(out, "  {name} by {}: from {from}", escape_line(by))?;
            match pages {
                0 => writeln!(out)?,
                pages => writeln!(out, ", {}", format_count_with_noun(*pages, "document page", "document pages"))?,
            }
        }
    }
    Ok(())
}

fn write_predicate(out: &mut Formatter<'_>, report: &PredicateReport) -> fmt::Result {
    let access = describe_access(report.access, report.column.as_deref());
    write!(out, "  {}: by {access}", escape_line(&report.predicate))?;
    match report.rows_in.zip(report.rows_out) {
        Some((before, after)) => writeln!(out, ", {} -> {}", format_count(before), format_count(after))?,
        None => writeln!(out)?,
    }
    if let Some(whole) = report.settled_by_statistics.filter(|whole| *whole > 0) {
        let row_groups = format_count_with_noun(whole, "row group", "row groups");
        writeln!(out, "    statistics: all entities of {row_groups} match")?;
    }
    let Some(index) = &report.keyword_index else { return Ok(()) };
    let entities = format_count_with_noun(index.rows, "entity", "entities");
    write!(out, "    keyword index: {entities}; row groups:")?;
    let mut separator = "";
    for (count, what) in
        [(index.exact, "exact"), (index.candidates, "with candidates"), (index.left_to_scan, "scanned instead")]
    {
        if count > 0 {
            write!(out, "{separator} {} {what}", format_count(count))?;
            separator = ",";
        }
    }
    writeln!(out)
}

fn describe_access(access: AccessPath, column: Option<&str>) -> String {
    match access {
        AccessPath::ShreddedColumn => format!("the indexed column {}", escape_line(column.unwrap_or_default())),
        AccessPath::KeywordIndex => "the keyword index".to_owned(),
        AccessPath::Documents => "documents".to_owned(),
        AccessPath::StoredHashes => "the stored hashes".to_owned(),
        AccessPath::Codes => "the cached codes".to_owned(),
        AccessPath::HashIndex => format!("the hash index of column {}", escape_line(column.unwrap_or_default())),
        AccessPath::KeptSet => "the cached first entity of each group".to_owned(),
        AccessPath::KeptOrder => format!("the cached order of column {}", escape_line(column.unwrap_or_default())),
    }
}

fn write_indented(out: &mut Formatter<'_>, lines: &str) -> fmt::Result {
    lines.lines().try_for_each(|line| writeln!(out, "  {}", escape_line(line)))
}

fn escape_line(text: &str) -> String {
    let escaped = |character: char| {
        if is_invisible(character) { character.escape_unicode().collect() } else { character.to_string() }
    };
    text.chars().map(escaped).collect()
}

fn format_count_with_noun(count: u64, singular: &str, plural: &str) -> String {
    format!("{} {}", format_count(count), if count == 1 { singular } else { plural })
}

fn format_count(number: u64) -> String {
    HumanCount(number).to_string()
}

pub(super) fn format_size(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

fn format_duration(microseconds: u64) -> String {
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
            assert_eq!(format_duration(microseconds), text);
        }
    }

    #[test]
    fn line_breaks_are_escaped() {
        assert_eq!(escape_line("a\nb\u{202e}c\u{e9}"), "a\\u{a}b\\u{202e}c\u{e9}");
    }
}
