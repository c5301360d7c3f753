//! The generated node name in the data directory.

use std::path::Path;

use strata_cluster::identity::load_node_id;
use strata_config::Config;
use strata_types::error_chain::ErrorChain;
use strata_types::node::NodeId;

/// Returns the configuration of one of several nodes.
fn config(directory: &Path) -> Config {
    let mut config = Config::default();
    config.data.directory = directory.to_owned();
    config.cluster.lost_after_s = 60;
    config
}

fn name(config: &Config) -> NodeId {
    load_node_id(config).expect("created or read").expect("a name")
}

#[test]
fn name_is_created_once_for_all_processes() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = config(directory.path());
    let names = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| name(&config))).collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect::<Vec<NodeId>>()
    });
    assert!(names.iter().all(|name| *name == names[0]), "{names:?}");
    assert_eq!(name(&config), names[0]);
}

#[test]
fn name_file_is_filled_if_empty_rejected_if_invalid() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = config(directory.path());
    let path = directory.path().join("node.id");
    std::fs::write(&path, "").expect("written");
    let name = name(&config);
    assert_eq!(std::fs::read_to_string(&path).expect("read"), format!("{name}\n"));
    std::fs::write(&path, "two words\n").expect("written");
    let error = load_node_id(&config).expect_err("rejected");
    assert!(ErrorChain(&error).to_string().contains("the name is invalid"), "{}", ErrorChain(&error));
}

#[test]
fn service_of_one_data_directory_has_no_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut config = config(directory.path());
    config.cluster.lost_after_s = Config::default().cluster.lost_after_s;
    assert_eq!(load_node_id(&config).expect("none needed"), None);
    assert_eq!(std::fs::read_dir(directory.path()).expect("read").count(), 0);
    config.cluster.lost_after_s = 60;
    config.cluster.node = Some("a".to_owned().try_into().expect("a name"));
    assert_eq!(name(&config).as_str(), "a");
}
