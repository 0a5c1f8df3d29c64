//! Starts the worker process, talks to it, and starts it again when it dies.
//!
//! One task, the [`Supervisor`], owns the process. Everyone else holds a [`Worker`], whose commands wait in a
//! queue while there is no process to take them.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::protocol::{Command, Device, Event, Report, Request, SessionId, VERSION};
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::api::Status;
use crate::error::Problem;

mod pipe;
pub mod program;
#[cfg(test)]
pub(crate) mod tests;

/// A worker that has not said hello by then never will.
const HELLO_WITHIN: Duration = Duration::from_secs(20);
/// Time for the worker to end the current token and go, before it is killed.
const QUIT_WITHIN: Duration = Duration::from_secs(2);
/// Before a worker that died is started again.
const RESTART_AFTER: Duration = Duration::from_millis(200);
/// This many deaths within [`LOOP_WINDOW`] are a loop, which a restart would not end.
const LOOP_DEATHS: usize = 3;
const LOOP_WINDOW: Duration = Duration::from_secs(30);

/// What the supervisor tells the rest of the shell, in the order it happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Notice {
    /// Progress that the worker reported.
    Event(Event),
    /// The worker died while it held these unanswered questions.
    Lost(Vec<SessionId>),
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
}

/// What is known of the process that runs now.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Seen {
    /// Its process id.
    pub pid: Option<u32>,
    /// The device that it opens models on.
    pub device: Option<Device>,
}

#[derive(Debug)]
enum Order {
    Ask(Request, oneshot::Sender<Result<Event, Problem>>),
    Quit(oneshot::Sender<()>),
}

