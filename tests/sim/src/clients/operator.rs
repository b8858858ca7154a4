//! An operator: topics come and go, records are deleted.

use super::{Scene, Sending, next};
use crate::load;
use crate::oracle::{Kind, What};

/// Topics come and go, records are deleted.
pub(super) fn operate(scene: &mut Scene<'_>, correlation: &mut i32) -> Option<Sending> {
    if scene.calm {
        return None;
    }
    let sending = |what, (version, frame)| {
        Some(Sending {
            what,
            version,
            frame,
            uids: Vec::new(),
        })
    };
    let wish = scene.seeded.below(100);
    if scene.topics.len() < 3 || (wish < 15 && scene.topics.len() < 6) {
        let kind = *scene.seeded.pick(&Kind::ALL);
        let name = format!("{}{}", kind.prefix(), scene.seeded.below(3));
        let partitions = scene.seeded.between(1, 4) as i32;
        let number = next(correlation);
        let frame = load::create_topic(number, &name, partitions);
        return sending(What::CreateTopic { name }, frame);
    }
    let names: Vec<_> = scene.topics.iter().collect();
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
