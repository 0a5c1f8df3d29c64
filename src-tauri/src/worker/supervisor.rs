//! Keeps a worker process running: starts it, hands commands to it, and starts it again when it dies.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::protocol::{Command, Event, ModelInfo, Report, Request, SessionId, VERSION};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::process::{Pending, Process};
use super::{Ends, Notice, Order, Programs, Seen, is_settled};
use crate::api::Status;
use crate::error::Problem;
use crate::events::session_of;

/// A worker that has not said hello by then never will.
const HELLO_WITHIN: Duration = Duration::from_secs(20);
/// Before a worker that died is started again.
const RESTART_AFTER: Duration = Duration::from_millis(200);
/// This many deaths within [`LOOP_WINDOW`] are a loop, which a restart would not end.
const LOOP_DEATHS: usize = 3;
const LOOP_WINDOW: Duration = Duration::from_secs(30);

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

/// See the module.
pub struct Supervisor {
    find: Programs,
    /// Those still to be tried; the first is in use.
    programs: Vec<PathBuf>,
    /// Opened again after a restart.
    model: Option<PathBuf>,
    /// Opened again when it is wanted.
    asleep: Option<ModelInfo>,
    log: PathBuf,
    ends: Ends,
    /// Conversations with a question that the process has taken and not answered.
    sessions: HashSet<SessionId>,
    deaths: Vec<Instant>,
    last_id: u64,
}

impl Supervisor {
    /// Has started nothing yet.
    pub fn new(find: Programs, model: Option<PathBuf>, log: PathBuf, ends: Ends) -> Self {
        let (programs, sessions, deaths) = (Vec::new(), HashSet::new(), Vec::new());
        Self { find, programs, model, asleep: None, log, ends, sessions, deaths, last_id: 0 }
    }

