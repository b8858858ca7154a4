//! `corelog group …`: list, describe, delete. Moving offsets is in [`super::group_reset`].

use std::io::Write;

use corelog_shards::base::error_code::ErrorCode;
use corelog_wire::messages::{delete_groups, describe_groups, list_groups};
use corelog_wire::primitives::{Reader, Text};
use corelog_wire::records::data::ConsumerProtocolAssignment;
use serde_json::{Value, json};

use super::args::{BrokerArgs, GroupCommand};
use super::client::check;
use super::cluster::Cluster;
use super::failure::Failure;
use super::group_offsets::{Place, committed};
use super::{consume, group_reset, lag, print};

/// The special times of ListOffsets.
pub(super) const LATEST: i64 = -1;
pub(super) const EARLIEST: i64 = -2;

pub(super) fn run(command: &GroupCommand, out: &mut dyn Write) -> Result<(), Failure> {
    match command {
        GroupCommand::List { broker, json } => list(broker, *json, out),
        GroupCommand::Describe {
            broker,
            groups,
            json,
        } => describe(broker, groups, *json, out),
        GroupCommand::Delete { broker, groups } => delete(broker, groups, out),
        GroupCommand::ResetOffsets(reset) => group_reset::run(reset, out),
    }
}

fn all(cluster: &mut Cluster) -> Result<Vec<list_groups::ResponseGroups>, Failure> {
    let responses = cluster.everywhere(&list_groups::Request::default())?;
    let mut groups = Vec::new();
    for response in responses {
        check("cannot list the groups", response.error_code, None)?;
        groups.extend(response.groups);
    }
    groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
    Ok(groups)
}

fn list(broker: &BrokerArgs, as_json: bool, out: &mut dyn Write) -> Result<(), Failure> {
    let groups = all(&mut Cluster::connect(broker)?)?;
    if as_json {
        for group in &groups {
            let object = json!({
                "group": group.group_id.as_str(),
                "state": group.group_state.as_str(),
                "type": group.group_type.as_str(),
                "protocol_type": group.protocol_type.as_str(),
            });
            print::line(out, &object.to_string())?;
        }
        return Ok(());
    }
    let mut rows = vec![row(["group", "state", "type", "protocol"])];
    rows.extend(groups.iter().map(|group| {
        row([
            &group.group_id,
            &group.group_state,
            &group.group_type,
            shown(&group.protocol_type),
        ])
    }));
    print::table(out, &rows)
}

/// One group as its coordinator describes it.
pub(super) fn ask(
    cluster: &mut Cluster,
    group: &str,
) -> Result<describe_groups::ResponseGroups, Failure> {
    let request = describe_groups::Request {
        groups: vec![Text::from(group.to_owned())],
        ..describe_groups::Request::default()
    };
    let described = cluster.patiently(|cluster| {
        let (response, _) = cluster.coordinator(group)?.call(&request)?;
        let Some(described) = response.groups.into_iter().next() else {
            return Err(cluster.unreadable("describe_groups", "nothing about the group"));
        };
        // That there is no such group says the state, in every version.
        if ErrorCode(described.error_code) != ErrorCode::GROUP_ID_NOT_FOUND {
            check(
                format!("cannot describe group {group}"),
                described.error_code,
                None,
            )?;
        }
        Ok(described)
    })?;
    Ok(described)
}

fn describe(
    broker: &BrokerArgs,
    names: &[String],
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let mut cluster = Cluster::connect(broker)?;
    let names: Vec<String> = if names.is_empty() {
        let groups = all(&mut cluster)?.into_iter();
        groups
            .map(|group| group.group_id.as_str().to_owned())
            .collect()
    } else {
        names.to_vec()
    };
    for name in names {
        let group = ask(&mut cluster, &name)?;
        if &*group.group_state == "Dead" {
            return Err(Failure::Told(format!(
                "there is no group {name}; see: corelog group list"
            )));
        }
        let lines = lines(&mut cluster, &group)?;
        if as_json {
            print::line(out, &object(&group, &lines).to_string())?;
        } else {
            show(&group, &lines, out)?;
        }
    }
    Ok(())
}

