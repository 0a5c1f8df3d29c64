//! `cistern worker`: the engine behind a pipe.
//!
//! Four kinds of thread: this one reads commands and answers what can be answered at once, one thread owns
//! the model and works through everything else in order, one writes a chat's file, and one reports memory.

use std::collections::HashMap;
use std::io::{self, BufReader, BufWriter, Stdout};
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use engine::error::Error;
use engine::model::Model;
use engine::protocol::{
    self, Command, Event, Message, ModelInfo, Report, Request, SessionId, WorkerMemory, read_frame, write_frame,
};
use engine::session::{Control, Session};
use engine::tokenizer::Special;
use engine::{device, memory};

mod saving;

use saving::Saving;

/// Memory is reported this often while the engine works.
const MEMORY_EVERY: Duration = Duration::from_secs(1);

/// Serves commands from stdin until it closes.
pub fn run() -> ExitCode {
    // A panic anywhere ends the process: the shell starts another one, and no half of a worker lives on.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(101);
    }));

    let shared = Arc::new(Shared::default());
    let (jobs, queue) = mpsc::channel();
    thread::spawn({
        let shared = shared.clone();
        move || Engine { shared, model: None, sessions: HashMap::new(), saving: None }.work(&queue)
    });
    thread::spawn({
        let shared = shared.clone();
        move || watch_memory(&shared)
    });

    let mut stdin = BufReader::new(io::stdin().lock());
    loop {
        match read_frame::<Command>(&mut stdin) {
            Ok(Some(Command { request: Request::Shutdown, .. }) | None) => return ExitCode::SUCCESS,
            Ok(Some(command)) => dispatch(command, &shared, &jobs),
            Err(error) => {
                eprintln!("The pipe from the window broke ({error}); the worker ends.");
                return ExitCode::FAILURE;
            }
        }
    }
}

/// What the threads share.
#[derive(Default)]
struct Shared {
    out: Mutex<Option<BufWriter<Stdout>>>,
    model: Mutex<Option<Arc<Model>>>,
    controls: Mutex<HashMap<SessionId, Arc<Control>>>,
    /// Bytes of each session's hot cache and store.
    kv_bytes: Mutex<HashMap<SessionId, (u64, u64)>>,
    working: Mutex<bool>,
    /// Whether there was work since freed memory was last given back.
    worked: Mutex<bool>,
}

impl Shared {
    fn report(&self, re: Option<u64>, event: Event) {
        if let Event::Cache { session, state, .. } = &event {
            lock(&self.kv_bytes).insert(session.clone(), (state.hot_bytes, state.store_bytes));
        }
        if let Event::Notice { code, message, .. } = &event {
            // For the log.
            eprintln!("{code}: {message}");
        }
        let mut out = lock(&self.out);
        let out = out.get_or_insert_with(|| BufWriter::new(io::stdout()));
        if write_frame(out, &Report { re, event }).is_err() {
            // The shell is gone, and with it everyone who could read this.
            std::process::exit(0);
        }
    }

    fn fail(&self, re: Option<u64>, session: Option<SessionId>, error: &Error) {
        self.report(re, Event::Failed { session, code: error.code().into(), message: error.to_string() });
    }