    /// Keeps a process running until it is told to quit.
    pub async fn run(mut self) {
        loop {
            let end = match self.spawn().await {
                Ok(process) => self.serve(process).await,
                Err(problem) => End::Hopeless(problem),
            };
            self.ends.seen.send_replace(Seen::default());
            if !self.sessions.is_empty() {
                let sessions = self.sessions.drain().collect();
                let how = match &end {
                    End::Died { how, .. } => how.clone(),
                    _ => "it was ended".to_owned(),
                };
                let _ = self.ends.notices.send(Notice::Lost { sessions, how });
            }
            match end {
                End::Quit(done) => {
                    let _ = done.send(());
                    return;
                }
                End::Orphaned => return,
                // A CUDA build may lack a library of the toolkit: the plain one does not need it.
                End::Died { said_hello: false, how } if self.programs.len() > 1 => self.fall_back(&how),
                End::Hopeless(problem) if self.programs.len() > 1 => {
                    self.fall_back(&format!("it cannot be used ({})", problem.to_string().trim_end_matches('.')));
                }
                End::Died { how, .. } => {
                    self.deaths.retain(|death| death.elapsed() < LOOP_WINDOW);
                    self.deaths.push(Instant::now());
                    if self.deaths.len() >= LOOP_DEATHS && self.programs.len() > 1 {
                        self.fall_back(&how);
                    } else if self.deaths.len() >= LOOP_DEATHS {
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

    /// Goes on with the next program: the one without a graphics card.
    fn fall_back(&mut self, how: &str) {
        self.programs.remove(0);
        self.deaths.clear();
        let message = format!(
            "The engine for the graphics card stopped because {how}; Cistern goes on with the processor, which is slower."
        );
        let event = Event::Failed { session: None, code: "gpu_engine".to_owned(), message };
        let _ = self.ends.notices.send(Notice::Event(event));
    }

    /// Refuses everything until a model is asked for. `false` when there is nothing left to wait for.
    async fn wait_for_retry(&mut self) -> bool {
        loop {
            match self.ends.orders.recv().await {
                Some(Order::Ask(Request::Load { path }, reply)) => {
                    self.model = Some(path);
                    self.deaths.clear();
                    self.programs.clear();
                    self.set(Status::Starting);
                    let mut status = self.ends.status.subscribe();
                    tokio::spawn(async move {
                        let outcome = match status.wait_for(is_settled).await.as_deref() {
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
                Some(Order::Rest | Order::Wake) => {}
                Some(Order::Quit(done)) => {
                    let _ = done.send(());
                    return false;
                }
                None => return false,
            }
        }
    }

    fn set(&self, status: Status) {
        self.ends.status.send_replace(status.clone());
        let _ = self.ends.notices.send(Notice::Status(status));
    }

    async fn spawn(&mut self) -> Result<Process, Problem> {
        if self.programs.is_empty() {
            let find = Arc::clone(&self.find);
            // Asks the driver, which may take its time.
            self.programs = tokio::task::spawn_blocking(move || find()).await.map_err(|_| Problem::Closing)??;
        }
        let path = self.programs.first().cloned().unwrap_or_default();
        Process::spawn(&path, &self.log).map_err(|error| Problem::WorkerStart { path, error })
    }

    async fn serve(&mut self, mut process: Process) -> End {
        self.ends.seen.send_replace(Seen { pid: process.pid(), device: None });
        if let Err(end) = self.greet(&mut process).await {
            return end;
        }
        match self.model.clone() {
            Some(path) => self.pass(&mut process, Request::Load { path }, None),
            None => self.set(match self.asleep.clone() {
                Some(model) => Status::Sleeping { model },
                None => Status::Idle,
            }),
        }
        loop {
            tokio::select! {
                order = self.ends.orders.recv() => match order {
                    Some(Order::Ask(request, reply)) => {
                        // What is saved or given back by itself is not used for that.
                        if !matches!(request, Request::Save { .. } | Request::Close { .. }) {
                            self.ends.used.send_replace(Instant::now());
                        }
                        if matches!(request, Request::Send { .. }) {
                            self.wake(&mut process);
                        }
                        self.pass(&mut process, request, Some(reply));
                    }
                    Some(Order::Rest) => self.rest(&mut process),
                    Some(Order::Wake) => self.wake(&mut process),
                    Some(Order::Quit(done)) => {
                        process.quit().await;
                        return End::Quit(done);
                    }
                    None => {
                        process.quit().await;
                        return End::Orphaned;
                    }
                },
                report = process.reports.recv() => match report {
                    Some(Ok(report)) => {
                        if let Some(how) = self.card_failed(&process, &report) {
                            return End::Died { how, said_hello: true };
                        }
                        self.take(&mut process, report);
                    }
                    broken => {
                        let how = process.how_it_died(broken, self.model.as_deref()).await;
                        return End::Died { how, said_hello: true };
                    }
                },
            }
        }
    }

    /// The worker's first word must be that it is of our version.
    async fn greet(&mut self, process: &mut Process) -> Result<(), End> {
        self.last_id += 1;
        process.send(Command { id: self.last_id, request: Request::Hello });
        let how = match timeout(HELLO_WITHIN, process.reports.recv()).await {
            Ok(Some(Ok(Report { event: Event::Hello { version, device }, .. }))) if version == VERSION => {
                self.ends.seen.send_modify(|seen| seen.device = Some(device));
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
            Ok(broken) => process.how_it_died(broken, None).await,
            Err(_) => format!("it said nothing for {} seconds", HELLO_WITHIN.as_secs()),
        };
        Err(End::Died { how, said_hello: false })
    }

    /// Closes the model, unless something needs it. To everyone else it is away from here on: what they ask for
    /// reaches the worker after this.
    fn rest(&mut self, process: &mut Process) {
        let Status::Ready { model } = self.ends.status.borrow().clone() else { return };
        if !self.sessions.is_empty() || process.pending.values().any(|pending| pending.reply.is_some()) {
            return;
        }
        self.model = None;
        self.pass(process, Request::Unload, None);
        self.asleep = Some(model.clone());
        self.set(Status::Sleeping { model });
    }

    /// Opens the model that rests.
    fn wake(&mut self, process: &mut Process) {
        if let Some(model) = self.asleep.take() {
            self.pass(process, Request::Load { path: model.path }, None);
        }
    }

    /// Hands a command to the process.
    fn pass(
        &mut self,
        process: &mut Process,
        request: Request,
        reply: Option<oneshot::Sender<Result<Event, Problem>>>,
    ) {
        let mut pending = Pending { reply, load: None, turn: None };
        match &request {
            Request::Load { path } => {
                self.asleep = None;
                self.set(Status::Loading { name: file_name(path), fraction: 0.0 });
                pending.load = Some(path.clone());
            }
            Request::Unload => self.asleep = None,
            Request::Send { session, .. } => {
                self.sessions.insert(session.clone());
                pending.turn = Some(session.clone());
            }
            _ => {}
        }
        self.last_id += 1;
        process.pending.insert(self.last_id, pending);
        // A closed pipe shows as the end of its reports.
        process.send(Command { id: self.last_id, request });
    }

    /// Whether a graphics card no longer computes, as after a reset of its driver: what a process holds there is lost,
    /// and whatever it tries next fails as well, while a new process may find the card again. In words that fit after
    /// "because".
    fn card_failed(&mut self, process: &Process, Report { re, event }: &Report) -> Option<String> {
        let Event::Failed { code, message, .. } = event else { return None };
        if code != "compute" || !self.ends.seen.borrow().is_on_gpu() {
            return None;
        }
        // What was being opened is opened again.
        let load = re.and_then(|id| process.pending.get(&id)?.load.clone());
        self.model = load.or(self.model.take());
        Some(format!("the card failed ({})", message.trim_end_matches('.')))
    }

    /// Takes in one report.
    fn take(&mut self, process: &mut Process, Report { re, event }: Report) {
        if session_of(&event).is_some() {
            self.ends.used.send_replace(Instant::now());
        }
        match &event {
            Event::ModelLoading { fraction } => {
                if let Some(path) = process.pending.values().find_map(|pending| pending.load.as_ref()) {
                    self.set(Status::Loading { name: file_name(path), fraction: *fraction });
                }
            }
            Event::ModelLoaded { model } => {
                self.model = Some(model.path.clone());
                self.ends.seen.send_modify(|seen| seen.device = Some(model.device.clone()));
                self.set(Status::Ready { model: model.clone() });
            }
            // One that was sent to rest is away already, and may be on its way back.
            Event::ModelUnloaded if re.and_then(|id| process.pending.get(&id)).is_some_and(|p| p.reply.is_none()) => {}
            Event::ModelUnloaded => {
                self.model = None;
                self.set(Status::Idle);
            }
            // One that answers a command, to restore a session for instance, ends no turn.
            Event::Finished { session, .. } | Event::Failed { session: Some(session), .. } if re.is_none() => {
                self.sessions.remove(session);
            }
            _ => {}
        }
        let Some(pending) = re.and_then(|id| process.pending.remove(&id)) else {
            let _ = self.ends.notices.send(Notice::Event(event));
            return;
        };
        let outcome = match event {
            Event::Failed { code, message, .. } => {
                if let Some(session) = &pending.turn {
                    self.sessions.remove(session);
                }
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

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