/// A partition that the group has an offset of, or a member with it.
struct Line {
    place: Place,
    /// -1 = nothing is committed.
    offset: i64,
    /// `None` = the topic is gone.
    end: Option<i64>,
    /// How long the first record that was not read yet has been there.
    behind_ms: Option<i64>,
    member: Option<usize>,
}

impl Line {
    fn lag(&self) -> Option<i64> {
        let end = self.end?;
        (self.offset >= 0).then(|| (end - self.offset).max(0))
    }
}

fn lines(
    cluster: &mut Cluster,
    group: &describe_groups::ResponseGroups,
) -> Result<Vec<Line>, Failure> {
    let mut lines: Vec<Line> = committed(cluster, &group.group_id)?
        .into_iter()
        .map(|(place, offset)| Line {
            place,
            offset,
            end: None,
            behind_ms: None,
            member: None,
        })
        .collect();
    for (number, member) in group.members.iter().enumerate() {
        for place in assigned(&member.member_assignment) {
            match lines.iter_mut().find(|line| line.place == place) {
                Some(line) => line.member = Some(number),
                None => lines.push(Line {
                    place,
                    offset: -1,
                    end: None,
                    behind_ms: None,
                    member: Some(number),
                }),
            }
        }
    }
    lines.sort_by(|a, b| a.place.cmp(&b.place));
    measure(cluster, &mut lines)?;
    Ok(lines)
}

