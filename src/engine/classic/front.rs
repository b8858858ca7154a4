//! A table of requests, one for each handler: what a handler begins stays in its front until it is answered, whichever thread finishes it.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use bytes::{Bytes, BytesMut};
use corelog_shards::base::ids::{ReplyTo, ShardId};
use corelog_shards::base::time::{Mono, Now};
use corelog_shards::metadata::Image;
use corelog_shards::part::Reply;
use corelog_wire::frame::PREFIX_LENGTH;
use mio::Token;
use slab::Slab;

use super::queue::Request;
use crate::api::{Answer, BrokerView, Context, Directories};
use crate::engine::counting;
use crate::engine::reply_order::{Outcome, Pieces};
use crate::engine::requests::{Carry, Origin, Progress, Requests, Stepped};
use crate::metrics::{self, Recorder, Stage};

/// What a channel and the front of its request know of each other. The channel is muted meanwhile, so there is one request at most.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) peer: IpAddr,
    pub(super) listener: u8,
    /// The stripe at which the channel is at home.
    pub(super) home: ShardId,
    /// The client has gone, or at least sends nothing more.
    gone: AtomicBool,
    /// Where the request is that waits for others: the front's number above 32 bits, the asker's, plus one; 0 = nowhere.
    parked: AtomicU64,
}

impl Link {
    pub(super) fn new(peer: IpAddr, listener: u8, home: ShardId) -> Link {
        Link {
            peer,
            listener,
            home,
            gone: AtomicBool::new(false),
            parked: AtomicU64::new(0),
        }
    }

    #[cfg(test)]
    pub(super) fn for_tests() -> Link {
        Link::new(IpAddr::from([127, 0, 0, 1]), 0, ShardId(0))
    }

    /// The client has gone: where its request waits for others, if it does: (front, asker). One that comes to wait later sees it.
    pub(super) fn hang_up(&self) -> Option<(usize, usize)> {
        self.gone.store(true, SeqCst);
        let place = self.parked.load(SeqCst).checked_sub(1)?;
        Some(((place >> 32) as usize, place as u32 as usize))
    }

    /// The request waits for others here. True if its client has gone.
    fn park(&self, front: u16, asker: usize) -> bool {
        let place = u64::from(front) << 32 | asker as u64;
        self.parked.store(place + 1, SeqCst);
        self.gone.load(SeqCst)
    }

    fn unpark(&self) {
        self.parked.store(0, SeqCst);
    }
}

/// What becomes of a muted channel.
pub(super) enum Answered {
    Outcome(Outcome),
    Close(&'static str),
}

/// To the processor that the request came from.
pub(super) struct Response {
    pub(super) processor: u16,
    pub(super) channel: Token,
    pub(super) answered: Answered,
    /// Bytes of the pool of answers that come back when it has left.
    pub(super) reserved: usize,
}

struct Asker {
    processor: u16,
    channel: Token,
    link: Arc<Link>,
    /// The request's number, as long as it is under way.
    key: Option<u32>,
    /// A thread carries parts of this request now. What is to be carried next waits for it, so that no cancellation overtakes its part.
    carrying: bool,
    queued: Vec<Carry>,
}

/// What a step of a front asks for, once its lock is given back.
#[derive(Default)]
pub(super) struct Step {
    /// Parts and cancellations of one asker, in order; [`Front::carried`] when they are delivered.
    pub(super) carry: Vec<Carry>,
    pub(super) asker: usize,
    pub(super) response: Option<Response>,
    /// Bytes of the pool of requests that are free again.
    pub(super) released: usize,
}

pub(super) struct Front {
    number: u16,
    requests: Requests,
    askers: Slab<Asker>,
    pub(super) image: Arc<Image>,
    pub(super) directories: Arc<Directories>,
    /// One per listener.
    views: Vec<Arc<BrokerView>>,
    parked: usize,
    parked_max: usize,
    head: BytesMut,
    chunks: Vec<Bytes>,
    carry: Vec<Carry>,
    pub(super) recorder: Recorder,
}

impl Front {
    pub(super) fn new(
        number: u16,
        image: Arc<Image>,
        views: Vec<Arc<BrokerView>>,
        parked_max: usize,
        recorder: Recorder,
    ) -> Front {
        Front {
            number,
            requests: Requests::new(number),
            askers: Slab::new(),
            image,
            directories: Arc::default(),
            views,
            parked: 0,
            parked_max,
            head: BytesMut::new(),
            chunks: Vec::new(),
            carry: Vec::new(),
            recorder,
        }
    }

    /// When [`Front::expire`] is due.
    pub(super) fn next_deadline(&self) -> Option<Mono> {
        self.requests.next_deadline()
    }

