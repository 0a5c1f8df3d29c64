//! What other threads may ask of a session.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::protocol::Passage;

/// What other threads may do to a session while it works.
#[derive(Debug, Default)]
pub struct Control {
    stop: AtomicBool,
    budget: Mutex<Option<Option<u32>>>,
    pins: Mutex<Vec<(Passage, bool)>>,
    layers: Mutex<Option<u32>>,
    ids: Mutex<Vec<u32>>,
}

impl Control {
    /// Ends prefill or generation within one token.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Makes the next turn start although an earlier one was stopped.
    pub fn rearm(&self) {
        self.stop.store(false, Ordering::Relaxed);
    }

    /// Asks for another budget, which holds from the next token or chunk on.
    pub fn set_budget(&self, budget: Option<u32>) {
        *self.budget.lock().unwrap_or_else(PoisonError::into_inner) = Some(budget);
    }

    /// Asks for a passage to be kept from eviction, or no longer; holds from the next token or prompt on.
    pub fn pin(&self, passage: Passage, pinned: bool) {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner).push((passage, pinned));
    }

    /// Asks for an [`Event::Layers`] with so many bins, from the next token or chunk on.
    pub fn show_layers(&self, bins: u32) {
        *self.layers.lock().unwrap_or_else(PoisonError::into_inner) = Some(bins);
    }

    /// The tokens of the conversation in `range`, also of those that are only being read.
    ///
    /// # Errors
    /// [`Error::Range`].
    pub fn ids(&self, range: Range<u32>) -> Result<Vec<u32>> {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        ids.get(range.start as usize..range.end as usize).map(<[u32]>::to_vec).ok_or(Error::Range {
            start: range.start,
            end: range.end,
            n_seen: ids.len() as u32,
        })
    }

    pub(super) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn take_budget(&self) -> Option<Option<u32>> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn take_pins(&self) -> Vec<(Passage, bool)> {
        std::mem::take(&mut *self.pins.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn take_layers(&self) -> Option<u32> {
        self.layers.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn set_ids(&self, ids: &[u32]) {
        ids.clone_into(&mut self.ids.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn push_id(&self, id: u32) {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner).push(id);
    }
}
