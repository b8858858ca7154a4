//! What has to be true of shards after every event, each with its name and its number in architecture.md 8 where it has one.

use corelog_shards::base::ids::{ShardId, TopicPartition};
use corelog_shards::log::Log;

use crate::device::file_name;
use crate::must;
use crate::oracle::{Kind, Truth};
use crate::world::World;
use crate::{Checked, Failure};

/// Of a log that the last event may have changed.
type OfLog = fn(&World, &Truth, &Log, high_watermark: i64) -> Checked;

const OF_LOG: &[(&str, OfLog)] = &[
    ("ends are in order", ends_are_in_order),
    (
        "the high watermark never goes back",
        watermark_never_goes_back,
    ),
    ("synced before it counts (6)", synced_before_it_counts),
    ("written means written (6)", written_means_written),
    ("synced means synced (6)", synced_means_synced),
];

/// Checks what is to be checked of one log, and remembers how far.
pub fn check_log(world: &mut World, id: TopicPartition) -> Checked {
    let Some(owner) = owner(world, id) else {
        return Ok(());
    };
    let Some(core) = world.cores.get(owner) else {
        return Ok(());
    };
    let Some(partition) = core.shard.partitions().get(id) else {
        return Ok(());
    };
    let Some(log) = partition.online() else {
        return Ok(());
    };
    let (written, synced) = (log.written_end(), log.synced_end());
    let high_watermark = partition.high_watermark();
    let Some(truth) = world.oracle.truths.get(&id) else {
        must!(
            log.log_end() == 0,
            "{id:?} ends at {} without a write",
            log.log_end()
        );
        return Ok(());
    };
    for (name, check) in OF_LOG {
        check(world, truth, log, high_watermark)
            .map_err(|Failure(why)| Failure(format!("{name}: {} {id:?}: {why}", truth.topic)))?;
    }
    if let Some(truth) = world.oracle.truths.get_mut(&id) {
        truth.written_seen = written;
        truth.synced_seen = synced;
        truth.high_watermark_seen = high_watermark;
    }
    Ok(())
}

fn owner(world: &World, id: TopicPartition) -> Option<usize> {
    let image = world.image.as_ref()?;
    Some(usize::from(image.partition(id)?.owner.0))
}

/// One owner per partition (5): checked when an image has come and when a log has been opened.
pub fn one_owner(world: &World) -> Checked {
    for (at, core) in world.cores.iter().enumerate() {
        for topic in core.image.sorted_topics() {
            for (number, meta) in (0_i32..).zip(&topic.partitions) {
                let id = TopicPartition {
                    topic_id: topic.id,
                    partition: number,
                };
                let owns = core.shard.partitions().get(id).is_some();
                let should = meta.owner == ShardId(at as u16);
                must!(
                    owns == should || !core.has_applied,
                    "one owner per partition (5): core {at} {} {} {id:?}",
                    if owns { "holds" } else { "lacks" },
                    topic.name.as_str()
                );
            }
        }
    }
    Ok(())
}

fn ends_are_in_order(_: &World, truth: &Truth, log: &Log, high_watermark: i64) -> Checked {
    let ends = [
        log.log_start(),
        high_watermark,
        log.written_end(),
        log.log_end(),
    ];
    must!(
        ends.is_sorted(),
        "start, high watermark, written end, end are {ends:?}"
    );
    must!(
        log.synced_end() <= log.written_end(),
        "synced to {}, written to {}",
        log.synced_end(),
        log.written_end()
    );
    must!(
        log.log_end() == truth.end,
        "ends at {}, written was {}",
        log.log_end(),
        truth.end
    );
    Ok(())
}

fn watermark_never_goes_back(_: &World, truth: &Truth, _: &Log, high_watermark: i64) -> Checked {
    must!(
        high_watermark >= truth.high_watermark_seen,
        "from {} to {high_watermark}",
        truth.high_watermark_seen
    );
    Ok(())
}

fn synced_before_it_counts(_: &World, truth: &Truth, log: &Log, high_watermark: i64) -> Checked {
    must!(
        truth.kind != Kind::Durable || high_watermark <= log.synced_end(),
        "high watermark {high_watermark}, synced to {}",
        log.synced_end()
    );
    Ok(())
}

fn written_means_written(world: &World, truth: &Truth, log: &Log, _: i64) -> Checked {
    for (base, batch) in truth.batches.range(truth.written_seen..log.written_end()) {
        let Some(path) = world.device.places.get(&log.id()) else {
            return Ok(());
        };
        let there = world.device.disk.read(path, &file_name(batch.file));
        let from = batch.position as usize;
        let bytes = there.and_then(|there| there.get(from..from + batch.bytes.len()));
        must!(
            bytes == Some(&batch.bytes[..]) || *base < log.log_start(),
            "{base} is said to be written, but is not on the disk: {:?} at {from} has {:?} bytes",
            batch.file,
            there.map(<[u8]>::len)
        );
    }
    Ok(())
}

fn synced_means_synced(world: &World, truth: &Truth, log: &Log, _: i64) -> Checked {
    for (base, batch) in truth.batches.range(truth.synced_seen..log.synced_end()) {
        let Some(path) = world.device.places.get(&log.id()) else {
            return Ok(());
        };
        let there = world.device.disk.durable(path, &file_name(batch.file));
        let from = batch.position as usize;
        let bytes = there.and_then(|there| there.get(from..from + batch.bytes.len()));
        must!(
            bytes == Some(&batch.bytes[..]) || *base < log.log_start(),
            "{base} is said to be synced, but a power cut would take it"
        );
    }
    Ok(())
}
