//! A chat's file is written on a thread of its own, so that a question in another chat need not wait for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use engine::device;
use engine::protocol::{Event, Request, SessionId};
use engine::session::Session;

use super::Shared;

/// Writing takes the entries once more. A turn beside it goes by the memory that is free, so there must be this many
/// times as much; where there is less, everything waits for the file.
const ROOM: u64 = 4;

/// A session on its way into a file.
pub struct Saving {
    id: SessionId,
    /// Other chats go on meanwhile.
    aside: bool,
    thread: JoinHandle<Session>,
}

impl Saving {
    /// Begins to write a session of so many `bytes`; the command `re` is answered when the file is complete.
    pub fn begin(
        re: u64,
        (id, mut session): (SessionId, Session),
        bytes: u64,
        path: PathBuf,
        shared: Arc<Shared>,
    ) -> Self {
        let aside = device::free_host_memory().is_some_and(|free| bytes.saturating_mul(ROOM) <= free);
        let name = id.clone();
        let thread = thread::spawn(move || {
            match session.save(&path) {
                Ok(()) => shared.report(Some(re), Event::Accepted),
                Err(error) => shared.fail(Some(re), Some(name), &error),
            }
            session
        });
        Self { id, aside, thread }
    }

    /// Whether a command can be worked on meanwhile: another chat's can, but a second file would take memory again.
    pub fn allows(&self, request: &Request) -> bool {
        match request {
            Request::Send { session, .. }
            | Request::SetBudget { session, .. }
            | Request::Pin { session, .. }
            | Request::Layers { session, .. }
            | Request::Restore { session, .. }
            | Request::Close { session } => self.aside && *session != self.id,
            _ => false,
        }
    }

    /// Waits for the end, and gives the session back.
    pub fn end(self) -> (SessionId, Session) {
        match self.thread.join() {
            Ok(session) => (self.id, session),
            // The hook has ended the process already.
            Err(_) => std::process::exit(101),
        }
    }
}
