//! Prints the entities of a version file whose value at a path equals a string, without a server:
//!
//! ```console
//! $ cargo run -p strata-query --example read_version -- cities.parquet city Bern
//! {"city":"Bern"}
//! ```

use std::error::Error;
use std::ops::ControlFlow;
use std::path::absolute;
use std::sync::Arc;

use object_store::path::Path as ObjectPath;
use strata_format::cache::PartCache;
use strata_format::reader::VersionReader;
use strata_query::fetch::selected_documents;
use strata_query::{QueryEngine, QueryEngineOptions, QueryOutcome};
use strata_store::store::{self, S3Options};
use strata_types::field_path::FieldPath;
use strata_types::read_request::{PathValue, ReadRequest};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, key, value] = &arguments[..] else { return Err("usage: read_version FILE PATH VALUE".into()) };
    let path = absolute(file)?;
    let directory = path.parent().ok_or("FILE must be in a directory")?;
    let name = path.file_name().ok_or("FILE must have a name")?.to_string_lossy();

    let store = store::open_store(&format!("file://{}", directory.display()), &S3Options::default())?;
    let size_bytes = std::fs::metadata(&path)?.len();
    let cache = PartCache::new(256 << 20);
    let reader = VersionReader::open(&store, &ObjectPath::from(name.as_ref()), size_bytes, &cache).await?;

    let engine = QueryEngine::try_new(&QueryEngineOptions::default())?;
    let filter = PathValue { path: FieldPath::parse(key)?, value: value.clone() };
    let request = ReadRequest { filters: vec![filter], ..ReadRequest::default() };
    let QueryOutcome::Selection(selection) = engine.select(reader.clone(), Arc::new(request)).await? else {
        return Err("the request counts entities".into());
    };
    for chunk in selected_documents::selection_chunks(&reader, selection.len()) {
        let print = |entity: &[u8]| {
            println!("{}", String::from_utf8_lossy(entity));
            ControlFlow::Continue(())
        };
        selected_documents::for_each_document(&reader, selection.positions(), &chunk, print).await?;
    }
    Ok(())
}
