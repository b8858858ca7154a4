//! Which partitions are on the core that a connection is on: found out by sending, since a broker tells nobody.

use std::net::SocketAddr;

use super::producing::InFlight;
use super::run::Load;
use crate::Failure;
use crate::stages;
use crate::workload::Crossings;

/// Batches that are sent to find out whether they cross cores.
const PROBES: u32 = 20;

impl Load<'_> {
    /// Leaves each producer the partitions that are on the right core, which the broker's count of messages between cores tells.
    pub(super) fn route(&mut self, crossings: Crossings) -> Result<(), Failure> {
        let metrics = self.job.metrics.ok_or_else(|| {
            Failure::told(
                "only what a corelog that was started here sends between its cores is known",
            )
        })?;
        for at in 0..self.producers.len() {
            let mut right = Vec::new();
            for number in 0..self.job.topics.partitions() {
                let before = hops(metrics)?;
                for _ in 0..PROBES {
                    self.probe(at, number)?;
                }
                let crosses = hops(metrics)? - before >= f64::from(PROBES);
                if crosses == (crossings == Crossings::Always) {
                    right.push(number);
                }
            }
            if right.is_empty() {
                return Err(Failure::told(format!(
                    "connection {at} finds no partition on the right core; give the broker two cores, and the topic as many partitions"
                )));
            }
            self.producers[at].partitions = right;
        }
        Ok(())
    }

    /// One batch to one partition, waited for.
    fn probe(&mut self, at: usize, number: u32) -> Result<(), Failure> {
        let frame = self.requests[number as usize].clone();
        let producer = &mut self.producers[at];
        producer.connection.push(frame);
        producer.in_flight.push_back(InFlight {
            number,
            intended_ns: 0,
            sent_ns: 0,
        });
        self.flush(at)?;
        while self.in_flight() > 0 {
            self.wait(None)?;
        }
        Ok(())
    }
}

fn hops(metrics: SocketAddr) -> Result<f64, Failure> {
    let text = stages::scrape(metrics)?;
    Ok(stages::counter(&text, "corelog_core_hops_sent_total"))
}