impl Worker {
    /// Starts supervising, with `model` opened first where there is one.
    pub fn start(find: Programs, model: Option<PathBuf>, log: PathBuf) -> (Self, mpsc::UnboundedReceiver<Notice>) {
        let (orders, order_queue) = mpsc::unbounded_channel();
        let (notices, notice_queue) = mpsc::unbounded_channel();
        let (status, status_seen) = watch::channel(Status::Starting);
        let (seen, seen_by) = watch::channel(Seen::default());
        let supervisor = Supervisor {
            find,
            programs: Vec::new(),
            model,
            log,
            orders: order_queue,
            notices,
            status,
            seen,
            sessions: HashSet::new(),
            deaths: Vec::new(),
            last_id: 0,
        };
        tokio::spawn(supervisor.run());
        (Self { orders, status: status_seen, seen: seen_by }, notice_queue)
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

    /// Waits until the worker is neither being started nor opening a model.
    pub async fn settled(&self) -> Status {
        let mut status = self.status.clone();
        let settled =
            status.wait_for(|status| matches!(status, Status::Idle | Status::Ready { .. } | Status::Failed { .. }));
        match settled.await {
            Ok(status) => status.clone(),
            Err(_) => self.status(),
        }
    }

    /// What is known of the process that runs now.
    pub fn seen(&self) -> Seen {
        self.seen.borrow().clone()
    }

    /// Ends the process, gently where it listens.
    pub async fn quit(&self) {
        let (done, ended) = oneshot::channel();
        if self.orders.send(Order::Quit(done)).is_ok() {
            let _ = ended.await;
        }
    }
}

/// Waits for the answer to a command.
///
/// # Errors
/// What the worker answered, or that it died first.
pub async fn answer(reply: Reply) -> Result<Event, Problem> {
    reply.await.unwrap_or(Err(Problem::WorkerLost))
}

/// Why a process is no longer served.
enum End {
    /// We ended it.
    Quit(oneshot::Sender<()>),
    /// It ended by itself, or we ended it because it made no sense; what happened to it, for people.
    Died { how: String, said_hello: bool },
    /// It cannot be of use, however often it is started.
    Hopeless(Problem),
    /// Nobody holds a [`Worker`] any more.
    Orphaned,
}

struct Supervisor {
    find: Programs,
    /// Those still to be tried; the first is in use.
    programs: Vec<PathBuf>,
    /// Opened again after a restart.
    model: Option<PathBuf>,
    log: PathBuf,
    orders: mpsc::UnboundedReceiver<Order>,
    notices: mpsc::UnboundedSender<Notice>,
    status: watch::Sender<Status>,
    seen: watch::Sender<Seen>,
    /// Conversations with a question that the process has taken and not answered.
    sessions: HashSet<SessionId>,
    deaths: Vec<Instant>,
    last_id: u64,
}

/// A running process and the commands it owes an answer.
struct Process {
    child: Child,
    stdin: mpsc::UnboundedSender<Command>,
    reports: mpsc::UnboundedReceiver<std::io::Result<Report>>,
    pending: HashMap<u64, Pending>,
}

struct Pending {
    reply: Option<oneshot::Sender<Result<Event, Problem>>>,
    /// With `load`.
    load: Option<PathBuf>,
}

impl Supervisor {
    async fn run(mut self) {
        loop {
            let end = match self.spawn().await {
                Ok(process) => self.serve(process).await,
                Err(problem) => End::Hopeless(problem),
            };
            self.seen.send_replace(Seen::default());
            if !self.sessions.is_empty() {
                let _ = self.notices.send(Notice::Lost(self.sessions.drain().collect()));
            }
            match end {
                End::Quit(done) => {
                    let _ = done.send(());
                    return;
                }
                End::Orphaned => return,
                // A CUDA build may lack a library of the toolkit: the plain one does not need it.
                End::Died { said_hello: false, .. } | End::Hopeless(_) if self.programs.len() > 1 => {
                    self.programs.remove(0);
                }
                End::Died { how, .. } => {
                    self.deaths.retain(|death| death.elapsed() < LOOP_WINDOW);
                    self.deaths.push(Instant::now());
                    if self.deaths.len() >= LOOP_DEATHS {
                        let message = format!(
                            "The engine stopped {LOOP_DEATHS} times in a row, the last time because {how}; choose a model to try again."
                        );
                        self.set(Status::Failed { code: "worker_crash_loop".to_owned(), message });
                        if !self.wait_for_retry().await {
                            return;
                        }
                    } else {
                        let message = format!("The engine stopped because {how}; it is being started again.");
                        self.set(Status::Restarting { message });
                        sleep(RESTART_AFTER).await;
                    }
                }
                End::Hopeless(problem) => {
                    self.set(Status::Failed { code: problem.code().to_owned(), message: problem.to_string() });
                    if !self.wait_for_retry().await {
                        return;
                    }
                }
            }
        }
    }

    /// Refuses everything until a model is asked for. `false` when there is nothing left to wait for.
    async fn wait_for_retry(&mut self) -> bool {
        loop {
            match self.orders.recv().await {
                Some(Order::Ask(Request::Load { path }, reply)) => {
                    self.model = Some(path);
                    self.deaths.clear();
                    self.programs.clear();
                    self.set(Status::Starting);
                    let mut status = self.status.subscribe();
                    tokio::spawn(async move {
                        let settled = status.wait_for(|status| {
                            matches!(status, Status::Idle | Status::Ready { .. } | Status::Failed { .. })
                        });
                        let outcome = match settled.await.as_deref() {
                            Ok(Status::Ready { model }) => Ok(Event::ModelLoaded { model: model.clone() }),
                            Ok(Status::Failed { code, message }) => {
                                Err(Problem::Worker { code: code.clone(), message: message.clone() })
                            }
                            _ => Err(Problem::WorkerLost),
                        };
                        let _ = reply.send(outcome);
                    });
                    return true;
                }
                Some(Order::Ask(_, reply)) => {
                    let _ = reply.send(Err(Problem::WorkerDown));
                }
                Some(Order::Quit(done)) => {
                    let _ = done.send(());
                    return false;
                }
                None => return false,
            }
        }
    }

    fn set(&self, status: Status) {
        self.status.send_replace(status.clone());
        let _ = self.notices.send(Notice::Status(status));
    }

