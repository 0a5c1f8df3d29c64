//! Starts the worker process, talks to it, and starts it again when it dies.
//!
//! One task, the supervisor, owns the process. Everyone else holds a [`Worker`], whose commands wait in a
//! queue while there is no process to take them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use engine::protocol::{Device, Event, Request, SessionId};
use tokio::sync::{mpsc, oneshot, watch};

use crate::api::Status;
use crate::error::Problem;
use crate::worker::supervisor::Supervisor;

mod pipe;
mod process;
pub mod program;
mod supervisor;
#[cfg(test)]
pub(crate) mod tests;

/// What the supervisor tells the rest of the shell, in the order it happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// Progress that the worker reported.
    Event(Event),
    /// The worker died while it held these unanswered questions.
    Lost {
        /// Their conversations.
        sessions: Vec<SessionId>,
        /// In words that fit after "because".
        how: String,
    },
    /// The state of the worker changed.
    Status(Status),
}

/// Finds the programs to try, best first.
pub type Programs = Arc<dyn Fn() -> Result<Vec<PathBuf>, Problem> + Send + Sync>;

/// The answer to a command, still to come.
pub type Reply = oneshot::Receiver<Result<Event, Problem>>;

/// A handle on the worker process.
#[derive(Debug, Clone)]
pub struct Worker {
    orders: mpsc::UnboundedSender<Order>,
    status: watch::Receiver<Status>,
    seen: watch::Receiver<Seen>,
    used: watch::Receiver<Instant>,
}

/// What is known of the process that runs now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Its process id.
    pub pid: Option<u32>,
    /// The device that it opens models on.
    pub device: Option<Device>,
}

impl Seen {
    /// Whether it computes in a memory of its own, which the gauge then shows.
    pub fn is_on_gpu(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.kind == "cuda")
    }
}

/// The supervisor's ends of the channels to everyone else.
struct Ends {
    orders: mpsc::UnboundedReceiver<Order>,
    notices: mpsc::UnboundedSender<Notice>,
    status: watch::Sender<Status>,
    seen: watch::Sender<Seen>,
    used: watch::Sender<Instant>,
}

#[derive(Debug)]
enum Order {
    Ask(Request, oneshot::Sender<Result<Event, Problem>>),
    /// Closes the model until it is wanted again.
    Rest,
    /// Opens it again.
    Wake,
    Quit(oneshot::Sender<()>),
}

impl Worker {
    /// Starts supervising, with `model` opened first where there is one.
    pub fn start(find: Programs, model: Option<PathBuf>, log: PathBuf) -> (Self, mpsc::UnboundedReceiver<Notice>) {
        let (orders, order_queue) = mpsc::unbounded_channel();
        let (notices, notice_queue) = mpsc::unbounded_channel();
        let (status, status_seen) = watch::channel(Status::Starting);
        let (seen, seen_by) = watch::channel(Seen::default());
        let (used, used_at) = watch::channel(Instant::now());
        let ends = Ends { orders: order_queue, notices, status, seen, used };
        tokio::spawn(Supervisor::new(find, model, log, ends).run());
        (Self { orders, status: status_seen, seen: seen_by, used: used_at }, notice_queue)
    }

    /// Queues a command at once; its answer is waited for separately.
    pub fn submit(&self, request: Request) -> Reply {
        let (reply, answer) = oneshot::channel();
        // When the supervisor is gone, dropping `reply` is the answer.
        let _ = self.orders.send(Order::Ask(request, reply));
        answer
    }

    /// Gives a command and waits for its answer.
    ///
    /// # Errors
    /// What the worker answered, or that it is not there to answer.
    pub async fn ask(&self, request: Request) -> Result<Event, Problem> {
        answer(self.submit(request)).await
    }

    /// The state now.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Waits until the worker is neither being started nor opening a model; one that rests is opened again.
    pub async fn settled(&self) -> Status {
        if matches!(self.status(), Status::Sleeping { .. }) {
            let _ = self.orders.send(Order::Wake);
        }
        let mut status = self.status.clone();
        match status.wait_for(is_settled).await {
            Ok(status) => status.clone(),
            Err(_) => self.status(),
        }
    }

    /// What is known of the process that runs now.
    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Closes the model until it is wanted again, unless it is at work.
    pub fn rest(&self) {
        let _ = self.orders.send(Order::Rest);
    }

    /// When it was last asked for something, or said something.
    pub fn used(&self) -> watch::Receiver<Instant> {
        self.used.clone()
    }

    /// Whether this file is the model that is open, or will be opened by itself.
    pub fn holds(&self, path: &Path) -> bool {
        match self.status() {
            Status::Ready { model } | Status::Sleeping { model } => model.path == path,
            Status::Loading { name, .. } => path.file_name().is_some_and(|file| file.to_string_lossy() == name),
            _ => false,
        }
    }

    /// Ends the process, gently where it listens.
    pub async fn quit(&self) {
        let (done, ended) = oneshot::channel();
        if self.orders.send(Order::Quit(done)).is_ok() {
            let _ = ended.await;
        }
    }
}

/// Whether the state lasts until someone changes it.
fn is_settled(status: &Status) -> bool {
    matches!(status, Status::Idle | Status::Ready { .. } | Status::Failed { .. })
}

/// Waits for the answer to a command.
///
/// # Errors
/// What the worker answered, or that it died first.
pub async fn answer(reply: Reply) -> Result<Event, Problem> {
    reply.await.unwrap_or(Err(Problem::WorkerLost))
}
