//! A network thread: its own selector, its own channels, its own queue of answers.

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corelog_io::net::{ConnectionPlace, Socket};
use corelog_shards::base::ids::ShardId;
use corelog_shards::base::time::Mono;
use mio::{Events, Interest, Poll, Token, Waker};
use rustc_hash::FxHashMap;

use super::channel::{Came, Channel};
use super::front::{Answered, Link, Response};
use super::house::{Blocking, House, Jobs};
use super::pool::Waiter;
use super::queue::Request;
use crate::engine::reply_order::Outcome;

/// A selector waits no longer than this (as Kafka's does).
const SELECT_MAX: Duration = Duration::from_millis(300);
const EVENTS_MAX: usize = 1024;
/// Idle and stuck channels are looked for this often.
const SWEEP_MS: u64 = 1000;
/// The token of the waker; channels have the ones above it.
const WAKER: Token = Token(0);

/// What reaches a processor from other threads.
pub(super) enum Mail {
    /// An accepted connection, before its first byte is read.
    Socket {
        socket: Socket,
        peer: IpAddr,
        listener: u8,
    },
    Response(Response),
    /// The pool of requests has served a channel that waited.
    Grant {
        channel: Token,
        bytes: usize,
    },
}

struct Waiting {
    mails: VecDeque<Mail>,
    /// The selector is woken already.
    woken: bool,
}

/// The queue of a processor. Bounded by its channels: each has at most one request under way, or waits for one grant.
pub(super) struct Mailbox {
    waiting: Mutex<Waiting>,
    waker: Waker,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, mail: Mail) {
        let was_woken = {
            let mut waiting = self.lock();
            waiting.mails.push_back(mail);
            std::mem::replace(&mut waiting.woken, true)
        };
        if !was_woken {
            // It fails only when the selector is gone, which it is not before the process ends.
            drop(self.waker.wake());
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lock().mails.len()
    }

    fn take(&self, into: &mut VecDeque<Mail>) {
        let mut waiting = self.lock();
        waiting.woken = false;
        std::mem::swap(&mut waiting.mails, into);
    }
}

/// Limits of connections, from the configuration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// `socket.request.max.bytes`
    pub(super) frame_bytes_max: usize,
    /// `connections.max.idle.ms`
    pub(super) idle_ms_max: u64,
    /// A reader that takes nothing for so long is closed.
    pub(super) send_ms_max: u64,
    /// A frame whose bytes stop coming for so long is given up.
    pub(super) progress_ms_max: u64,
}

/// Makes the selector of a processor, with the way to reach it.
pub(super) fn selector() -> io::Result<(Poll, Mailbox)> {
    let poll = Poll::new()?;
    let waker = Waker::new(poll.registry(), WAKER)?;
    let mailbox = Mailbox {
        waiting: Mutex::new(Waiting {
            mails: VecDeque::new(),
            woken: false,
        }),
        waker,
    };
    Ok((poll, mailbox))
}

pub(super) struct Processor {
    number: u16,
    house: Arc<House>,
    limits: Limits,
    poll: Poll,
    channels: FxHashMap<Token, Channel>,
    next_token: usize,
    next_sweep: Mono,
    now: Mono,
    mails: VecDeque<Mail>,
    jobs: Jobs,
}

impl Processor {
    pub(super) fn new(number: u16, house: Arc<House>, limits: Limits, poll: Poll) -> Processor {
        Processor {
            number,
            limits,
            poll,
            channels: FxHashMap::default(),
            next_token: WAKER.0 + 1,
            next_sweep: Mono(0),
            now: house.now().mono,
            house,
            mails: VecDeque::new(),
            jobs: Jobs::new(Blocking::Helper),
        }
    }

