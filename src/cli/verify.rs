//! `strata verify`: prints the content digest of a file.

use std::path::PathBuf;

use clap::Args;
use strata_service::digest_file;

use super::error::CliError;
use super::print_stdout;

/// Print the digest of a file, to compare it with the content_sha256 of a version
///
/// The digest is the SHA-256 of the entities as JSON Lines. FILE can be a whole version as JSON Lines or JSON, or a
/// version file of a store, which is also verified. If it refers to other version files, they must be in the same store
/// or copy of a store. Prints the digest and the name of the file, like sha256sum.
#[derive(Debug, Args)]
pub(super) struct VerifyArguments {
    /// File
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub(super) async fn run(VerifyArguments { file }: &VerifyArguments) -> Result<(), CliError> {
    match digest_file(file).await {
        Ok(digest) => print_stdout(&format!("{digest}  {}\n", file.display())),
        Err(source) => Err(CliError::Verify { file: file.clone(), source }),
    }
}
