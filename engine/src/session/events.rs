//! What a session says.

use std::time::Instant;

use base64::Engine;

use crate::cache::Cache;
use crate::error::{Error, Result};
use crate::protocol::{Event, PrefillMode, SessionId};

/// What could not be done, for the person; an error that is more than that stays one.
pub(super) fn notice(session: &SessionId, error: Error) -> Result<Event> {
    match error {
        Error::Options(_) | Error::OutOfMemory { .. } => {
            Ok(Event::Notice { session: session.clone(), code: error.code().into(), message: error.to_string() })
        }
        error => Err(error),
    }
}

pub(super) fn cache_event(session: &SessionId, cache: &mut Cache) -> Event {
    Event::Cache {
        session: session.clone(),
        state: cache.state(),
        kept: cache.changes(),
        forgotten: cache.forgotten(),
        pinned: cache.pinned(),
    }
}

pub(super) fn layers_event(session: &SessionId, cache: &Cache, bins: u32) -> Event {
    let bins = bins.clamp(1, cache.n_seen().max(1));
    let shares = base64::engine::general_purpose::STANDARD.encode(cache.layer_shares(bins));
    Event::Layers { session: session.clone(), n_seen: cache.n_seen(), layers: cache.layers() as u32, bins, shares }
}

pub(super) fn prefill_event(session: &SessionId, done: f32, total: f32, mode: PrefillMode, started: Instant) -> Event {
    let tok_s = done / started.elapsed().as_secs_f32().max(1e-6);
    let remaining_s = (done >= 1.0).then(|| (total - done) / tok_s);
    Event::Prefill { session: session.clone(), done: done as u32, total: total as u32, tok_s, remaining_s, mode }
}
