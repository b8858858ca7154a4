//! An operator: topics come and go, records are deleted.

use corelog_shards::group::groups::OFFSETS_TOPIC;

use super::{Scene, Sending, WORK, next};
use crate::load;
use crate::oracle::{Kind, What, is_internal};

/// Topics come and go, records are deleted.
pub(super) fn operate(scene: &mut Scene<'_>, correlation: &mut i32) -> Option<Sending> {
    let sending = |what, (version, frame)| {
        Some(Sending {
            what,
            version,
            frame,
            uids: Vec::new(),
        })
    };
    for (name, kind, partitions) in wanted(scene) {
        if !scene.topics.contains_key(name) {
            let frame = load::create_topic(next(correlation), name, kind, partitions);
            let name = name.to_owned();
            return sending(What::CreateTopic { name }, frame);
        }
    }
    if scene.calm {
        return None;
    }
    let wish = scene.seeded.below(100);
    if scene.topics.len() < 3 || (wish < 15 && scene.topics.len() < 6) {
        let kind = *scene.seeded.pick(&Kind::ALL);
        let name = format!("{}{}", kind.prefix(), scene.seeded.below(3));
        let partitions = scene.seeded.between(1, 4) as i32;
        let number = next(correlation);
        let frame = load::create_topic(number, &name, kind, partitions);
        return sending(What::CreateTopic { name }, frame);
    }
    let names = scene.topics.iter();
    let names: Vec<_> = names
        .filter(|(name, _)| *name != WORK && !is_internal(name))
        .collect();
    if names.is_empty() {
        return None;
    }
    let (name, (id, _)) = *scene.seeded.pick(&names);
    if wish < 22 {
        let what = What::DeleteTopic {
            name: name.clone(),
            id: *id,
        };
        return sending(what, load::delete_topic(next(correlation), *id));
    }
    if wish < 45 {
        let partitions = scene.partitions();
        let (partition, topic) = scene.seeded.pick(&partitions).clone();
        let end = scene.truths.get(&partition)?.high_watermark_seen;
        let offset = scene.seeded.below(end as u64 + 1) as i64;
        let number = next(correlation);
        let frame = load::delete_records(number, &topic, partition.partition, offset);
        let what = What::DeleteRecords {
            partition,
            topic,
            offset,
        };
        return sending(what, frame);
    }
    None
}

/// Topics that are there all the time. The one of offsets comes by itself, unless it is to be another one.
fn wanted(scene: &Scene<'_>) -> Vec<(&'static str, Kind, i32)> {
    let mut wanted = vec![(WORK, Kind::Plain, 4)];
    if scene.offsets_are_durable {
        wanted.push((OFFSETS_TOPIC, Kind::Durable, 3));
    }
    wanted
}
