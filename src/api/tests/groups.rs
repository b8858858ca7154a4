//! Every version of the APIs of groups, against shards that own them.

use corelog_shards::base::error_code::ErrorCode;
use corelog_shards::coordinator::placement::partition_of;
use corelog_wire::messages::{
    delete_groups, describe_groups, find_coordinator, heartbeat, join_group, leave_group,
    list_groups, offset_commit, offset_delete, offset_fetch, sync_group,
};

use super::*;

const OFFSETS: &str = "__consumer_offsets";

macro_rules! ask {
    ($node:expr, $module:ident, $version:expr, $request:expr) => {{
        let (version, request) = ($version, $request);
        let key = $module::Request::KEY;
        let outcome = $node.send(key, version, |out| request.encode(out, version));
        $module::Response::decode(&mut body(outcome, key, version), version).unwrap()
    }};
}

/// A node whose groups live on both of its shards.
fn node() -> Node {
    let (mut node, _) = Node::with_topic(2, 2);
    node.create_topic(OFFSETS, 4, &[("cleanup.policy", "compact")]);
    node.client_id = Some(Text::from_static("client"));
    node
}

fn text(value: &str) -> Text {
    Text::from(value.to_owned())
}

fn join(member_id: &Text, instance: Option<&str>) -> join_group::Request {
    join_group::Request {
        group_id: text("g"),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 20_000,
        member_id: member_id.clone(),
        group_instance_id: instance.map(text),
        protocol_type: text("consumer"),
        protocols: vec![join_group::RequestProtocols {
            name: text("range"),
            metadata: Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]),
        }],
        reason: None,
    }
}

/// A member of the first generation, and the response to its join.
fn joined(node: &mut Node, version: i16, instance: Option<&str>) -> join_group::Response {
    let mut member_id = Text::empty();
    if version >= 4 && instance.is_none() {
        let told = ask!(node, join_group, version, join(&member_id, None));
        assert_eq!(ErrorCode(told.error_code), ErrorCode::MEMBER_ID_REQUIRED);
        member_id = told.member_id;
    }
    let request = join(&member_id, instance);
    let outcome = node.send(11, version, |out| request.encode(out, version));
    let open = waits(outcome);
    assert!(
        open.pending.parked(),
        "a join that waits holds no more than a place"
    );
    for shard in &mut node.shards {
        shard.pass_ms(3_000);
    }
    let answered = node.go_on(open);
    join_group::Response::decode(&mut body(answered, 11, version), version).unwrap()
}

fn sync(member_id: &Text, generation_id: i32) -> sync_group::Request {
    sync_group::Request {
        group_id: text("g"),
        generation_id,
        member_id: member_id.clone(),
        group_instance_id: None,
        protocol_type: Some(text("consumer")),
        protocol_name: Some(text("range")),
        assignments: vec![sync_group::RequestAssignments {
            member_id: member_id.clone(),
            assignment: Bytes::from_static(b"all"),
        }],
    }
}

fn commit(node: &Node, generation: i32, member_id: &Text, offset: i64) -> offset_commit::Request {
    let topic = |name: &str, topic_id: Uuid, partitions: &[i32]| offset_commit::RequestTopics {
        name: text(name),
        topic_id,
        partitions: partitions
            .iter()
            .map(|partition| offset_commit::RequestTopicsPartitions {
                partition_index: *partition,
                committed_offset: offset,
                committed_leader_epoch: 3,
                committed_metadata: Some(text("m")),
            })
            .collect(),
    };
    let id = node.image.topic("t").unwrap().id;
    offset_commit::Request {
        group_id: text("g"),
        generation_id_or_member_epoch: generation,
        member_id: member_id.clone(),
        topics: vec![
            topic("t", id, &[1, 7, 0]),
            topic("nope", Uuid([7; 16]), &[0]),
        ],
        ..offset_commit::Request::default()
    }
}

/// (code of the whole, partition, offset, epoch, code) of one topic.
type Fetched = (i16, Vec<(i32, i64, i32, i16)>);

