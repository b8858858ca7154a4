//! A start that fails says what, why and what to do, and has touched nothing.

use std::fs;
use std::net::TcpListener;

use crate::broker::{Home, files};

/// Fails, with a message that holds each of `parts`.
fn fails_with(home: &Home, more: &[&str], parts: &[&str]) {
    let (status, told) = home.fails(more);
    assert!(!status.success(), "it ended with {status}");
    assert!(!told.contains("panicked"), "{told}");
    for part in parts {
        assert!(told.contains(part), "{part:?} is not in:\n{told}");
    }
}

#[test]
fn a_port_in_use_is_told_before_a_directory_is_touched() {
    let home = Home::new();
    let taken = TcpListener::bind(("127.0.0.1", home.port())).unwrap();
    let address = format!("127.0.0.1:{}", home.port());
    fails_with(&home, &[], &[&address, "in use", "listeners"]);
    assert!(!home.data().exists(), "{:?}", files(&home.data()));
    drop(taken);
    home.start(1, &[]).stop();
}

#[test]
fn a_console_port_in_use_is_told_before_a_directory_is_touched() {
    let home = Home::new();
    let _taken = TcpListener::bind(home.admin()).unwrap();
    fails_with(
        &home,
        &[],
        &["admin.listener", "in use", "another host:port"],
    );
    assert!(!home.data().exists());
}

#[test]
fn a_directory_of_a_running_broker_is_refused() {
    let home = Home::new();
    let broker = home.start(1, &[]);
    let other = Home::new();
    let pid = broker.pid().to_string();
    let dirs = format!("log.dirs={}", home.data().display());
    fails_with(&other, &[&dirs], &["is in use", &pid, "log.dirs"]);
    assert!(broker.connect().try_api_versions().is_some());
    broker.stop();
}

#[test]
fn a_bad_value_is_told_with_the_property_and_what_would_do() {
    for (setting, parts) in [
        ("num.partitions=none", ["num.partitions", "none"]),
        (
            "socket.request.max.bytes=-5",
            ["socket.request.max.bytes", "-5"],
        ),
        (
            "memory.budget.bytes=1000",
            ["memory.budget.bytes", "16777216"],
        ),
        ("listeners=PLAINTEXT//nowhere", ["listeners", "nowhere"]),
        ("engine=blocking", ["engine", "percore"]),
        (
            "cores=9999",
            ["cores: core 9999 is not among those", "change the list"],
        ),
        ("cores=0-", ["cores", "2-5"]),
    ] {
        let home = Home::new();
        fails_with(&home, &[setting], &parts);
        assert!(!home.data().exists(), "{setting} touched the directory");
    }
}

#[test]
fn a_directory_of_another_cluster_is_refused() {
    let home = Home::new();
    let dirs = [home.path("a"), home.path("b")];
    let both = format!("log.dirs={},{}", dirs[0].display(), dirs[1].display());
    home.start(1, &[&both]).stop();
    let path = dirs[1].join("meta.properties");
    let meta = fs::read_to_string(&path).unwrap();
    let foreign: String = meta
        .lines()
        .map(|line| {
            if line.starts_with("cluster.id=") {
                "cluster.id=AAAAAAAAAAAAAAAAAAAAAA\n".to_owned()
            } else {
                format!("{line}\n")
            }
        })
        .collect();
    fs::write(&path, &foreign).unwrap();
    let before = files(&dirs[0]);
    fails_with(
        &home,
        &[&both],
        &[
            "belongs to cluster AAAAAAAAAAAAAAAAAAAAAA",
            "give a directory of this cluster",
            dirs[1].to_str().unwrap(),
        ],
    );
    assert_eq!(files(&dirs[0]), before);
    assert_eq!(fs::read_to_string(&path).unwrap(), foreign);
}

#[test]
fn a_directory_that_is_named_twice_is_refused() {
    let home = Home::new();
    fs::create_dir(home.path("a")).unwrap();
    std::os::unix::fs::symlink(home.path("a"), home.path("b")).unwrap();
    let both = format!(
        "log.dirs={},{}",
        home.path("a").display(),
        home.path("b").display()
    );
    fails_with(
        &home,
        &[&both],
        &["stands twice in log.dirs", home.path("b").to_str().unwrap()],
    );
    home.start(1, &[&format!("log.dirs={}", home.path("a").display())])
        .stop();
}

#[test]
fn a_directory_of_another_node_is_refused() {
    let home = Home::new();
    home.start(1, &["node.id=1"]).stop();
    fails_with(
        &home,
        &["node.id=2", "controller.quorum.voters="],
        &["node.id", "1", "2"],
    );
}

#[test]
fn a_start_does_not_put_new_metadata_beside_old_topics() {
    let home = Home::new();
    let dirs = [home.path("a"), home.path("b")];
    let both = format!("log.dirs={},{}", dirs[0].display(), dirs[1].display());
    home.start(1, &[&both]).stop();
    fs::remove_dir_all(&dirs[0]).unwrap();
    let before = files(&dirs[1]);
    fails_with(
        &home,
        &[&both],
        &[dirs[0].to_str().unwrap(), "metadata", "mount it", "format"],
    );
    assert_eq!(files(&dirs[1]), before);
}

#[test]
fn a_damaged_identity_is_told_with_the_way_out() {
    let home = Home::new();
    home.start(1, &[]).stop();
    let path = home.data().join("meta.properties");
    fs::write(&path, "garbage\n").unwrap();
    fails_with(
        &home,
        &[],
        &[path.to_str().unwrap(), "version is missing", "restore"],
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), "garbage\n");
}

#[test]
fn an_address_that_is_not_ours_is_told() {
    let home = Home::new();
    let listener = "listeners=PLAINTEXT://no-such-host.invalid:9092";
    fails_with(
        &home,
        &[listener],
        &["no-such-host.invalid", "set listeners to an address"],
    );
    assert!(!home.data().exists());
}

#[test]
fn a_directory_that_cannot_be_made_is_told() {
    let home = Home::new();
    fs::write(home.path("file"), "").unwrap();
    let below = home.path("file").join("data");
    fails_with(
        &home,
        &[&format!("log.dirs={}", below.display())],
        &[below.to_str().unwrap(), "check that"],
    );
}
