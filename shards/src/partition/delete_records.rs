//! DeleteRecords (D-9, L-14): the log's start moves up; data goes with the next retention.

use super::partitions::Partitions;
use crate::base::error_code::ErrorCode;
use crate::base::ids::{ReplyTo, TopicPartition};
use crate::base::time::Now;
use crate::effect::Outbox;
use crate::part::{DeleteRecords, DeletedRecords, Reply};

impl Partitions {
    pub fn delete_records(
        &mut self,
        now: Now,
        to: ReplyTo,
        request: DeleteRecords,
        out: &mut Outbox,
    ) {
        let mut deleted = Vec::with_capacity(request.entries.len());
        for (at, partition, offset) in request.entries {
            let outcome = self.delete_up_to(now, partition.id, offset, out);
            let (code, low_watermark) =
                outcome.map_or_else(|code| (code, -1), |low| (ErrorCode::NONE, low));
            deleted.push(DeletedRecords {
                at,
                code,
                low_watermark,
            });
        }
        out.reply(to, Reply::DeleteRecords(deleted));
    }

    /// The low watermark: the log start of the only replica.
    fn delete_up_to(
        &mut self,
        now: Now,
        id: TopicPartition,
        offset: i64,
        out: &mut Outbox,
    ) -> Result<i64, ErrorCode> {
        let slot = *self
            .by_id
            .get(&id)
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let partition = self.slots[slot as usize]
            .as_deref_mut()
            .ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)?;
        let high_watermark = partition.high_watermark;
        let log = partition.log()?;
        let offset = if offset == -1 { high_watermark } else { offset };
        if offset < 0 || offset > high_watermark {
            return Err(ErrorCode::OFFSET_OUT_OF_RANGE);
        }
        if offset > log.log_start() {
            log.advance_log_start(offset, out);
            let low_watermark = log.log_start();
            self.log_start_moved(now, slot, out);
            self.settle(now, slot, out);
            return Ok(low_watermark);
        }
        Ok(log.log_start())
    }
}
