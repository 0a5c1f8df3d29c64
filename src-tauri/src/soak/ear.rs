//! What the window hears, held against what it was promised.

use std::collections::HashMap;
use std::sync::Mutex;

use engine::protocol::{CacheState, Event};

use crate::api::AppEvent;
use crate::desk::Desk;

/// Of the turn of a chat that is under way, or was the last one.
#[derive(Debug, Clone, Default)]
pub struct Heard {
    pub text: String,
    pub pieces: usize,
    pub ended: bool,
    pub problem: Option<String>,
    /// The largest budget that was in force.
    budget: u32,
    /// Of the cache, when it was last told.
    state: CacheState,
}

pub struct Ear {
    evict_every: u32,
    chunk: u32,
    chats: Mutex<HashMap<String, Heard>>,
}

impl Ear {
    pub fn new(evict_every: u32, chunk: u32) -> Self {
        Self { evict_every, chunk, chats: Mutex::default() }
    }

    /// A turn begins.
    pub fn begin(&self, desk: &Desk, chat: &str, budget: u32) {
        self.listen(desk);
        let mut chats = self.chats.lock().unwrap();
        let heard = chats.entry(chat.to_owned()).or_default();
        *heard = Heard { budget: budget.max(heard.budget), state: heard.state.clone(), ..Heard::default() };
    }

    /// The slider is about to be moved there.
    pub fn allow(&self, desk: &Desk, chat: &str, budget: u32) {
        self.listen(desk);
        let mut chats = self.chats.lock().unwrap();
        let heard = chats.entry(chat.to_owned()).or_default();
        heard.budget = heard.budget.max(budget);
    }

    pub fn of(&self, desk: &Desk, chat: &str) -> Heard {
        self.listen(desk);
        self.chats.lock().unwrap().get(chat).cloned().unwrap_or_default()
    }

    /// Bytes that the worker says its caches and stores hold, and the positions in them.
    pub fn told(&self, desk: &Desk) -> (u64, u32) {
        self.listen(desk);
        let chats = self.chats.lock().unwrap();
        let states = chats.values().map(|heard| &heard.state);
        states.fold((0, 0), |(bytes, seen), state| (bytes + state.hot_bytes + state.store_bytes, seen + state.n_seen))
    }

    fn listen(&self, desk: &Desk) {
        for event in desk.heard.lock().unwrap().drain(..) {
            let AppEvent::Worker { event } = event else { continue };
            let mut chats = self.chats.lock().unwrap();
            match event {
                Event::Token { session, text, .. } => {
                    let heard = chats.entry(session).or_default();
                    heard.text.push_str(&text);
                    heard.pieces += 1;
                }
                Event::Cache { session, state, .. } => {
                    let heard = chats.entry(session).or_default();
                    self.hold(&state, heard);
                    heard.state = state;
                }
                Event::Finished { session, .. } => chats.entry(session).or_default().ended = true,
                Event::Failed { session, code, message } => {
                    let session = session.unwrap_or_else(|| panic!("{code}: {message}"));
                    let heard = chats.entry(session).or_default();
                    heard.ended = true;
                    heard.problem = Some(format!("{code}: {message}"));
                }
                _ => {}
            }
        }
    }

    /// Memory is what was promised: the budget, what is appended before it is cut back, and a chunk on its way in.
    fn hold(&self, state: &CacheState, heard: &Heard) {
        assert!(heard.budget == 0 || state.budget <= heard.budget, "{state:?} {heard:?}");
        let most = state.budget + self.evict_every + if heard.ended { 0 } else { self.chunk };
        assert!(state.hot_entries <= most, "{state:?} {heard:?}");
        let each = state.full_bytes as f64 / f64::from(state.n_seen.max(1));
        assert!(state.hot_bytes as f64 <= f64::from(most) * each * 1.001, "{state:?} {heard:?}");
    }
}
