//! `strata list`: lists the datasets of all users.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;
use strata_service::Services;
use strata_types::dataset::Dataset;
use strata_types::ids::UserId;

use super::error::CliError;
use super::table::{ColumnAlign, PAGE_ROWS, TextTable, TextTableColumn, escape_control_characters, or_dash};

/// List the datasets of all users
///
/// Prints one line for each dataset, ordered by ID: its slug, its owner's email address, the number of versions, the
/// active version and its file size, whether the dataset is pinned, private, or frozen, and its name.
#[derive(Debug, Args)]
pub(super) struct ListArguments {
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct DatasetLine {
    dataset_id: u64,
    name_slug: String,
    name: String,
    owner: Option<String>,
    versions: u64,
    active_version: Option<u64>,
    file_size_bytes: Option<u64>,
    pinned: bool,
    private: bool,
    frozen: bool,
}

const DATASET_COLUMNS: &[TextTableColumn<DatasetLine>] = &[
    ("ID", ColumnAlign::Right, |line| line.dataset_id.to_string()),
    ("SLUG", ColumnAlign::Left, |line| line.name_slug.clone()),
    ("OWNER", ColumnAlign::Left, |line| or_dash(line.owner.clone())),
    ("VERSIONS", ColumnAlign::Right, |line| line.versions.to_string()),
    ("ACTIVE", ColumnAlign::Left, |line| or_dash(line.active_version.map(|number| format!("v{number}")))),
    ("SIZE", ColumnAlign::Right, |line| or_dash(line.file_size_bytes.map(|bytes| HumanBytes(bytes).to_string()))),
    ("PINNED", ColumnAlign::Left, |line| yes_or_no(line.pinned)),
    ("PRIVATE", ColumnAlign::Left, |line| yes_or_no(line.private)),
    ("FROZEN", ColumnAlign::Left, |line| yes_or_no(line.frozen)),
    ("NAME", ColumnAlign::Left, |line| escape_control_characters(&line.name)),
];

fn yes_or_no(value: bool) -> String {
    if value { "yes" } else { "no" }.to_owned()
}

pub(super) async fn run(services: &Services, arguments: ListArguments) -> Result<(), CliError> {
    let mut table = TextTable::new(DATASET_COLUMNS);
    let mut after = None;
    loop {
        let datasets = services.datasets.list_all(after, PAGE_ROWS).await?;
        table.print(&dataset_lines(services, &datasets).await?, arguments.json)?;
        let Some(last) = datasets.last() else { return Ok(()) };
        after = Some(last.id);
    }
}

async fn dataset_lines(services: &Services, datasets: &[Dataset]) -> Result<Vec<DatasetLine>, CliError> {
    let mut owners: HashMap<UserId, Option<String>> = HashMap::new();
    let mut lines = Vec::with_capacity(datasets.len());
    for dataset in datasets {
        let owner = match owners.entry(dataset.owner) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(unknown) => {
                unknown.insert(services.accounts.user(dataset.owner).await?.map(|user| user.email))
            }
        };
        lines.push(DatasetLine {
            dataset_id: dataset.id.get(),
            name_slug: dataset.name.slug().to_owned(),
            name: dataset.name.to_string(),
            owner: owner.clone(),
            // Version numbers are consecutive and start at 1, so the latest number is the number of versions.
            versions: dataset.latest_version.map_or(0, |number| number.get()),
            active_version: dataset.active_version().map(|number| number.get()),
            file_size_bytes: services.datasets.active_file_bytes(dataset).await?,
            pinned: dataset.pinned_version.is_some(),
            private: dataset.is_private(),
            frozen: dataset.frozen,
        });
    }
    Ok(lines)
}