    async fn spawn(&mut self) -> Result<Process, Problem> {
        if self.programs.is_empty() {
            let find = Arc::clone(&self.find);
            // Asks the driver, which may take its time.
            self.programs = tokio::task::spawn_blocking(move || find()).await.map_err(|_| Problem::Closing)??;
        }
        let path = self.programs.first().cloned().unwrap_or_default();
        let failed = |error| Problem::WorkerStart { path: path.clone(), error };
        let mut command = tokio::process::Command::new(&path);
        command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log_to(&self.log)).kill_on_drop(true);
        #[cfg(windows)]
        command.creation_flags(0x0800_0000); // CREATE_NO_WINDOW: no console beside the window.
        let mut child = command.spawn().map_err(failed)?;
        let missing = || failed(std::io::ErrorKind::BrokenPipe.into());
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = child.stdout.take().ok_or_else(missing)?;

        // Each pipe has its own task: neither may wait for the other while the worker waits for it.
        let (to_worker, commands) = mpsc::unbounded_channel();
        tokio::spawn(write_all(stdin, commands));
        let (from_worker, reports) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut stdout = BufReader::new(stdout);
            while let Some(report) = pipe::receive(&mut stdout).await.transpose() {
                let broken = report.is_err();
                if from_worker.send(report).is_err() || broken {
                    break;
                }
            }
        });
        Ok(Process { child, stdin: to_worker, reports, pending: HashMap::new() })
    }

    async fn serve(&mut self, mut process: Process) -> End {
        self.seen.send_replace(Seen { pid: process.child.id(), device: None });
        if let Err(end) = self.greet(&mut process).await {
            return end;
        }
        match self.model.clone() {
            Some(path) => self.pass(&mut process, Request::Load { path }, None),
            None => self.set(Status::Idle),
        }
        loop {
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(Order::Ask(request, reply)) => self.pass(&mut process, request, Some(reply)),
                    Some(Order::Quit(done)) => {
                        quit(process).await;
                        return End::Quit(done);
                    }
                    None => {
                        quit(process).await;
                        return End::Orphaned;
                    }
                },
                report = process.reports.recv() => match report {
                    Some(Ok(report)) => self.take(&mut process, report),
                    broken => return End::Died { how: died(process, broken).await, said_hello: true },
                },
            }
        }
    }

    /// The worker's first word must be that it is of our version.
    async fn greet(&mut self, process: &mut Process) -> Result<(), End> {
        self.last_id += 1;
        let _ = process.stdin.send(Command { id: self.last_id, request: Request::Hello });
        let how = match timeout(HELLO_WITHIN, process.reports.recv()).await {
            Ok(Some(Ok(Report { event: Event::Hello { version, device }, .. }))) if version == VERSION => {
                self.seen.send_modify(|seen| seen.device = Some(device));
                return Ok(());
            }
            Ok(Some(Ok(Report { event: Event::Hello { version, .. }, .. }))) => {
                return Err(End::Hopeless(Problem::WorkerVersion { ours: VERSION, theirs: version }));
            }
            // The processor lacks something that this build needs, and other ways to refuse work.
            Ok(Some(Ok(Report { event: Event::Failed { code, message, .. }, .. }))) => {
                return Err(End::Hopeless(Problem::Worker { code, message }));
            }
            Ok(Some(Ok(_))) => "it did not say what it is".to_owned(),
            Ok(broken) => how_it_died(&mut process.child, broken).await,
            Err(_) => format!("it said nothing for {} seconds", HELLO_WITHIN.as_secs()),
        };
        Err(End::Died { how, said_hello: false })
    }

    /// Hands a command to the process.
    fn pass(
        &mut self,
        process: &mut Process,
        request: Request,
        reply: Option<oneshot::Sender<Result<Event, Problem>>>,
    ) {
        let load = match &request {
            Request::Load { path } => {
                self.set(Status::Loading { name: file_name(path), fraction: 0.0 });
                Some(path.clone())
            }
            Request::Send { session, .. } => {
                self.sessions.insert(session.clone());
                None
            }
            _ => None,
        };
        self.last_id += 1;
        process.pending.insert(self.last_id, Pending { reply, load });
        // A closed pipe shows as the end of its reports.
        let _ = process.stdin.send(Command { id: self.last_id, request });
    }

    /// Takes in one report.
    fn take(&mut self, process: &mut Process, Report { re, event }: Report) {
        match &event {
            Event::ModelLoading { fraction } => {
                if let Some(path) = process.pending.values().find_map(|pending| pending.load.as_ref()) {
                    self.set(Status::Loading { name: file_name(path), fraction: *fraction });
                }
            }
            Event::ModelLoaded { model } => {
                self.model = Some(model.path.clone());
                self.seen.send_modify(|seen| seen.device = Some(model.device.clone()));
                self.set(Status::Ready { model: model.clone() });
            }
            Event::ModelUnloaded => {
                self.model = None;
                self.set(Status::Idle);
            }
            Event::Finished { session, .. } | Event::Failed { session: Some(session), .. } => {
                self.sessions.remove(session);
            }
            _ => {}
        }
        let Some(pending) = re.and_then(|id| process.pending.remove(&id)) else {
            let _ = self.notices.send(Notice::Event(event));
            return;
        };
        let outcome = match event {
            Event::Failed { code, message, .. } => {
                if let Some(refused) = pending.load {
                    let before = self.model.take().filter(|path| *path != refused);
                    match (before, &pending.reply) {
                        // A file that is no model must not cost the person the one that was open.
                        (Some(path), _) => self.pass(process, Request::Load { path }, None),
                        // The person who asked for it gets the answer; a model that we opened by ourselves has none to tell.
                        (None, Some(_)) => self.set(Status::Idle),
                        (None, None) => self.set(Status::Failed { code: code.clone(), message: message.clone() }),
                    }
                }
                Err(Problem::Worker { code, message })
            }
            event => Ok(event),
        };
        if let Some(reply) = pending.reply {
            let _ = reply.send(outcome);
        }
    }
}

