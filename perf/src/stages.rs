//! Where requests spend their time inside the broker, if it says so: corelog's `/metrics` have a histogram a stage.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::Failure;

const FAMILY: &str = "corelog_request_seconds";
/// The broker merges its histograms once a second.
const MERGED_AFTER: Duration = Duration::from_millis(1200);

/// One stage of one kind of request, over a whole run, warm-up included.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Stage {
    pub request: String,
    pub stage: String,
    pub count: u64,
    pub mean_us: f64,
}

/// Sum in seconds and count, by request and stage.
pub(crate) type Totals = BTreeMap<(String, String), (f64, f64)>;

/// The metrics as text.
pub(crate) fn scrape(address: SocketAddr) -> Result<String, Failure> {
    let failed = || Failure::io(format!("the metrics of {address}"));
    let timeout = Duration::from_secs(10);
    let mut stream = TcpStream::connect_timeout(&address, timeout).map_err(failed())?;
    stream.set_read_timeout(Some(timeout)).map_err(failed())?;
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .map_err(failed())?;
    let mut text = String::new();
    stream.read_to_string(&mut text).map_err(failed())?;
    if text.starts_with("HTTP/1.1 200") {
        Ok(text)
    } else {
        let status = text.lines().next().unwrap_or("nothing").to_owned();
        Err(Failure::told(format!(
            "the metrics of {address}: answered with {status}"
        )))
    }
}

/// What is known now of what requests have spent.
pub(crate) fn scrape_totals(address: SocketAddr) -> Result<Totals, Failure> {
    Ok(parse(&scrape(address)?))
}

/// The same when the last requests are in it.
pub(crate) fn totals_when_merged(address: SocketAddr) -> Result<Totals, Failure> {
    std::thread::sleep(MERGED_AFTER);
    scrape_totals(address)
}

/// The sum of a counter over all its labels.
pub(crate) fn counter(metrics: &str, name: &str) -> f64 {
    let samples = metrics
        .lines()
        .filter_map(|line| line.strip_prefix(name))
        .filter(|rest| rest.starts_with('{') || rest.starts_with(' '));
    samples
        .filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok())
        .sum()
}

fn parse(metrics: &str) -> Totals {
    let mut totals = Totals::new();
    for line in metrics.lines() {
        let Some(rest) = line.strip_prefix(FAMILY) else {
            continue;
        };
        let is_sum = rest.starts_with("_sum{");
        if !is_sum && !rest.starts_with("_count{") {
            continue;
        }
        let (Some(request), Some(stage)) = (label(rest, "request"), label(rest, "stage")) else {
            continue;
        };
        let Some(value) = rest
            .rsplit(' ')
            .next()
            .and_then(|value| value.parse::<f64>().ok())
        else {
            continue;
        };
        let entry = totals
            .entry((request.to_owned(), stage.to_owned()))
            .or_default();
        if is_sum {
            entry.0 = value;
        } else {
            entry.1 = value;
        }
    }
    totals
}

fn label<'a>(sample: &'a str, name: &str) -> Option<&'a str> {
    let begin = sample.find(&format!("{name}=\""))? + name.len() + 2;
    sample[begin..].split('"').next()
}

/// What lies between two looks.
pub(crate) fn between(before: &Totals, after: &Totals) -> Vec<Stage> {
    let stages = after.iter().filter_map(|((request, stage), (sum, count))| {
        let (sum_before, count_before) = before
            .get(&(request.clone(), stage.clone()))
            .copied()
            .unwrap_or_default();
        let requests = count - count_before;
        (requests > 0.0).then(|| Stage {
            request: request.clone(),
            stage: stage.clone(),
            count: requests as u64,
            mean_us: (sum - sum_before) / requests * 1e6,
        })
    });
    stages.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_what_lies_between_two_looks() {
        let look = |sum: f64, count: u64| {
            parse(&format!(
                "# TYPE corelog_request_seconds histogram\n\
                 corelog_request_seconds_sum{{request=\"Produce\",stage=\"owners\"}} {sum}\n\
                 corelog_request_seconds_count{{request=\"Produce\",stage=\"owners\"}} {count}\n\
                 corelog_request_seconds_bucket{{le=\"0.1\",request=\"Produce\",stage=\"owners\"}} 3\n\
                 corelog_request_seconds_sum{{request=\"Fetch\",stage=\"owners\"}} 7.5\n\
                 corelog_request_seconds_count{{request=\"Fetch\",stage=\"owners\"}} 5\n"
            ))
        };
        let stages = between(&look(1.0, 10), &look(1.5, 110));
        assert_eq!(
            stages,
            [Stage {
                request: "Produce".to_owned(),
                stage: "owners".to_owned(),
                count: 100,
                mean_us: 5000.0
            }]
        );
    }

    #[test]
    fn a_counter_is_summed_over_the_cores() {
        let text = "corelog_core_hops_sent_total{core=\"0\"} 5\n\
                    corelog_core_hops_sent_total{core=\"1\"} 7\n\
                    corelog_core_hops_sent_total_of_something 9\n";
        assert!((counter(text, "corelog_core_hops_sent_total") - 12.0).abs() < 1e-9);
    }
}