/// How far the logs go, and how old the oldest unread records are.
fn measure(cluster: &mut Cluster, lines: &mut [Line]) -> Result<(), Failure> {
    let topics = cluster.topics()?;
    for line in lines {
        let Some(topic) = topics.iter().find(|topic| topic.name == line.place.topic) else {
            continue;
        };
        let partition = line.place.partition;
        let end = consume::offset(cluster, topic, partition, LATEST)?;
        line.end = Some(end);
        line.behind_ms = match line.lag() {
            Some(0) => Some(0),
            Some(_) => {
                let start = consume::offset(cluster, topic, partition, EARLIEST)?;
                let next = line.offset.max(start);
                let timestamp = lag::timestamp_at(cluster, topic, partition, next)?;
                timestamp.map(|timestamp| (now_ms() - timestamp).max(0))
            }
            None => None,
        };
    }
    Ok(())
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

/// What a consumer's assignment holds; nothing for other kinds of groups.
fn assigned(assignment: &bytes::Bytes) -> Vec<Place> {
    let Ok(read) = ConsumerProtocolAssignment::decode(&mut Reader::new(assignment.clone())) else {
        return Vec::new();
    };
    let topics = read.assigned_partitions.into_iter();
    topics
        .flat_map(|topic| {
            let name = topic.topic;
            topic.partitions.into_iter().map(move |partition| Place {
                topic: name.clone(),
                partition,
            })
        })
        .collect()
}

fn show(
    group: &describe_groups::ResponseGroups,
    lines: &[Line],
    out: &mut dyn Write,
) -> Result<(), Failure> {
    print::line(
        out,
        &format!(
            "group {}  state {}  protocol {}  members {}",
            group.group_id,
            group.group_state,
            shown(&group.protocol_data),
            group.members.len()
        ),
    )?;
    let mut members = vec![row([
        "  member",
        "instance",
        "client",
        "host",
        "partitions",
    ])];
    members.extend(group.members.iter().map(|member| {
        let instance = member.group_instance_id.as_deref().unwrap_or("");
        let places: Vec<String> = assigned(&member.member_assignment)
            .iter()
            .map(Place::to_string)
            .collect();
        row([
            &format!("  {}", member.member_id),
            shown(instance),
            &member.client_id,
            &member.client_host,
            shown(&places.join(",")),
        ])
    }));
    if members.len() > 1 {
        print::table(out, &members)?;
    }
    let mut rows = vec![row([
        "  topic",
        "partition",
        "offset",
        "end",
        "lag",
        "seconds",
        "member",
    ])];
    rows.extend(lines.iter().map(|line| {
        let member = line.member.and_then(|number| group.members.get(number));
        row([
            &format!("  {}", line.place.topic),
            &line.place.partition.to_string(),
            &number((line.offset >= 0).then_some(line.offset)),
            &number(line.end),
            &number(line.lag()),
            &line.behind_ms.map_or_else(|| "-".to_owned(), seconds),
            member.map_or("-", |member| &member.member_id),
        ])
    }));
    if rows.len() > 1 {
        print::table(out, &rows)?;
    }
    Ok(())
}

fn object(group: &describe_groups::ResponseGroups, lines: &[Line]) -> Value {
    let members = group.members.iter().map(|member| {
        let places = assigned(&member.member_assignment);
        json!({
            "member": member.member_id.as_str(),
            "instance": member.group_instance_id.as_deref(),
            "client": member.client_id.as_str(),
            "host": member.client_host.as_str(),
            "partitions": places.iter().map(Place::to_string).collect::<Vec<_>>(),
        })
    });
    let offsets = lines.iter().map(|line| {
        let member = line.member.and_then(|number| group.members.get(number));
        json!({
            "topic": line.place.topic.as_str(),
            "partition": line.place.partition,
            "offset": (line.offset >= 0).then_some(line.offset),
            "end": line.end,
            "lag": line.lag(),
            "behind_ms": line.behind_ms,
            "member": member.map(|member| member.member_id.as_str()),
        })
    });
    json!({
        "group": group.group_id.as_str(),
        "state": group.group_state.as_str(),
        "protocol_type": group.protocol_type.as_str(),
        "protocol": group.protocol_data.as_str(),
        "members": members.collect::<Vec<_>>(),
        "offsets": offsets.collect::<Vec<_>>(),
    })
}

fn delete(broker: &BrokerArgs, names: &[String], out: &mut dyn Write) -> Result<(), Failure> {
    let mut cluster = Cluster::connect(broker)?;
    let mut failed = None;
    for name in names {
        let request = delete_groups::Request {
            groups_names: vec![Text::from(name.clone())],
        };
        let deleted = cluster.patiently(|cluster| {
            let (response, _) = cluster.coordinator(name)?.call(&request)?;
            let code = response
                .results
                .first()
                .map_or(0, |result| result.error_code);
            check(format!("cannot delete group {name}"), code, None)
        });
        match deleted {
            Ok(()) => print::line(out, &format!("deleted group {name}"))?,
            // The others are deleted all the same: say so before failing.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    failed.map_or(Ok(()), |error| Err(error.into()))
}

pub(super) fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

fn shown(text: &str) -> &str {
    if text.is_empty() { "-" } else { text }
}

fn number(number: Option<i64>) -> String {
    number.map_or_else(|| "-".to_owned(), |number| number.to_string())
}

fn seconds(ms: i64) -> String {
    format!("{}.{}", ms / 1000, ms % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use bytes::{Bytes, BytesMut};
    use corelog_wire::records::data::ConsumerProtocolAssignmentAssignedPartitions;

    use super::*;

    #[test]
    fn an_assignment_is_shown_as_places_and_garbage_as_none() {
        let assignment = ConsumerProtocolAssignment {
            assigned_partitions: vec![ConsumerProtocolAssignmentAssignedPartitions {
                topic: Text::from_static("t"),
                partitions: vec![0, 2],
            }],
            user_data: None,
        };
        let mut out = BytesMut::new();
        assignment.encode(&mut out, 1);
        let places: Vec<String> = assigned(&out.freeze())
            .iter()
            .map(Place::to_string)
            .collect();
        assert_eq!(places, ["t:0", "t:2"]);
        assert!(assigned(&Bytes::from_static(b"connect")).is_empty());
        assert!(assigned(&Bytes::new()).is_empty());
    }

    #[test]
    fn lag_is_known_where_an_offset_and_an_end_are() {
        let line = |offset, end| Line {
            place: Place {
                topic: Text::empty(),
                partition: 0,
            },
            offset,
            end,
            behind_ms: None,
            member: None,
        };
        assert_eq!(line(3, Some(10)).lag(), Some(7));
        // A log that was cut below the offset has nothing for it.
        assert_eq!(line(30, Some(10)).lag(), Some(0));
        assert_eq!(
            (line(-1, Some(10)).lag(), line(3, None).lag()),
            (None, None)
        );
        assert_eq!(seconds(61_250), "61.2");
    }
}
