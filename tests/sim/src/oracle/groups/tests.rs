//! The oracle can fail.

use bytes::BufMut;
use corelog_shards::base::ids::{TopicPartition, Uuid};
use corelog_shards::group::request::{CommitEntry, JoinedMember, Named, OffsetOf};
use corelog_shards::part::PartitionRef;

use super::*;

const HOME: PartitionRef = PartitionRef {
    id: TopicPartition {
        topic_id: Uuid([1; 16]),
        partition: 0,
    },
    since: 0,
};

fn text(text: &'static str) -> Text {
    Text::from_static(text)
}

/// Asks and is answered at once.
fn ask(groups: &mut Groups, request: &Request, reply: &Reply) -> Checked {
    let to = ReplyTo(groups.order);
    groups.arrives(to, request);
    groups.answers(to, reply)
}

fn join(
    groups: &mut Groups,
    generation: i32,
    member: &'static str,
    all: &[&'static str],
) -> Checked {
    let request = Request::Join(Join {
        home: HOME,
        group: text("g"),
        member_id: Text::empty(),
        instance_id: None,
        client_id: Text::empty(),
        client_host: Text::empty(),
        session_timeout_ms: 1_000,
        rebalance_timeout_ms: 1_000,
        protocol_type: text("consumer"),
        protocols: Vec::new(),
        needs_known_id: false,
        may_skip_assignment: false,
    });
    let told = all.iter().map(|id| JoinedMember {
        member_id: text(id),
        instance_id: None,
        metadata: Bytes::new(),
    });
    let mut joined = Joined::error(ErrorCode::NONE, text(member));
    joined.generation = generation;
    joined.members = told.collect();
    ask(groups, &request, &Reply::Joined(joined))
}

fn sync(groups: &mut Groups, generation: i32, member: &'static str, given: &[i32]) -> Checked {
    let request = Request::Sync(Sync {
        home: HOME,
        group: text("g"),
        generation,
        member_id: text(member),
        instance_id: None,
        protocol_type: None,
        protocol: None,
        assignments: Vec::new(),
    });
    let mut assignment = bytes::BytesMut::new();
    for number in given {
        assignment.put_i32(*number);
    }
    let mut synced = Synced::error(ErrorCode::NONE);
    synced.assignment = assignment.freeze();
    ask(groups, &request, &Reply::Synced(synced))
}

fn commit(groups: &mut Groups, generation: i32, member: &'static str, offset: i64) -> Checked {
    let request = Request::Commit(Commit {
        home: HOME,
        group: text("g"),
        generation,
        member_id: text(member),
        instance_id: None,
        retention_ms: -1,
        unknown_group: ErrorCode::ILLEGAL_GENERATION,
        entries: vec![CommitEntry {
            at: 0,
            topic: text("t"),
            topic_id: Uuid([2; 16]),
            partition: 0,
            offset,
            leader_epoch: -1,
            metadata: Text::empty(),
        }],
    });
    let codes = vec![(0, ErrorCode::NONE)];
    ask(groups, &request, &Reply::Committed(codes))
}

fn read(groups: &mut Groups, offset: i64) -> Checked {
    let request = Request::FetchOffsets(vec![FetchOffsets {
        at: 0,
        home: HOME,
        group: text("g"),
        topics: None,
    }]);
    let of = OffsetOf {
        partition: 0,
        offset,
        leader_epoch: -1,
        metadata: Text::empty(),
    };
    let reply = Reply::Offsets(vec![GroupOffsets {
        at: 0,
        code: ErrorCode::NONE,
        topics: vec![(text("t"), vec![of])],
    }]);
    ask(groups, &request, &reply)
}

fn why(checked: Checked) -> String {
    checked.err().map_or_else(String::new, |failure| failure.0)
}

/// Generation 1 of the members a, who leads, and b.
fn group() -> Groups {
    let mut groups = Groups::default();
    for (member, all) in [("a", &["a", "b"][..]), ("b", &[])] {
        assert_eq!(join(&mut groups, 1, member, all), Ok(()));
    }
    groups
}

#[test]
fn a_group_that_keeps_the_rules_is_believed() {
    let mut groups = group();
    assert_eq!(sync(&mut groups, 1, "a", &[7, 0, 1]), Ok(()));
    assert_eq!(sync(&mut groups, 1, "b", &[7, 2]), Ok(()));
    assert_eq!(commit(&mut groups, 1, "b", 5), Ok(()));
    groups.crashed(Crash::Kill);
    assert_eq!(read(&mut groups, 5), Ok(()));
    groups.crashed(Crash::PowerCut);
    assert_eq!(read(&mut groups, -1), Ok(()));
}

#[test]
fn two_assignments_of_a_generation_are_noticed() {
    let mut groups = group();
    assert_eq!(sync(&mut groups, 1, "a", &[7, 0]), Ok(()));
    assert!(why(sync(&mut groups, 1, "b", &[7, 0])).starts_with("no partition has two owners"));
    let mut groups = group();
    assert_eq!(sync(&mut groups, 1, "a", &[7, 0]), Ok(()));
    assert!(why(sync(&mut groups, 1, "b", &[8, 1])).contains("mixes"));
    assert!(why(sync(&mut groups, 1, "a", &[8, 0])).contains("two"));
}

#[test]
fn two_member_sets_of_a_generation_and_an_old_generation_are_noticed() {
    let mut groups = group();
    assert!(why(join(&mut groups, 1, "a", &["a"])).starts_with("one member set"));
    assert_eq!(join(&mut groups, 2, "a", &["a"]), Ok(()));
    assert!(why(join(&mut groups, 1, "b", &[])).contains("older one"));
}

#[test]
fn commits_of_others_than_members_are_noticed() {
    let mut groups = group();
    assert!(why(commit(&mut groups, 1, "c", 1)).contains("never told"));
    assert_eq!(join(&mut groups, 2, "a", &["a"]), Ok(()));
    assert!(why(commit(&mut groups, 1, "a", 1)).starts_with("only the present generation"));
    assert!(why(commit(&mut groups, 2, "b", 1)).contains("had left"));
    // What was only in memory is gone with the process: the log knows the member still.
    groups.crashed(Crash::Kill);
    assert_eq!(commit(&mut groups, 1, "b", 1), Ok(()));
}

#[test]
fn a_lost_commit_and_one_that_nobody_sent_are_noticed() {
    let mut groups = group();
    assert_eq!(commit(&mut groups, 1, "a", 1), Ok(()));
    assert_eq!(commit(&mut groups, 1, "a", 2), Ok(()));
    groups.crashed(Crash::Kill);
    for found in [-1, 1, 3] {
        let why = why(read(&mut groups, found));
        assert!(why.starts_with("an acknowledged commit"), "{found}: {why}");
    }
    groups.is_durable = true;
    groups.crashed(Crash::PowerCut);
    assert!(read(&mut groups, 1).is_err());
    assert_eq!(read(&mut groups, 2), Ok(()));
}

#[test]
fn a_deletion_counts_as_a_commit() {
    let mut groups = group();
    assert_eq!(commit(&mut groups, 1, "a", 1), Ok(()));
    let named = Named {
        at: 0,
        home: HOME,
        group: text("g"),
    };
    let deleted = Reply::Deleted(vec![(0, ErrorCode::NONE)]);
    assert_eq!(
        ask(&mut groups, &Request::Delete(vec![named]), &deleted),
        Ok(())
    );
    assert!(read(&mut groups, 1).is_err());
    assert_eq!(read(&mut groups, -1), Ok(()));
    assert_eq!(join(&mut groups, 1, "c", &["c"]), Ok(()));
}
