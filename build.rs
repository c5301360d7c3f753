//! Rebuilds when a migration is added: `sqlx::migrate!` reads the folder while compiling.

fn main() {
    println!("cargo:rerun-if-changed=sql");
}