    /// Ends only with the process.
    pub(super) fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS_MAX);
        loop {
            self.take_mail();
            let before = self.house.now().mono;
            match self.poll.poll(&mut events, Some(SELECT_MAX)) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    panic!("the selector of processor {} failed: {error}", self.number);
                }
                _ => {}
            }
            self.now = self.house.now().mono;
            let waited = self.now.0.saturating_sub(before.0);
            self.house.pools().processors[usize::from(self.number)]
                .idle_us
                .add(waited);
            for event in &events {
                self.on_event(event);
            }
            if self.now >= self.next_sweep {
                self.next_sweep = self.now.after_ms(SWEEP_MS);
                self.sweep();
            }
        }
    }

    fn take_mail(&mut self) {
        let mut mails = std::mem::take(&mut self.mails);
        self.house.mailbox(self.number).take(&mut mails);
        for mail in mails.drain(..) {
            match mail {
                Mail::Socket {
                    socket,
                    peer,
                    listener,
                } => self.accept(socket, peer, listener),
                Mail::Response(response) => self.respond(response),
                Mail::Grant { channel, bytes } => match self.channels.get_mut(&channel) {
                    Some(granted) => {
                        granted.granted(self.house.request_pool(), bytes);
                        self.advance(channel);
                    }
                    None => self.house.give_request_bytes(bytes),
                },
            }
        }
        self.mails = mails;
    }

    fn accept(&mut self, socket: Socket, peer: IpAddr, listener: u8) {
        let registered = socket
            .into_stream()
            .ok_or_else(|| io::Error::other("somebody else holds the socket"))
            .and_then(|(stream, place)| self.register(stream, place, peer, listener));
        match registered {
            Ok(token) => self.advance(token),
            Err(error) => tracing::debug!(%peer, %error, "connection closed"),
        }
    }

    fn register(
        &mut self,
        stream: std::net::TcpStream,
        place: Option<ConnectionPlace>,
        peer: IpAddr,
        listener: u8,
    ) -> io::Result<Token> {
        stream.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        let token = Token(self.next_token);
        self.next_token += 1;
        let interest = Interest::READABLE | Interest::WRITABLE;
        self.poll
            .registry()
            .register(&mut stream, token, interest)?;
        let home = ShardId((token.0 % self.house.stripe_count()) as u16);
        let link = Arc::new(Link::new(peer, listener, home));
        let waiter = Waiter {
            processor: self.number,
            channel: token,
        };
        let channel = Channel::new(stream, place, link, waiter, self.now);
        self.channels.insert(token, channel);
        let counters = self.house.processor_counters(self.number);
        counters.connections_opened.add_shared(1);
        counters.connections.add_shared(1);
        Ok(token)
    }

    fn on_event(&mut self, event: &mio::event::Event) {
        let token = event.token();
        let Some(channel) = self.channels.get_mut(&token) else {
            return;
        };
        let gone = event.is_read_closed() || event.is_error();
        // What has failed is found by trying.
        channel.readable |= event.is_readable() || gone;
        channel.writable |= event.is_writable() || event.is_error();
        if gone {
            // What waits for others, now or after what is still to be read, would wait for nobody. Everything else is answered soon, and then the
            // end is read. The selector does not tell of this again.
            let link = Arc::clone(&channel.link);
            self.house.hang_up(&link, &mut self.jobs);
        }
        self.advance(token);
    }

    fn respond(&mut self, response: Response) {
        let token = response.channel;
        let Some(channel) = self.channels.get_mut(&token) else {
            panic!("an answer for a channel that is not muted");
        };
        channel.muted = false;
        channel.reserved += response.reserved;
        channel.last_active = self.now;
        match response.answered {
            Answered::Outcome(Outcome::Silent) => {}
            Answered::Outcome(Outcome::Frame(pieces)) => channel.answer(pieces),
            Answered::Close(reason) => {
                let counters = self.house.processor_counters(self.number);
                counters.connections_refused.add_shared(1);
                self.close(token, reason);
                return;
            }
        }
        self.advance(token);
    }

    /// Writes and reads what can be written and read.
    fn advance(&mut self, token: Token) {
        if let Err(reason) = self.send(token) {
            self.close(token, &reason);
            return;
        }
        let Some(channel) = self.channels.get_mut(&token) else {
            return;
        };
        if channel.is_sending() || channel.muted || channel.waits || !channel.readable {
            return;
        }
        let had_part = channel.has_part();
        match channel.read(self.house.request_pool(), self.limits.frame_bytes_max) {
            Came::Frame(frame) => {
                channel.muted = true;
                channel.last_active = self.now;
                let request = Request {
                    processor: self.number,
                    channel: token,
                    link: Arc::clone(&channel.link),
                    frame,
                };
                self.house.enqueue(request);
            }
            Came::Nothing | Came::Waits => {
                if had_part || channel.has_part() {
                    channel.last_active = self.now;
                }
            }
            Came::Close(reason) => self.close(token, &reason),
        }
    }

    fn send(&mut self, token: Token) -> Result<(), String> {
        let Some(channel) = self.channels.get_mut(&token) else {
            return Ok(());
        };
        if !channel.is_sending() {
            let reserved = std::mem::take(&mut channel.reserved);
            self.house.give_reply_bytes(reserved);
            return Ok(());
        }
        let written = channel.write().map_err(|error| error.to_string())?;
        if written > 0 {
            channel.last_active = self.now;
            let counters = self.house.processor_counters(self.number);
            counters.bytes_out.add_shared(written as u64);
        }
        if !channel.is_sending() {
            let reserved = std::mem::take(&mut channel.reserved);
            self.house.give_reply_bytes(reserved);
        }
        Ok(())
    }

    fn close(&mut self, token: Token, reason: &str) {
        let Some(mut channel) = self.channels.remove(&token) else {
            return;
        };
        assert!(
            !channel.muted,
            "a channel with a request under way was closed"
        );
        tracing::debug!(peer = %channel.link.peer, reason, "connection closed");
        // The descriptor is closed in any case.
        drop(self.poll.registry().deregister(&mut channel.stream));
        let paid = channel.give_up(self.house.request_pool());
        self.house.give_request_bytes(paid);
        self.house.give_reply_bytes(channel.reserved);
        let counters = self.house.processor_counters(self.number);
        counters.connections_closed.add_shared(1);
        counters.connections.add_shared(-1);
    }

    /// Ends what is idle or stuck.
    #[expect(
        clippy::iter_over_hash_type,
        reason = "each is judged by itself, in any order"
    )]
    fn sweep(&mut self) {
        let mut ended: Vec<(Token, &'static str)> = Vec::new();
        for (token, channel) in &self.channels {
            if channel.muted || channel.waits {
                continue;
            }
            let quiet_ms = self.now.ms_since(channel.last_active);
            if channel.is_sending() {
                if quiet_ms > self.limits.send_ms_max {
                    ended.push((*token, "its reader takes nothing"));
                }
            } else if quiet_ms > self.limits.idle_ms_max {
                ended.push((*token, "idle for longer than connections.max.idle.ms"));
            } else if channel.has_part() && quiet_ms > self.limits.progress_ms_max {
                ended.push((*token, "the rest of its request does not come"));
            }
        }
        for (token, reason) in ended {
            self.close(token, reason);
        }
    }
}
