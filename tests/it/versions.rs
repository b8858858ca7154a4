//! Which APIs and versions are answered, and what becomes of all others.

use corelog::api::table::{API_VERSIONS, APIS, PRODUCE};
use corelog_wire::messages::{APIS as SCHEMAS, api_versions};
use corelog_wire::primitives::Reader;

use crate::broker::Home;
use crate::client::{minimal, raw_frame};

#[test]
fn what_is_advertised_is_the_table() {
    let home = Home::new();
    let broker = home.start(1, &[]);
    let answer = broker.connect().try_api_versions().unwrap();
    let advertised: Vec<_> = answer
        .api_keys
        .iter()
        .map(|api| (api.api_key, api.min_version, api.max_version))
        .collect();
    let table: Vec<_> = APIS
        .iter()
        //
        .map(|api| {
            (
                api.key,
                if api.key == PRODUCE { 0 } else { api.min },
                api.max,
            )
        })
        .collect();
    assert_eq!(advertised, table);
}

#[test]
fn every_version_of_every_api_is_answered() {
    let home = Home::new();
    let broker = home.start(2, &[]);
    let mut client = broker.connect();
    for api in APIS {
        for version in api.min..=api.max {
            minimal(&mut client, api.key, version);
        }
    }
    broker.stop();
}

#[test]
fn other_versions_close_the_connection() {
    let home = Home::new();
    let broker = home.start(1, &[]);
    for api in APIS.iter().filter(|api| api.key != API_VERSIONS) {
        for version in [api.min - 1, api.max + 1, i16::MAX, i16::MIN] {
            let mut client = broker.connect();
            client
                .write(&raw_frame(api.key, version, &[0; 64]))
                .unwrap();
            assert!(client.is_closed(), "{} v{version} was answered", api.name);
        }
    }
}

#[test]
fn other_apis_close_the_connection() {
    let home = Home::new();
    let broker = home.start(1, &[]);
    let served = |key: i16| APIS.iter().any(|api| api.key == key);
    let known = SCHEMAS.iter().map(|schema| schema.key);
    for key in known
        .chain([-1, 4, 7, 1000, i16::MAX, i16::MIN])
        .filter(|key| !served(*key))
    {
        let mut client = broker.connect();
        client.write(&raw_frame(key, 0, &[0; 64])).unwrap();
        assert!(client.is_closed(), "API {key} was answered");
    }
}

#[test]
fn too_new_an_api_versions_request_is_answered_in_version_0() {
    let home = Home::new();
    let broker = home.start(1, &[]);
    let mut client = broker.connect();
    // Its header has a count of tagged fields; its body can't be read.
    client
        .write(&raw_frame(API_VERSIONS, 99, &[0, 0xff, 0xff, 0xff]))
        .unwrap();
    let mut reader = Reader::new(client.read_frame().unwrap());
    assert_eq!(reader.i32().unwrap(), 7);
    let answer = api_versions::Response::decode(&mut reader, 0).unwrap();
    assert_eq!(answer.error_code, 35);
    assert!(
        answer
            .api_keys
            .iter()
            .any(|api| (api.api_key, api.max_version) == (18, 5))
    );
}