    /// How many more requests may wait for others.
    pub(super) fn parked_free(&self) -> usize {
        self.parked_max - self.parked
    }

    pub(super) fn begin(&mut self, now: Now, request: Request, counters: &metrics::Core) -> Step {
        let length = request.frame.len();
        let link = Arc::clone(&request.link);
        let asker = self.askers.insert(Asker {
            processor: request.processor,
            channel: request.channel,
            link: request.link,
            key: None,
            carrying: false,
            queued: Vec::new(),
        });
        let origin = Origin {
            connection: asker as u64,
            seq: 0,
            bytes: length,
            parked: false,
            since: now.mono,
        };
        let cx = context(&self.image, &self.directories, &self.views, &link, now);
        let mut answer = Answer {
            head: &mut self.head,
            chunks: &mut self.chunks,
        };
        let (api_key, progress) =
            self.requests
                .begin(&cx, origin, request.frame, &mut self.carry, &mut answer);
        counters.requests.of(api_key).increment();
        counters.bytes_in.add((PREFIX_LENGTH + length) as u64);
        if let Progress::Waiting { key, .. } = progress {
            self.askers[asker].key = Some(key);
        }
        let stepped = Stepped {
            origin,
            api_key,
            key: 0,
            reserved: 0,
            progress,
        };
        self.after(now, stepped, counters)
    }

    /// `None` if nobody waits for it any more.
    pub(super) fn on_reply(
        &mut self,
        now: Now,
        to: ReplyTo,
        reply: Reply,
        counters: &metrics::Core,
    ) -> Option<Step> {
        let origin = self.requests.origin_of(to)?;
        counting::reply(counters, &reply);
        let link = &self.askers[origin.connection as usize].link;
        let cx = context(&self.image, &self.directories, &self.views, link, now);
        let mut answer = Answer {
            head: &mut self.head,
            chunks: &mut self.chunks,
        };
        let stepped = self
            .requests
            .on_reply(&cx, to, reply, &mut self.carry, &mut answer)?;
        Some(self.after(now, stepped, counters))
    }

    /// The next request whose time is up; call until `None`.
    pub(super) fn expire(&mut self, now: Now, counters: &metrics::Core) -> Option<Step> {
        let origin = self.requests.next_expired(now.mono)?;
        let link = &self.askers[origin.connection as usize].link;
        let cx = context(&self.image, &self.directories, &self.views, link, now);
        let mut answer = Answer {
            head: &mut self.head,
            chunks: &mut self.chunks,
        };
        let stepped = self.requests.expire(&cx, &mut self.carry, &mut answer)?;
        Some(self.after(now, stepped, counters))
    }

    /// The client has gone while its request waited for others here.
    pub(super) fn hang_up(
        &mut self,
        asker: usize,
        link: &Arc<Link>,
        counters: &metrics::Core,
    ) -> Option<Step> {
        let waits = self.askers.get(asker)?;
        if !Arc::ptr_eq(&waits.link, link) {
            return None;
        }
        let mut step = Step::default();
        self.cancel(asker, &mut step);
        self.take_carry(asker, &mut step, counters);
        Some(step)
    }

    /// What [`Step::carry`] named is delivered. Gives what is to be carried next.
    pub(super) fn carried(&mut self, asker: usize) -> Vec<Carry> {
        let Some(carried) = self.askers.get_mut(asker) else {
            return Vec::new();
        };
        let next = std::mem::take(&mut carried.queued);
        if next.is_empty() {
            carried.carrying = false;
            if carried.key.is_none() {
                self.askers.remove(asker);
            }
        }
        next
    }

    /// Notes reply bytes reserved for the request that `to` belongs to; false if it is gone.
    pub(super) fn reserve(&mut self, to: ReplyTo, bytes: usize) -> bool {
        self.requests.reserve(to, bytes)
    }

    fn after(&mut self, now: Now, stepped: Stepped, counters: &metrics::Core) -> Step {
        let mut step = Step::default();
        let Stepped {
            origin,
            api_key,
            reserved,
            progress,
            ..
        } = stepped;
        let asker = origin.connection as usize;
        match progress {
            Progress::Waiting { key, parked } => {
                if parked && !origin.parked {
                    self.park(now, key, origin, &mut step);
                }
            }
            Progress::Answered => {
                let outcome = self.take_answer();
                let us = now.mono.0.saturating_sub(origin.since.0);
                self.recorder
                    .record(counting::family(api_key), Stage::Owners, us);
                self.finish(origin, reserved, Answered::Outcome(outcome), &mut step);
            }
            Progress::Silent => {
                self.finish(
                    origin,
                    reserved,
                    Answered::Outcome(Outcome::Silent),
                    &mut step,
                );
            }
            Progress::Close(reason) => {
                self.head.clear();
                self.chunks.clear();
                counters.request_errors.of(api_key).increment();
                self.finish(origin, reserved, Answered::Close(reason), &mut step);
            }
        }
        self.take_carry(asker, &mut step, counters);
        self.recorder.turn_end();
        step
    }

