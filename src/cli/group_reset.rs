//! `corelog group reset-offsets`: moves a group's offsets. Shows what it would do; `--execute` does it.

use std::collections::BTreeMap;
use std::io::Write;

use corelog_wire::primitives::Text;
use serde_json::json;

use super::args::ResetArgs;
use super::cluster::{AutoCreate, Cluster, TopicView};
use super::failure::Failure;
use super::group::{EARLIEST, LATEST, ask, row};
use super::group_offsets::{Place, commit, committed};
use super::{consume, moments, print};

/// Where offsets go.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Target {
    Earliest,
    Latest,
    /// The first record at or after the time, in milliseconds since the Unix epoch.
    Time(i64),
    ShiftBy(i64),
    Offset(i64),
    File(BTreeMap<Place, i64>),
}

pub(super) fn run(args: &ResetArgs, out: &mut dyn Write) -> Result<(), Failure> {
    let target = target(args)?;
    let mut cluster = Cluster::connect(&args.broker)?;
    let group = Text::from(args.group.clone());
    let described = ask(&mut cluster, &args.group)?;
    if !matches!(&*described.group_state, "Empty" | "Dead") {
        return Err(Failure::Told(format!(
            "group {group} is {}: its members would not notice; stop them, then reset",
            described.group_state
        )));
    }
    let before = committed(&mut cluster, &group)?;
    let (places, topics) = places(&mut cluster, args, &target, &before)?;
    let mut after = BTreeMap::new();
    for place in places {
        let topic = topics.iter().find(|topic| topic.name == place.topic);
        let Some(topic) = topic else { continue };
        let offset = place_offset(&mut cluster, topic, &place, &target, before.get(&place))?;
        after.insert(place, offset);
    }
    if args.execute {
        commit(&mut cluster, &group, &topics, &after)?;
    }
    show(args, &before, &after, out)
}

fn target(args: &ResetArgs) -> Result<Target, Failure> {
    let told = |what: String| Err(Failure::Told(what));
    if args.to_earliest {
        return Ok(Target::Earliest);
    }
    if args.to_latest {
        return Ok(Target::Latest);
    }
    if let Some(text) = &args.to_datetime {
        return match moments::datetime(text) {
            Some(ms) => Ok(Target::Time(ms)),
            None => told(format!(
                "\"{text}\" is no time; give YYYY-MM-DDTHH:MM:SS.mmm, with Z or +HH:MM behind it"
            )),
        };
    }
    if let Some(text) = &args.by_duration {
        return match moments::duration(text) {
            Some(ms) => Ok(Target::Time((now_ms() - ms).max(0))),
            None => told(format!(
                "\"{text}\" is no duration; give PnDTnHnMnS, such as PT30M"
            )),
        };
    }
    if let Some(by) = args.shift_by {
        return Ok(Target::ShiftBy(by));
    }
    if let Some(offset) = args.to_offset {
        return Ok(Target::Offset(offset));
    }
    if let Some(path) = &args.from_file {
        let text = std::fs::read_to_string(path).map_err(Failure::Input)?;
        return read_plan(&text, &args.group).map(Target::File);
    }
    told("nothing says where offsets go; give one of --to-earliest, --to-latest, --to-datetime, --by-duration, --shift-by, --to-offset, --from-file".to_owned())
}

fn now_ms() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

/// Lines of `topic,partition,offset`, or `group,topic,partition,offset` of which other groups' are left alone (what Kafka's tool writes).
fn read_plan(text: &str, group: &str) -> Result<BTreeMap<Place, i64>, Failure> {
    let mut plan = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() {
            continue;
        }
        let cells: Vec<&str> = line
            .split(',')
            .map(|cell| cell.trim().trim_matches('"'))
            .collect();
        let own = match cells.as_slice() {
            [topic, partition, offset] => Some((*topic, *partition, *offset)),
            [of, topic, partition, offset] => {
                if *of != group {
                    continue;
                }
                Some((*topic, *partition, *offset))
            }
            _ => None,
        };
        let read = own.and_then(|(topic, partition, offset)| {
            let place = Place {
                topic: Text::from(topic.to_owned()),
                partition: partition.parse().ok()?,
            };
            Some((place, offset.parse().ok()?))
        });
        let Some((place, offset)) = read else {
            return Err(Failure::Told(format!(
                "line {number} is \"{line}\"; give topic,partition,offset"
            )));
        };
        plan.insert(place, offset);
    }
    Ok(plan)
}

