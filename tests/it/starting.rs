//! The first start, and what a start warns about.

use std::fs;

use crate::broker::{Home, eventually};

#[test]
fn a_first_start_formats_an_empty_directory_and_answers() {
    let home = Home::new();
    assert!(!home.data().exists());
    let broker = home.start(2, &[]);
    let versions = broker.connect().try_api_versions().unwrap();
    assert_eq!(versions.error_code, 0);
    let meta = fs::read_to_string(home.data().join("meta.properties")).unwrap();
    assert!(
        meta.contains("cluster.id=") && meta.contains("node.id=1"),
        "{meta}"
    );
    assert!(
        home.told().contains("formatted an empty log directory"),
        "{}",
        home.told()
    );
    broker.stop();
}

#[test]
fn a_second_start_keeps_the_identity() {
    let home = Home::new();
    home.start(1, &[]).stop();
    let meta = fs::read_to_string(home.data().join("meta.properties")).unwrap();
    home.start(1, &[]).stop();
    let again = fs::read_to_string(home.data().join("meta.properties")).unwrap();
    assert_eq!(meta, again);
    assert_eq!(home.told().matches("formatted an empty").count(), 1);
}

#[test]
fn an_unknown_property_is_warned_of_with_the_nearest_name() {
    let home = Home::new();
    let broker = home.start(1, &["num.partitons=3"]);
    eventually("the warning is told", || {
        let told = home.told();
        let warned = told.lines().any(|line| {
            line.contains("WARN")
                && line.contains("num.partitons")
                && line.contains("num.partitions")
        });
        warned.then_some(())
    });
    broker.stop();
}

#[test]
fn an_ordinary_run_warns_of_nothing() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    let topic = crate::topic::create(&mut client, "calm", 4);
    crate::topic::append(&mut client, &topic, 2, &crate::topic::values("v", 3));
    broker.stop();
    let told = home.told();
    let loud: Vec<&str> = told
        .lines()
        .filter(|line| line.contains("WARN") || line.contains("ERROR") || line.contains("panicked"))
        .collect();
    assert!(loud.is_empty(), "{loud:#?}");
}
