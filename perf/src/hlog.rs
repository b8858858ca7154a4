//! Interval logs in HdrHistogram's format (`.hlog`): a histogram a second for each thing that was measured, told apart by tags. Any tool that reads such logs can
//! merge and draw them; values are nanoseconds, the column of maxima is in milliseconds.

use std::io::Cursor;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::interval_log::{
    IntervalLogIterator, IntervalLogWriterBuilder, LogEntry, Tag,
};
use hdrhistogram::serialization::{Deserializer, V2DeflateSerializer};

use crate::Failure;
use crate::recorded::{INTERVAL_NS, Latencies, Recorded, Series};

const LATENCY: &str = "latency";
const SERVICE: &str = "service";
const END_TO_END: &str = "end-to-end";
const NS_PER_MS: f64 = 1e6;

/// The three series of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Log {
    pub(crate) latency: Series,
    pub(crate) service: Series,
    pub(crate) end_to_end: Series,
}

impl Log {
    pub(crate) fn of(recorded: &Recorded) -> Log {
        Log {
            latency: recorded.latency.clone(),
            service: recorded.service.clone(),
            end_to_end: recorded.end_to_end.clone(),
        }
    }

    /// `comment` is one line on what was measured; `began` is when the measured time began.
    pub(crate) fn write(&self, comment: &str, began: SystemTime) -> Result<Vec<u8>, Failure> {
        let failed = || Failure::io("the interval log");
        let mut text = Vec::new();
        let mut serializer = V2DeflateSerializer::new();
        let mut log = IntervalLogWriterBuilder::new()
            .add_comment(&comment.replace('\n', " "))
            .with_start_time(began)
            .with_base_time(began)
            .with_max_value_divisor(NS_PER_MS)
            .begin_log_with(&mut text, &mut serializer)
            .map_err(failed())?;
        let seconds = [&self.latency, &self.service, &self.end_to_end]
            .map(|series| series.0.len())
            .into_iter()
            .max();
        let length = Duration::from_nanos(INTERVAL_NS);
        for second in 0..seconds.unwrap_or(0) {
            for (name, series) in [
                (LATENCY, &self.latency),
                (SERVICE, &self.service),
                (END_TO_END, &self.end_to_end),
            ] {
                let Some(interval) = series.interval(second) else {
                    continue;
                };
                log.write_histogram(
                    interval.histogram(),
                    length * second as u32,
                    length,
                    Tag::new(name),
                )
                .map_err(|error| Failure::told(format!("the interval log: {error:?}")))?;
            }
        }
        Ok(text)
    }

    pub(crate) fn read(text: &[u8]) -> Result<Log, Failure> {
        let mut log = Log::default();
        let mut deserializer = Deserializer::new();
        for entry in IntervalLogIterator::new(text) {
            let entry = entry.map_err(|error| malformed(&format!("{error:?}")))?;
            let LogEntry::Interval(interval) = entry else {
                continue;
            };
            let series = match interval.tag().map(|tag| tag.as_str()) {
                Some(LATENCY) => &mut log.latency,
                Some(SERVICE) => &mut log.service,
                Some(END_TO_END) => &mut log.end_to_end,
                _ => return Err(malformed("an interval without a tag that is known")),
            };
            let bytes = STANDARD
                .decode(interval.encoded_histogram())
                .map_err(|error| malformed(&error.to_string()))?;
            let mut histogram = deserializer
                .deserialize(&mut Cursor::new(bytes))
                .map_err(|error| malformed(&error.to_string()))?;
            histogram.auto(true);
            series.0.push(Latencies::of(histogram));
        }
        Ok(log)
    }
}

fn malformed(why: &str) -> Failure {
    Failure::told(format!("the interval log cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_second_by_second() {
        let mut log = Log::default();
        for second in 0..3 {
            for value in 1..500 {
                log.latency.record(second * INTERVAL_NS, value * 10_000);
                log.service.record(second * INTERVAL_NS, value * 1000);
            }
        }
        log.end_to_end.record(2 * INTERVAL_NS, 7_000_000);
        let began = SystemTime::UNIX_EPOCH + Duration::from_hours(500_000);
        let text = log.write("b1 on percore\n#1", began).unwrap();
        let shown = String::from_utf8(text.clone()).unwrap();
        assert!(shown.contains("#b1 on percore #1"), "{shown}");
        assert!(shown.contains("#[BaseTime: 1800000000"), "{shown}");
        let read = Log::read(&text).unwrap();
        assert_eq!(read, log);
    }

    #[test]
    fn a_log_of_something_else_is_refused() {
        assert!(Log::read(b"no log at all").is_err());
    }
}
