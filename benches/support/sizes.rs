//! The numbers of entities from the command line.

/// The sizes that a benchmark of one version measures.
#[derive(clap::Args)]
pub struct Sizes {
    /// Numbers of entities, or `all`: 100000 and 1000000
    #[arg(value_name = "ENTITIES", default_value = "100000")]
    sizes: Vec<String>,
}

impl Sizes {
    /// Returns each number of entities.
    pub fn each(&self) -> Vec<u64> {
        sizes(&self.sizes, &[100_000, 1_000_000])
    }
}

/// Parses numbers; the text `all` stands for the numbers in `all`.
pub fn sizes(texts: &[String], all: &[u64]) -> Vec<u64> {
    let size = |text: &String| match text.as_str() {
        "all" => all.to_vec(),
        number => vec![number.replace([',', '_'], "").parse().expect("a number of entities, or `all`")],
    };
    let sizes: Vec<u64> = texts.iter().flat_map(size).collect();
    assert!(sizes.iter().all(|size| *size >= 1_000), "less than 1,000 entities measure nothing");
    sizes
}