fn fetch(node: &mut Node, version: i16, partitions: Option<&[i32]>) -> Fetched {
    let id = node.image.topic("t").unwrap().id;
    let old = partitions.map(|partitions| {
        vec![offset_fetch::RequestTopics {
            name: text("t"),
            partition_indexes: partitions.to_vec(),
        }]
    });
    let new = partitions.map(|partitions| {
        vec![offset_fetch::RequestGroupsTopics {
            name: text("t"),
            topic_id: id,
            partition_indexes: partitions.to_vec(),
        }]
    });
    let request = offset_fetch::Request {
        group_id: text("g"),
        topics: old,
        groups: vec![offset_fetch::RequestGroups {
            group_id: text("g"),
            topics: new,
            ..offset_fetch::RequestGroups::default()
        }],
        require_stable: version >= 7,
    };
    let response = ask!(node, offset_fetch, version, request);
    if version < 8 {
        let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
        let shown = partitions.map(|own| {
            (
                own.partition_index,
                own.committed_offset,
                own.committed_leader_epoch,
                own.error_code,
            )
        });
        return (response.error_code, shown.collect());
    }
    let group = &response.groups[0];
    assert!(version < 10 || group.topics.iter().all(|topic| topic.topic_id == id));
    let partitions = group.topics.iter().flat_map(|topic| &topic.partitions);
    let shown = partitions.map(|own| {
        (
            own.partition_index,
            own.committed_offset,
            own.committed_leader_epoch,
            own.error_code,
        )
    });
    (group.error_code, shown.collect())
}

#[test]
fn a_member_lives_its_life_in_every_version() {
    for version in 0..=9 {
        let mut node = node();
        let joined = joined(&mut node, version, None);
        assert_eq!(
            (joined.error_code, joined.generation_id),
            (0, 1),
            "version {version}"
        );
        assert_eq!(joined.protocol_name, Some(text("range")));
        assert_eq!(
            joined.protocol_type,
            (version >= 7).then(|| text("consumer"))
        );
        assert_eq!(
            (joined.members.len(), &joined.leader),
            (1, &joined.member_id)
        );
        assert!(
            joined.member_id.starts_with("client-"),
            "{}",
            joined.member_id
        );
        let id = joined.member_id;
        let other = version.min(5);
        let synced = ask!(node, sync_group, other, sync(&id, 1));
        assert_eq!(
            (synced.error_code, &synced.assignment[..]),
            (0, &b"all"[..])
        );
        let beat = |generation_id| heartbeat::Request {
            group_id: text("g"),
            generation_id,
            member_id: id.clone(),
            group_instance_id: None,
        };
        let other = version.min(4);
        assert_eq!(ask!(node, heartbeat, other, beat(1)).error_code, 0);
        let wrong = ask!(node, heartbeat, other, beat(2)).error_code;
        assert_eq!(ErrorCode(wrong), ErrorCode::ILLEGAL_GENERATION);
        leave_in_every_way(&mut node, version.min(5), &id);
    }
}

fn leave_in_every_way(node: &mut Node, version: i16, id: &Text) {
    let leave = |id: &Text| leave_group::Request {
        group_id: text("g"),
        member_id: id.clone(),
        members: vec![leave_group::RequestMembers {
            member_id: id.clone(),
            ..leave_group::RequestMembers::default()
        }],
    };
    let left = ask!(node, leave_group, version, leave(id));
    assert_eq!(left.error_code, 0);
    let again = ask!(node, leave_group, version, leave(id));
    let unknown = ErrorCode::UNKNOWN_MEMBER_ID.0;
    if version < 3 {
        assert_eq!(again.error_code, unknown);
    } else {
        assert_eq!(
            (again.error_code, again.members[0].error_code),
            (0, unknown)
        );
    }
}