    /// What waits for others gives its bytes back; when too many wait, it is answered at once.
    fn park(&mut self, now: Now, key: u32, origin: Origin, step: &mut Step) {
        if self.parked >= self.parked_max {
            self.requests.hurry(key, now.mono);
            return;
        }
        self.parked += 1;
        self.requests.set_parked(key);
        step.released += origin.bytes;
        let asker = origin.connection as usize;
        if self.askers[asker].link.park(self.number, asker) {
            self.cancel(asker, step);
        }
    }

    fn cancel(&mut self, asker: usize, step: &mut Step) {
        let Some(key) = self.askers[asker].key else {
            return;
        };
        if let Some((origin, reserved)) = self.requests.cancel(key, &mut self.carry) {
            let silent = Answered::Outcome(Outcome::Silent);
            self.finish(origin, reserved, silent, step);
        }
    }

    fn finish(&mut self, origin: Origin, reserved: usize, answered: Answered, step: &mut Step) {
        if origin.parked {
            self.parked -= 1;
        } else {
            step.released += origin.bytes;
        }
        let asker = &mut self.askers[origin.connection as usize];
        asker.key = None;
        asker.link.unpark();
        step.response = Some(Response {
            processor: asker.processor,
            channel: asker.channel,
            answered,
            reserved,
        });
    }

    /// Puts what is to be carried into the step, or behind what is being carried.
    fn take_carry(&mut self, index: usize, step: &mut Step, counters: &metrics::Core) {
        for item in &self.carry {
            counting::carry(counters, item);
        }
        let asker = &mut self.askers[index];
        step.asker = index;
        if asker.carrying {
            asker.queued.append(&mut self.carry);
        } else if !self.carry.is_empty() {
            asker.carrying = true;
            step.carry.append(&mut self.carry);
        } else if asker.key.is_none() {
            self.askers.remove(index);
        }
    }

    fn take_answer(&mut self) -> Outcome {
        if self.chunks.is_empty() {
            return Outcome::Frame(Pieces::One(self.head.split().freeze()));
        }
        self.head.clear();
        Outcome::Frame(Pieces::Many(std::mem::take(&mut self.chunks)))
    }
}

fn context<'a>(
    image: &'a Arc<Image>,
    directories: &'a Arc<Directories>,
    views: &'a [Arc<BrokerView>],
    link: &Link,
    now: Now,
) -> Context<'a> {
    Context {
        now,
        image,
        broker: &views[usize::from(link.listener)],
        directories,
        home: link.home,
        client_address: link.peer,
    }
}

#[cfg(test)]
mod tests {
    use corelog_shards::base::ids::Uuid;
    use corelog_shards::part::{FetchPeeked, Part};
    use corelog_shards::testing::TestCluster;
    use corelog_wire::frame::RequestHeader;
    use corelog_wire::messages::fetch;

    use super::*;
    use crate::api::testing::broker_view;
    use crate::metrics::Metrics;

    const NOW: Now = Now {
        mono: Mono(0),
        wall_ms: 1_000_000,
    };

    /// A front that waits for 1000 bytes of two partitions, each on a shard of its own.
    struct Scene {
        front: Front,
        metrics: Arc<Metrics>,
        link: Arc<Link>,
        asker: usize,
        peeks: Vec<ReplyTo>,
    }

    impl Scene {
        fn new() -> Scene {
            let mut cluster = TestCluster::new(2);
            let topic = cluster.create_topic("t", 2, &[]);
            let metrics = Metrics::new(1);
            let views = vec![Arc::new(broker_view())];
            let mut front = Front::new(0, cluster.image(), views, 10, metrics.recorder(0));
            let link = Arc::new(Link::for_tests());
            let request = Request {
                processor: 2,
                channel: Token(7),
                link: Arc::clone(&link),
                frame: long_poll(topic),
            };
            let step = front.begin(NOW, request, metrics.core(0));
            assert!(step.response.is_none());
            let peeks: Vec<ReplyTo> = step.carry.iter().filter_map(part_of).collect();
            assert_eq!(peeks.len(), 2);
            Scene {
                front,
                metrics,
                link,
                asker: step.asker,
                peeks,
            }
        }