    fn report_memory(&self) {
        let (kv_hot, kv_store) =
            lock(&self.kv_bytes).values().fold((0, 0), |all, bytes| (all.0 + bytes.0, all.1 + bytes.1));
        let weights = lock(&self.model).as_ref().map_or(0, |model| model.weight_bytes);
        let memory = WorkerMemory { weights, kv_hot, kv_store, rss: device::resident_memory() };
        self.report(None, Event::Memory { memory });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch_memory(shared: &Shared) {
    loop {
        thread::sleep(MEMORY_EVERY);
        if *lock(&shared.working) {
            shared.report_memory();
        } else if std::mem::take(&mut *lock(&shared.worked)) {
            memory::give_back();
            shared.report_memory();
        }
    }
}

fn dispatch(command: Command, shared: &Arc<Shared>, jobs: &Sender<Command>) {
    let Command { id, request } = command;
    match request {
        Request::Hello => {
            let device = device::describe(&device::pick());
            shared.report(Some(id), Event::Hello { version: protocol::VERSION, device });
        }
        // A long document takes a while, and a stop must not wait for it.
        Request::Count { texts } => {
            let shared = shared.clone();
            thread::spawn(move || count(id, &texts, &shared));
        }
        Request::TextAt { session, start, end } => match text_at(shared, &session, start, end) {
            Ok(text) => shared.report(Some(id), Event::Text { text }),
            Err(error) => shared.fail(Some(id), Some(session), &error),
        },
        Request::Pieces { session, start, end } => {
            let shared = shared.clone();
            thread::spawn(move || match pieces(&shared, &session, start, end) {
                Ok(pieces) => shared.report(Some(id), pieces),
                Err(error) => shared.fail(Some(id), Some(session), &error),
            });
        }
        Request::Layers { ref session, bins } => {
            if let Some(control) = lock(&shared.controls).get(session) {
                control.show_layers(bins);
            }
            shared.report(Some(id), Event::Accepted);
            enqueue(jobs, Command { id, request });
        }
        Request::Stop { session } => {
            if let Some(control) = lock(&shared.controls).get(&session) {
                control.stop();
            }
            shared.report(Some(id), Event::Accepted);
        }
        Request::SetBudget { ref session, budget } => {
            if let Some(control) = lock(&shared.controls).get(session) {
                control.set_budget(budget);
            }
            shared.report(Some(id), Event::Accepted);
            // Where no turn is running, the engine's thread applies it.
            enqueue(jobs, Command { id, request });
        }
        Request::Pin { ref session, ref passage, pinned } => {
            if let Some(control) = lock(&shared.controls).get(session) {
                control.pin(passage.clone(), pinned);
            }
            shared.report(Some(id), Event::Accepted);
            enqueue(jobs, Command { id, request });
        }
        Request::Send { ref session, .. } => {
            lock(&shared.controls).entry(session.clone()).or_default().rearm();
            shared.report(Some(id), Event::Accepted);
            enqueue(jobs, Command { id, request });
        }
        request => enqueue(jobs, Command { id, request }),
    }
}

fn enqueue(jobs: &Sender<Command>, command: Command) {
    if jobs.send(command).is_err() {
        eprintln!("The engine's thread has ended; the worker ends too.");
        std::process::exit(101);
    }
}

fn count(id: u64, texts: &[String], shared: &Shared) {
    let Some(model) = lock(&shared.model).clone() else {
        return shared.fail(Some(id), None, &no_model());
    };
    let counts = texts.iter().map(|text| model.tokenizer.encode(text, Special::AsText).len() as u32).collect();
    shared.report(Some(id), Event::Counted { counts });
}

/// The model, and the tokens that stand at some positions of a session.
fn tokens_at(shared: &Shared, session: &str, start: u32, end: u32) -> Result<(Arc<Model>, Vec<u32>), Error> {
    let model = lock(&shared.model).clone().ok_or_else(no_model)?;
    let control = lock(&shared.controls).get(session).cloned().unwrap_or_default();
    Ok((model, control.ids(start..end)?))
}

fn text_at(shared: &Shared, session: &str, start: u32, end: u32) -> Result<String, Error> {
    let (model, ids) = tokens_at(shared, session, start, end)?;
    Ok(model.tokenizer.decode(&ids))
}

fn pieces(shared: &Shared, session: &str, start: u32, end: u32) -> Result<Event, Error> {
    let (model, ids) = tokens_at(shared, session, start, end)?;
    let (text, lengths) = model.tokenizer.pieces(&ids);
    Ok(Event::Pieces { text, lengths })
}

fn no_model() -> Error {
    Error::Options("No model is open; choose one first.".into())
}

/// The thread that owns the model.
struct Engine {
    shared: Arc<Shared>,
    model: Option<Arc<Model>>,
    sessions: HashMap<SessionId, Session>,
    saving: Option<Saving>,
}

impl Engine {
    fn work(mut self, queue: &Receiver<Command>) {
        for Command { id, request } in queue {
            *lock(&self.shared.working) = true;
            self.run(id, request);
            *lock(&self.shared.working) = false;
            *lock(&self.shared.worked) = true;
            self.shared.report_memory();
        }
    }

    fn run(&mut self, id: u64, request: Request) {
        let shared = self.shared.clone();
        if let Some(saving) = self.saving.take_if(|saving| !saving.allows(&request)) {
            self.sessions.extend([saving.end()]);
        }
        match request {
            Request::Load { path } => {
                self.unload();
                match self.load(&path) {
                    Ok(model) => shared.report(Some(id), Event::ModelLoaded { model }),
                    Err(error) => shared.fail(Some(id), None, &error),
                }
            }
            Request::Unload => {
                self.unload();
                shared.report(Some(id), Event::ModelUnloaded);
            }
            Request::Close { session } => {
                self.sessions.remove(&session);
                lock(&shared.controls).remove(&session);
                lock(&shared.kv_bytes).remove(&session);
                memory::give_back();
                shared.report(Some(id), Event::Accepted);
            }
            Request::Save { session, path } => match self.sessions.remove_entry(&session) {
                Some(open) => {
                    let bytes = lock(&shared.kv_bytes).get(&session).map_or(0, |(hot, store)| hot + store);
                    self.saving = Some(Saving::begin(id, open, bytes, path, shared));
                }
                None => shared.fail(Some(id), Some(session), &Error::Empty),
            },
            Request::Restore { session, path, messages } => match self.restore(&session, &path, &messages) {
                Ok(told) => {
                    shared.report(Some(id), Event::Accepted);
                    told.into_iter().for_each(|event| shared.report(None, event));
                }
                Err(error) => shared.fail(Some(id), Some(session), &error),
            },
            Request::SetBudget { session, .. } | Request::Pin { session, .. } | Request::Layers { session, .. } => {
                if let Some(open) = self.sessions.get_mut(&session)
                    && let Err(error) = open.apply(&mut |event| shared.report(None, event))
                {
                    shared.fail(None, Some(session), &error);
                }
            }
            Request::Send { session, messages, cache, sampling, max_tokens } => {
                let mut emit = |event| shared.report(None, event);
                let sent = self
                    .session(&session, &cache)
                    .and_then(|open| open.send(&messages, &cache, &sampling, max_tokens, &mut emit));
                if let Err(error) = sent {
                    shared.fail(None, Some(session), &error);
                }
            }
            // Answered where they are read.
            Request::Hello
            | Request::Count { .. }
            | Request::TextAt { .. }
            | Request::Pieces { .. }
            | Request::Stop { .. } => {}
            Request::Shutdown => std::process::exit(0),
        }
    }

    fn session(&mut self, id: &str, options: &protocol::CacheOptions) -> Result<&mut Session, Error> {
        let model = self.model.clone().ok_or_else(no_model)?;
        let control = lock(&self.shared.controls).entry(id.to_owned()).or_default().clone();
        match self.sessions.entry(id.to_owned()) {
            std::collections::hash_map::Entry::Occupied(open) => Ok(open.into_mut()),
            std::collections::hash_map::Entry::Vacant(slot) => {
                Ok(slot.insert(Session::new(id.to_owned(), model, options, control)?))
            }
        }
    }

    fn restore(&mut self, id: &str, path: &Path, messages: &[Message]) -> Result<Vec<Event>, Error> {
        let model = self.model.clone().ok_or_else(no_model)?;
        let control = lock(&self.shared.controls).entry(id.to_owned()).or_default().clone();
        let mut session = Session::restore(id.to_owned(), model, path, control)?;
        let mut told = Vec::new();
        session.show(messages, &mut |event| told.push(event))?;
        self.sessions.insert(id.to_owned(), session);
        Ok(told)
    }

    fn load(&mut self, path: &Path) -> Result<ModelInfo, Error> {
        let device = device::pick();
        let shared = &self.shared;
        let model = Model::open(path, &device, &mut |fraction| {
            shared.report(None, Event::ModelLoading { fraction });
        })?;
        let model = Arc::new(model);
        let info = model.info(path);
        *lock(&self.shared.model) = Some(model.clone());
        self.model = Some(model);
        Ok(info)
    }

    fn unload(&mut self) {
        self.sessions.clear();
        lock(&self.shared.controls).clear();
        lock(&self.shared.kv_bytes).clear();
        *lock(&self.shared.model) = None;
        self.model = None;
        memory::give_back();
    }
}