#[test]
fn from_version_5_a_sync_says_what_it_speaks() {
    let mut node = node();
    let id = joined(&mut node, 9, None).member_id;
    let mute = sync_group::Request {
        protocol_name: None,
        ..sync(&id, 1)
    };
    let refused = ask!(node, sync_group, 5, mute.clone()).error_code;
    assert_eq!(ErrorCode(refused), ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
    assert_eq!(ask!(node, sync_group, 4, mute).error_code, 0);
}

#[test]
fn static_members_are_known_from_version_5_on() {
    for version in 5..=9 {
        let mut node = node();
        let joined = joined(&mut node, version, Some("i"));
        assert_eq!(joined.error_code, 0);
        assert_eq!(joined.members[0].group_instance_id, Some(text("i")));
        assert!(joined.member_id.starts_with("i-"), "{}", joined.member_id);
    }
}

#[test]
fn every_version_commits_and_fetches_what_it_can_say() {
    for version in 2..=10 {
        let mut node = node();
        let request = commit(&node, -1, &Text::empty(), 40 + i64::from(version));
        let response = ask!(node, offset_commit, version, request);
        let codes: Vec<i16> = response
            .topics
            .iter()
            .flat_map(|topic| topic.partitions.iter().map(|own| own.error_code))
            .collect();
        let unknown = if version >= 10 { 100 } else { 3 };
        assert_eq!(codes, [0, 3, 0, unknown], "version {version}");
        let (offset, epoch) = (40 + i64::from(version), if version >= 6 { 3 } else { -1 });
        for version in 1..=10 {
            let shown = if version >= 5 { epoch } else { -1 };
            let all = vec![(0, offset, shown, 0), (7, -1, -1, 0)];
            assert_eq!(
                fetch(&mut node, version, Some(&[0, 7])),
                (0, all),
                "version {version}"
            );
            if version >= 2 {
                let all = vec![(0, offset, shown, 0), (1, offset, shown, 0)];
                assert_eq!(fetch(&mut node, version, None), (0, all));
            }
        }
    }
}

#[test]
fn a_commit_of_a_group_that_there_is_not_is_told_so_from_version_9_on() {
    for (version, expected) in [
        (8, ErrorCode::ILLEGAL_GENERATION),
        (9, ErrorCode::GROUP_ID_NOT_FOUND),
    ] {
        let mut node = node();
        let request = commit(&node, 5, &text("m"), 1);
        let response = ask!(node, offset_commit, version, request);
        assert_eq!(
            ErrorCode(response.topics[0].partitions[0].error_code),
            expected
        );
    }
}

#[test]
fn without_the_offsets_topic_nobody_coordinates() {
    let (mut node, _) = Node::with_topic(1, 1);
    let code = ErrorCode::NOT_COORDINATOR.0;
    assert_eq!(
        ask!(node, join_group, 9, join(&Text::empty(), None)).error_code,
        code
    );
    assert_eq!(
        ask!(node, sync_group, 5, sync(&text("m"), 1)).error_code,
        code
    );
    assert_eq!(fetch(&mut node, 8, None), (code, Vec::new()));
    assert_eq!(fetch(&mut node, 7, None), (code, Vec::new()));
    assert_eq!(
        fetch(&mut node, 1, Some(&[0])),
        (0, vec![(0, -1, -1, code)])
    );
    let request = commit(&node, -1, &Text::empty(), 1);
    let committed = ask!(node, offset_commit, 9, request);
    assert_eq!(committed.topics[0].partitions[0].error_code, code);
}

#[test]
fn the_coordinator_is_found_in_every_version() {
    let mut node = node();
    for version in 0..=6 {
        let request = find_coordinator::Request {
            key: text("g"),
            key_type: 0,
            coordinator_keys: vec![text("g"), text("h")],
        };
        let response = ask!(node, find_coordinator, version, request);
        if version < 4 {
            assert_eq!(
                (response.error_code, response.node_id, response.port),
                (0, NODE, 9092)
            );
        } else {
            let found = response.coordinators.iter();
            let found: Vec<(&str, i16, i32)> = found
                .map(|own| (&*own.key, own.error_code, own.node_id))
                .collect();
            assert_eq!(found, [("g", 0, NODE), ("h", 0, NODE)]);
        }
    }
    let transactions = find_coordinator::Request {
        key: text("g"),
        key_type: 1,
        coordinator_keys: Vec::new(),
    };
    let refused = ask!(node, find_coordinator, 2, transactions).error_code;
    assert_eq!(ErrorCode(refused), ErrorCode::INVALID_REQUEST);
}

/// Two groups that live on different shards.
fn groups_of_both_shards(node: &Node) -> [Text; 2] {
    let offsets = node.image.topic(OFFSETS).unwrap().id;
    let mut found: [Option<Text>; 2] = [None, None];
    for number in 0..100 {
        let group = text(&format!("g{number}"));
        let owner = node.owner(offsets, partition_of(&group, 4));
        found[owner].get_or_insert(group);
    }
    found.map(Option::unwrap)
}

fn commit_for(node: &mut Node, group: &Text) {
    let request = offset_commit::Request {
        group_id: group.clone(),
        ..commit(node, -1, &Text::empty(), 5)
    };
    assert_eq!(
        ask!(node, offset_commit, 9, request).topics[0].partitions[0].error_code,
        0
    );
}

#[test]
fn administrators_see_the_groups_of_all_shards_in_request_order() {
    let mut node = node();
    let [first, second] = groups_of_both_shards(&node);
    commit_for(&mut node, &first);
    commit_for(&mut node, &second);
    for version in 0..=6 {
        let request = describe_groups::Request {
            groups: vec![second.clone(), text("nope"), first.clone()],
            include_authorized_operations: version >= 3,
        };
        let response = ask!(node, describe_groups, version, request);
        let shown = response.groups.iter();
        let shown: Vec<(&str, i16, &str)> = shown
            .map(|own| (&*own.group_id, own.error_code, &*own.group_state))
            .collect();
        let unknown = if version >= 6 { 69 } else { 0 };
        let expected = [
            (&*second, 0, "Empty"),
            ("nope", unknown, "Dead"),
            (&*first, 0, "Empty"),
        ];
        assert_eq!(shown, expected, "version {version}");
    }
    for version in 0..=5 {
        let request = list_groups::Request::default();
        let mut listed: Vec<String> = ask!(node, list_groups, version, request)
            .groups
            .iter()
            .map(|own| format!("{} {} {}", own.group_id, own.group_state, own.group_type))
            .collect();
        listed.sort();
        let mut expected = [&first, &second].map(|group| {
            let state = if version >= 4 { "Empty" } else { "" };
            format!(
                "{group} {state} {}",
                if version >= 5 { "Classic" } else { "" }
            )
        });
        expected.sort();
        assert_eq!(listed, expected);
    }
    let of_type = list_groups::Request {
        types_filter: vec![text("share")],
        ..list_groups::Request::default()
    };
    assert!(ask!(node, list_groups, 5, of_type).groups.is_empty());
}

#[test]
fn groups_are_deleted_with_their_offsets() {
    for version in 0..=3 {
        let mut node = node();
        let [first, second] = groups_of_both_shards(&node);
        commit_for(&mut node, &first);
        commit_for(&mut node, &second);
        let request = delete_groups::Request {
            groups_names: vec![first.clone(), text("nope"), second.clone()],
        };
        let response = ask!(node, delete_groups, version, request);
        let codes: Vec<i16> = response.results.iter().map(|own| own.error_code).collect();
        assert_eq!(codes, [0, 69, 0], "version {version}");
        let none = ask!(node, list_groups, 5, list_groups::Request::default());
        assert!(none.groups.is_empty());
    }
}

#[test]
fn offsets_are_deleted_one_by_one() {
    let mut node = node();
    let request = commit(&node, -1, &Text::empty(), 1);
    ask!(node, offset_commit, 9, request);
    let delete = |group: &str| offset_delete::Request {
        group_id: text(group),
        topics: vec![offset_delete::RequestTopics {
            name: text("t"),
            partitions: [0, 9]
                .map(|partition_index| offset_delete::RequestTopicsPartitions { partition_index })
                .to_vec(),
        }],
    };
    let response = ask!(node, offset_delete, 0, delete("g"));
    let codes: Vec<i16> = response.topics[0]
        .partitions
        .iter()
        .map(|own| own.error_code)
        .collect();
    assert_eq!((response.error_code, codes), (0, vec![0, 3]));
    assert_eq!(fetch(&mut node, 8, None).1, [(1, 1, 3, 0)]);
    let unknown = ask!(node, offset_delete, 0, delete("nope")).error_code;
    assert_eq!(ErrorCode(unknown), ErrorCode::GROUP_ID_NOT_FOUND);
}

#[test]
fn a_client_that_hangs_up_leaves_its_member_in_the_group() {
    let mut node = node();
    let request = join(&Text::empty(), None);
    let open = waits(node.send(11, 3, |out| request.encode(out, 3)));
    for (shard, to) in &open.parts {
        node.shards[usize::from(shard.0)].on(Event::Cancelled { to: *to });
    }
    for shard in &mut node.shards {
        shard.pass_ms(3_000);
        assert!(shard.replies.is_empty(), "nobody is there to be answered");
    }
    let request = describe_groups::Request {
        groups: vec![text("g")],
        include_authorized_operations: false,
    };
    let described = ask!(node, describe_groups, 6, request);
    assert_eq!(described.groups[0].members.len(), 1);
    assert_eq!(
        described.groups[0].members[0].client_host,
        text("/127.0.0.1")
    );
}
