//! Numbers of entities, as the command line gives them.

/// The sizes that a benchmark of one version measures.
#[derive(clap::Args)]
pub struct Sizes {
    /// Numbers of entities, or `all`: 100000 and 1000000
    #[arg(value_name = "ENTITIES", default_value = "100000")]
    sizes: Vec<String>,
}

impl Sizes {
    /// Each of them.
    pub fn each(&self) -> Vec<u64> {
        sizes(&self.sizes, &[100_000, 1_000_000])
    }
}

/// The sizes that the texts name: numbers, or `all` for these.
pub fn sizes(texts: &[String], all: &[u64]) -> Vec<u64> {
    let size = |text: &String| match text.as_str() {
        "all" => all.to_vec(),
        number => vec![number.replace([',', '_'], "").parse().expect("a number of entities, or `all`")],
    };
    let sizes: Vec<u64> = texts.iter().flat_map(size).collect();
    assert!(sizes.iter().all(|size| *size >= 1_000), "less than 1,000 entities measure nothing");
    sizes
}