/// Which partitions are meant, and their topics.
fn places(
    cluster: &mut Cluster,
    args: &ResetArgs,
    target: &Target,
    before: &BTreeMap<Place, i64>,
) -> Result<(Vec<Place>, Vec<TopicView>), Failure> {
    let mut topics: Vec<TopicView> = Vec::new();
    let mut places = Vec::new();
    let mut add = |cluster: &mut Cluster, name: &str| -> Result<TopicView, Failure> {
        if let Some(topic) = topics.iter().find(|topic| &*topic.name == name) {
            return Ok(topic.clone());
        }
        let topic = cluster.topic(name, AutoCreate::No)?;
        topics.push(topic.clone());
        Ok(topic)
    };
    if let Target::File(plan) = target {
        for place in plan.keys() {
            add(cluster, &place.topic)?;
            places.push(place.clone());
        }
    } else if args.all_topics {
        let known: Vec<Text> = cluster
            .topics()?
            .into_iter()
            .map(|topic| topic.name)
            .collect();
        // Topics that are gone have offsets, but no log to go to.
        for place in before.keys().filter(|place| known.contains(&place.topic)) {
            add(cluster, &place.topic)?;
            places.push(place.clone());
        }
    } else {
        for text in &args.topics {
            let (name, partitions) = topic_of(text)?;
            let topic = add(cluster, name)?;
            let all = (0_i32..).take(topic.partitions.len());
            places.extend(partitions.unwrap_or_else(|| all.collect()).into_iter().map(
                |partition| Place {
                    topic: topic.name.clone(),
                    partition,
                },
            ));
        }
    }
    if places.is_empty() {
        return Err(Failure::Told(
            "no partition is named; give --topic NAME[:0,1,…], or --all-topics for those that have offsets".to_owned(),
        ));
    }
    Ok((places, topics))
}

/// `name` or `name:0,1,2`
fn topic_of(text: &str) -> Result<(&str, Option<Vec<i32>>), Failure> {
    let Some((name, list)) = text.rsplit_once(':') else {
        return Ok((text, None));
    };
    let numbers: Result<Vec<i32>, _> = list.split(',').map(str::parse).collect();
    match numbers {
        Ok(numbers) => Ok((name, Some(numbers))),
        Err(_) => Err(Failure::Told(format!(
            "\"{text}\" names no partitions; give NAME or NAME:0,1,2"
        ))),
    }
}

/// The offset of the target, within the log as it is.
fn place_offset(
    cluster: &mut Cluster,
    topic: &TopicView,
    place: &Place,
    target: &Target,
    before: Option<&i64>,
) -> Result<i64, Failure> {
    let mut at = |timestamp| consume::offset(cluster, topic, place.partition, timestamp);
    let wanted = match target {
        Target::Earliest => return Ok(at(EARLIEST)?),
        Target::Latest => return Ok(at(LATEST)?),
        Target::Time(ms) => {
            let found = at(*ms)?;
            // No record is as young: everything has been read.
            return if found >= 0 {
                Ok(found)
            } else {
                Ok(at(LATEST)?)
            };
        }
        Target::ShiftBy(by) => match before {
            Some(offset) => offset.saturating_add(*by),
            None => {
                return Err(Failure::Told(format!(
                    "nothing is committed for {place}, so there is nothing to shift; name partitions that have offsets"
                )));
            }
        },
        Target::Offset(offset) => *offset,
        Target::File(plan) => plan.get(place).copied().unwrap_or(-1),
    };
    let (start, end) = (at(EARLIEST)?, at(LATEST)?);
    Ok(wanted.clamp(start, end.max(start)))
}

fn show(
    args: &ResetArgs,
    before: &BTreeMap<Place, i64>,
    after: &BTreeMap<Place, i64>,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    if args.json {
        for (place, offset) in after {
            let object = json!({
                "group": args.group,
                "topic": place.topic.as_str(),
                "partition": place.partition,
                "before": before.get(place),
                "offset": offset,
                "done": args.execute,
            });
            print::line(out, &object.to_string())?;
        }
        return Ok(());
    }
    let mut rows = vec![row(["topic", "partition", "before", "offset"])];
    rows.extend(after.iter().map(|(place, offset)| {
        let before = before
            .get(place)
            .map_or_else(|| "-".to_owned(), i64::to_string);
        row([
            &place.topic,
            &place.partition.to_string(),
            &before,
            &offset.to_string(),
        ])
    }));
    print::table(out, &rows)?;
    if !args.execute {
        print::line(out, "nothing was changed; --execute does it")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_has_three_columns_or_four() {
        let plan = read_plan("t,0,5\n\"t\",1,6\n\ng,u,0,7\nother,u,1,8\n", "g").unwrap();
        let shown: Vec<String> = plan
            .iter()
            .map(|(place, offset)| format!("{place}={offset}"))
            .collect();
        assert_eq!(shown, ["t:0=5", "t:1=6", "u:0=7"]);
        for text in ["t,0", "t,x,1", "t,0,x", "a,b,c,d,e"] {
            assert!(read_plan(text, "g").is_err(), "{text}");
        }
    }

    #[test]
    fn a_topic_may_name_its_partitions() {
        assert_eq!(topic_of("t").unwrap(), ("t", None));
        assert_eq!(topic_of("t:0,2").unwrap(), ("t", Some(vec![0, 2])));
        assert!(topic_of("t:x").is_err());
    }
}
