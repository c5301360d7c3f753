//! Writes a version file from JSON Lines on standard input, without a server:
//!
//! ```console
//! $ printf '{"city":"Bern"}\n{"city":"Basel"}\n' | cargo run -p strata-query --example write_version -- cities.parquet
//! cities.parquet: 2 entities, 5632 bytes
//! ```

use std::error::Error;
use std::path::absolute;

use object_store::path::Path as ObjectPath;
use strata_format::spool::SpoolWriter;
use strata_format::writer::{WriteOptions, write_version};
use strata_json::canonicalize;
use strata_store::spool_quota::SpoolReservation;
use strata_store::store::{self, S3Options};

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("usage: write_version FILE < ENTITIES.jsonl")?;
    let path = absolute(&file)?;
    let directory = path.parent().ok_or("FILE must be in a directory")?;
    let name = path.file_name().ok_or("FILE must have a name")?.to_string_lossy();

    // The first pass stores the entities on disk, and selects the paths that get an indexed column.
    let mut spool = SpoolWriter::create(directory, SpoolReservation::unbounded())?;
    for line in std::io::stdin().lines() {
        let mut entity = Vec::new();
        canonicalize(line?.as_bytes(), &mut entity)?;
        entity.push(b'\n');
        spool.add_lines(&entity)?;
    }

    // The second pass writes the Parquet file.
    let store = store::open_store(&format!("file://{}", directory.display()), &S3Options::default())?;
    let runtime = tokio::runtime::Runtime::new()?;
    let object = ObjectPath::from(name.as_ref());
    let written = write_version(&store, &object, spool.finish()?, &WriteOptions::default(), runtime.handle(), &|_| {})?;
    println!("{file}: {} entities, {} bytes", written.entity_count, written.size_bytes);
    Ok(())
}