async fn write_all(mut stdin: ChildStdin, mut commands: mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = commands.recv().await {
        if pipe::send(&mut stdin, &command).await.is_err() {
            break;
        }
    }
}

/// The worker goes when it is told to, and when its stdin closes.
async fn quit(process: Process) {
    let Process { mut child, stdin, .. } = process;
    let _ = stdin.send(Command { id: 0, request: Request::Shutdown });
    drop(stdin);
    if timeout(QUIT_WITHIN, child.wait()).await.is_err() {
        let _ = child.kill().await;
    }
}

async fn died(mut process: Process, broken: Option<std::io::Result<Report>>) -> String {
    how_it_died(&mut process.child, broken).await
}

/// In words that fit after "because".
async fn how_it_died(child: &mut Child, last: Option<std::io::Result<Report>>) -> String {
    if let Some(Err(error)) = last {
        let _ = child.kill().await;
        return format!("it sent something that could not be understood ({error})");
    }
    let Ok(Ok(status)) = timeout(Duration::from_secs(1), child.wait()).await else {
        let _ = child.kill().await;
        return "it closed its output".to_owned();
    };
    #[cfg(unix)]
    if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
        return match signal {
            9 => "the system ended it, most likely for want of memory".to_owned(),
            6 => "it gave up, most likely for want of memory".to_owned(),
            4 => "this processor lacks an instruction that it needs".to_owned(),
            signal => format!("it crashed (signal {signal})"),
        };
    }
    match status.code() {
        Some(0) => "it ended by itself".to_owned(),
        Some(code) => format!("it failed (exit status {code}, see its log)"),
        None => "it ended in an unknown way".to_owned(),
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// Appends to the log; a large one is set aside first. Without a log the worker runs all the same.
fn log_to(path: &Path) -> Stdio {
    const LARGE: u64 = 1 << 20;
    if fs::metadata(path).is_ok_and(|meta| meta.len() > LARGE) {
        let _ = fs::rename(path, path.with_extension("old.log"));
    }
    File::options().create(true).append(true).open(path).map_or_else(|_| Stdio::null(), Stdio::from)
}