        fn reply(&mut self, to: ReplyTo, reply: Reply) -> Step {
            let counters = self.metrics.core(0);
            let step = self.front.on_reply(NOW, to, reply, counters);
            step.expect("the request is under way")
        }

        /// Both owners say that there is nothing.
        fn park(&mut self) -> Step {
            let mut last = Step::default();
            for (at, to) in (0..).zip(self.peeks.clone()) {
                let nothing = Reply::FetchPeek([peeked(at, 0)].into_iter().collect());
                last = self.reply(to, nothing);
            }
            last
        }
    }

    fn peeked(at: u32, available: u32) -> FetchPeeked {
        FetchPeeked {
            at,
            available,
            immediate: false,
        }
    }

    fn part_of(item: &Carry) -> Option<ReplyTo> {
        match item {
            Carry::Part { to, .. } => Some(*to),
            Carry::Cancel { .. } => None,
        }
    }

    fn long_poll(topic: Uuid) -> Bytes {
        let header = RequestHeader {
            api_key: fetch::Request::KEY,
            api_version: 13,
            correlation_id: 1,
            client_id: None,
        };
        let partition = |partition| fetch::RequestTopicsPartitions {
            partition,
            partition_max_bytes: 1 << 20,
            current_leader_epoch: -1,
            last_fetched_epoch: -1,
            ..fetch::RequestTopicsPartitions::default()
        };
        let request = fetch::Request {
            max_wait_ms: 60_000,
            min_bytes: 1000,
            max_bytes: 1 << 20,
            session_epoch: -1,
            topics: vec![fetch::RequestTopics {
                topic_id: topic,
                partitions: vec![partition(0), partition(1)],
                ..fetch::RequestTopics::default()
            }],
            ..fetch::Request::default()
        };
        let mut frame = BytesMut::new();
        header.put_frame(&mut frame, |out| request.encode(out, 13));
        frame.freeze().slice(PREFIX_LENGTH..)
    }

    #[test]
    fn no_cancellation_overtakes_the_part_that_it_ends() {
        let mut scene = Scene::new();
        // Another thread has carried the parts, and brings answers, before the one that carries says so.
        assert!(scene.park().carry.is_empty());
        let woken = scene.reply(scene.peeks[0], Reply::FetchWake(peeked(0, 5000)));
        assert!(woken.carry.is_empty(), "it waits for the parts before it");
        let next = scene.front.carried(scene.asker);
        let cancelled = next
            .iter()
            .filter(|item| matches!(item, Carry::Cancel { .. }))
            .count();
        assert_eq!(cancelled, 2, "both watches end");
        let collects = |item: &Carry| {
            matches!(
                item,
                Carry::Part {
                    part: Part::FetchCollect(_),
                    ..
                }
            )
        };
        assert!(next.iter().any(collects));
        assert!(scene.front.carried(scene.asker).is_empty());
    }

    #[test]
    fn a_long_poll_gives_its_bytes_back_and_ends_with_its_client() {
        let mut scene = Scene::new();
        assert!(scene.front.carried(scene.asker).is_empty());
        assert!(scene.park().released > 0);
        assert_eq!(scene.front.parked_free(), 9);
        let place = scene.link.hang_up();
        assert_eq!(place, Some((0, scene.asker)));
        let link = Arc::clone(&scene.link);
        let counters = scene.metrics.core(0);
        let step = scene.front.hang_up(scene.asker, &link, counters);
        let step = step.expect("it waits here");
        let response = step.response.expect("the channel is muted");
        assert_eq!((response.processor, response.channel), (2, Token(7)));
        assert!(matches!(
            response.answered,
            Answered::Outcome(Outcome::Silent)
        ));
        assert_eq!(step.carry.len(), 2, "nobody watches for it any more");
        assert_eq!(scene.front.parked_free(), 10);
    }

    #[test]
    fn a_client_that_has_gone_before_its_request_waits_is_noticed_then() {
        let mut scene = Scene::new();
        assert_eq!(scene.link.hang_up(), None, "it does not wait yet");
        let step = scene.park();
        assert!(step.response.is_some());
        assert_eq!(scene.front.parked_free(), 10);
    }

    #[test]
    fn what_is_asked_of_a_request_that_is_gone_finds_nothing() {
        let mut scene = Scene::new();
        scene.park();
        let link = Arc::new(Link::for_tests());
        let counters = scene.metrics.core(0);
        assert!(scene.front.hang_up(scene.asker, &link, counters).is_none());
        assert!(scene.front.hang_up(99, &link, counters).is_none());
    }
}
