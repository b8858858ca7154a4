//! What reaches a core from threads that are no cores: new sockets, and what [`Notice`] names.

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use corelog_io::inbox::InboxSender;
use corelog_io::net::Socket;

use crate::engine::notice::{Notice, Notify};

pub(super) enum Mail {
    /// An accepted connection, before its first byte is read.
    Socket {
        socket: Socket,
        peer: IpAddr,
        listener: u8,
    },
    Notice(Notice),
    /// Another core has given credits back that this one waits for.
    Credits,
}

/// Messages that may wait for a core. More would hide that it stands still; less would make recovery of many logs wait for it.
pub(super) const MAIL_MAX: usize = 16_384;

/// Delivers notices, which must arrive, to a core. When it has not taken its mail for long, the sender waits: it has nothing better to do.
pub(super) fn notify(to: InboxSender<Mail>) -> Notify {
    Arc::new(move |notice| {
        let mut mail = Mail::Notice(notice);
        while let Err(back) = to.push(mail) {
            mail = back;
            thread::sleep(Duration::from_millis(1));
        }
    })
}
