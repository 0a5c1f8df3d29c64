//! What a conversation gives up when memory runs out, step by step, so that its turn goes on.

use std::fmt;

use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::{self, Site};
use crate::protocol::{Event, PrefillMode, SessionId};

/// No budget is lowered below this: less holds no sentence and what it is about.
const LEAST_BUDGET: u32 = 64;

/// No fewer tokens than this are read at once.
const LEAST_CHUNK: u32 = 8;

/// No store is lowered below this.
const LEAST_STORE: u64 = 16 << 10;

/// What a turn does without, whatever its options say.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Without {
    /// The prompt is read in a stream.
    pub exact: bool,
    /// More tokens than this are not read at once.
    pub larger_chunks: Option<u32>,
    /// Nothing comes back from the store.
    pub recall: bool,
}

/// What was given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relief {
    /// Tokens that are read at once.
    Chunk {
        /// From here on, in this turn.
        to: u32,
    },
    /// The prompt is read chunk by chunk, in place of layer by layer.
    Stream,
    /// The budget, in tokens.
    Budget {
        /// Before.
        from: u32,
        /// From here on.
        to: u32,
    },
    /// What the question asks for stays in the store.
    Recall,
    /// The limit of the store, in bytes.
    Store {
        /// From here on.
        to: u64,
    },
}

impl Relief {
    /// Both, one after the other, as one; `None` where they are of different kinds.
    fn and(self, later: Self) -> Option<Self> {
        match (self, later) {
            (Self::Budget { from, .. }, Self::Budget { to, .. }) => Some(Self::Budget { from, to }),
            (Self::Chunk { .. }, Self::Chunk { .. })
            | (Self::Stream, Self::Stream)
            | (Self::Recall, Self::Recall)
            | (Self::Store { .. }, Self::Store { .. }) => Some(later),
            _ => None,
        }
    }

    /// A stable name for programs to act on.
    pub fn code(self) -> &'static str {
        match self {
            Self::Chunk { .. } => "memory_chunk",
            Self::Stream => "memory_stream",
            Self::Budget { .. } => "memory_budget",
            Self::Recall => "memory_recall",
            Self::Store { .. } => "memory_store",
        }
    }
}

impl fmt::Display for Relief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chunk { to } => write!(
                f,
                "There is little memory, so this is read {to} tokens at a time, which takes longer; close other programs for more."
            ),
            Self::Stream => write!(
                f,
                "There is too little memory to read this at once, so it is read piece by piece, which is less exact; close other programs for more."
            ),
            Self::Budget { from, to } => write!(
                f,
                "Memory ran out, so the budget is {to} tokens now instead of {from}; close other programs, then raise it again."
            ),
            Self::Recall => write!(
                f,
                "There is too little memory to bring back what this asks for, so it is answered from what is held; close other programs, then ask again."
            ),
            Self::Store { to } => write!(
                f,
                "Memory ran out, so the store of this chat may take {} MiB now; close other programs, then set the budget again.",
                to >> 20
            ),
        }
    }
}

/// What has been given up and not been said yet.
#[derive(Debug, Default)]
pub struct Reliefs(Vec<Relief>);

impl Reliefs {
    /// Adds one to those of its kind.
    pub fn add(&mut self, relief: Relief) {
        match self.0.iter_mut().find_map(|before| Some((before.and(relief)?, before))) {
            Some((both, before)) => *before = both,
            None => self.0.push(relief),
        }
    }

    /// What is to be said, once it has helped.
    pub fn take(&mut self, session: &SessionId) -> Vec<Event> {
        let notice = |relief: Relief| Event::Notice {
            session: session.clone(),
            code: relief.code().into(),
            message: relief.to_string(),
        };
        self.0.drain(..).map(notice).collect()
    }
}

impl Context {
    /// After `error`, takes less from here on, until the budget is set again; `None` where it is no lack of memory,
    /// or nothing is left to give. It may have come while so many tokens of a prompt were read.
    ///
    /// # Errors
    /// When the device fails.
    pub fn make_room(&mut self, error: &Error, reading: Option<u32>) -> Result<Option<Relief>> {
        let Error::OutOfMemory { site, .. } = error else { return Ok(None) };
        let relief = self.give_up(*site, reading)?;
        memory::give_back();
        Ok(relief)
    }

    fn give_up(&mut self, site: Option<Site>, reading: Option<u32>) -> Result<Option<Relief>> {
        if reading.is_some() && site == Some(Site::Pass) && self.chunk() > LEAST_CHUNK {
            let to = (self.chunk() / 2).max(LEAST_CHUNK);
            self.without.larger_chunks = Some(to);
            return Ok(Some(Relief::Chunk { to }));
        }
        if reading.is_some_and(|n| self.mode(n) == PrefillMode::Exact) && site != Some(Site::Store) {
            self.without.exact = true;
            return Ok(Some(Relief::Stream));
        }
        let store = self.cache().state().store_bytes;
        if site == Some(Site::Store) && store > LEAST_STORE {
            let to = (store - store / 4).max(LEAST_STORE);
            self.cache_mut().lower_store(to)?;
            return Ok(Some(Relief::Store { to }));
        }
        let from = self.cache().budget();
        let least = self.cache().least_budget().map_or(u32::MAX, |least| least.max(LEAST_BUDGET));
        if from <= least {
            let recalls = matches!(site, Some(Site::Recall | Site::Scores)) && !self.without.recall;
            self.without.recall = true;
            return Ok(recalls.then_some(Relief::Recall));
        }
        // What is held already could be had; a budget that is far from full says nothing of what fits.
        let held = self.cache().most_entries() as u32;
        let full = if held >= from / 2 { held.min(from) } else { from };
        let to = (full - full / 4).clamp(least, from - 1);
        self.cache_mut().lower_budget(to)?;
        Ok(Some(Relief::Budget { from, to }))
    }
}
