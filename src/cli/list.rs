//! `strata list`: lists the datasets of all users.

use std::collections::HashMap;

use clap::Args;
use indicatif::HumanBytes;
use serde::Serialize;

use super::closing;
use super::error::CliError;
use super::table::{Align, PAGE, Table, visible};
use crate::config::Config;
use crate::model::dataset::Dataset;
use crate::model::ids::UserId;
use crate::service::App;

/// List the datasets of all users
///
/// Prints a line for each dataset, by id: its slug, the e-mail address of its owner, the number of its versions, its
/// active version, the size of that one's file, whether it is pinned, whether the dataset is private or frozen, and its
/// name.
#[derive(Debug, Args)]
pub(super) struct Arguments {
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line {
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

pub(super) async fn run(arguments: Arguments, config: Config) -> Result<(), CliError> {
    let app = App::open_records(&config).await?;
    closing(&app, list(&app, &arguments)).await
}

async fn list(app: &App, arguments: &Arguments) -> Result<(), CliError> {
    let mut table = Table::new([
        ("ID", Align::Right),
        ("SLUG", Align::Left),
        ("OWNER", Align::Left),
        ("VERSIONS", Align::Right),
        ("ACTIVE", Align::Left),
        ("SIZE", Align::Right),
        ("PINNED", Align::Left),
        ("PRIVATE", Align::Left),
        ("FROZEN", Align::Left),
        ("NAME", Align::Left),
    ]);
    let mut after = None;
    loop {
        let datasets = app.datasets().all(after, PAGE).await?;
        table.print(lines(app, &datasets).await?, arguments.json, cells)?;
        let Some(last) = datasets.last() else { return Ok(()) };
        after = Some(last.id);
    }
}

/// The lines about a page of datasets. Owners are looked up once for a page.
async fn lines(app: &App, datasets: &[Dataset]) -> Result<Vec<Line>, CliError> {
    let mut owners: HashMap<UserId, Option<String>> = HashMap::new();
    let mut lines = Vec::with_capacity(datasets.len());
    for dataset in datasets {
        let owner = match owners.get(&dataset.owner) {
            Some(owner) => owner.clone(),
            None => {
                let owner = app.accounts().user(dataset.owner).await?.map(|user| user.email);
                owners.insert(dataset.owner, owner.clone());
                owner
            }
        };
        lines.push(Line {
            dataset_id: dataset.id.get(),
            name_slug: dataset.name.slug().to_owned(),
            name: dataset.name.to_string(),
            owner,
            // Numbers of versions are consecutive, from 1.
            versions: dataset.latest_version.map_or(0, |number| number.get()),
            active_version: dataset.active_version().map(|number| number.get()),
            file_size_bytes: app.datasets().active_file_bytes(dataset).await?,
            pinned: dataset.pinned_version.is_some(),
            private: dataset.is_private(),
            frozen: dataset.frozen,
        });
    }
    Ok(lines)
}

fn cells(line: Line) -> [String; 10] {
    let yes = |holds: bool| if holds { "yes" } else { "no" }.to_owned();
    [
        line.dataset_id.to_string(),
        line.name_slug,
        line.owner.unwrap_or_else(|| "-".to_owned()),
        line.versions.to_string(),
        line.active_version.map_or_else(|| "-".to_owned(), |number| format!("v{number}")),
        line.file_size_bytes.map_or_else(|| "-".to_owned(), |bytes| HumanBytes(bytes).to_string()),
        yes(line.pinned),
        yes(line.private),
        yes(line.frozen),
        visible(&line.name),
    ]
}
