//! Memory is asked for before it is taken, wherever what is taken grows with a conversation: where there is too
//! little, the turn goes on with less (see [`Context::make_room`](crate::context::Context::make_room)), in place of a
//! process that the system ends.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

use candle_core::Device;

use crate::device;
use crate::error::{Error, Result};

/// What else the process takes meanwhile, in pieces that nobody asks for.
const RESERVE: u64 = 96 << 20;

/// So much is given, in bytes, before the free memory is looked at again; a look takes about half a
/// millisecond.
const CREDIT: u64 = 32 << 20;

/// What memory is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// Buffers of a layer's hot cache.
    Hot,
    /// What comes back from the store.
    Recall,
    /// Scores of a question over the store.
    Scores,
    /// The copy of every entry in host memory.
    Store,
    /// Hidden states of a whole prompt that is read layer by layer.
    Hidden,
    /// What a chunk takes on its way through a layer.
    Pass,
    /// Keys that are rotated anew.
    Turn,
    /// A copy of a conversation.
    Fork,
    /// A conversation that is read from a file.
    Snapshot,
}

impl Site {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Hot,
        Self::Recall,
        Self::Scores,
        Self::Store,
        Self::Hidden,
        Self::Pass,
        Self::Turn,
        Self::Fork,
        Self::Snapshot,
    ];

    fn purpose(self) -> &'static str {
        match self {
            Self::Hot => "the cache",
            Self::Recall => "what comes back from the store",
            Self::Scores => "looking through the store",
            Self::Store => "the store",
            Self::Hidden | Self::Pass => "reading the prompt",
            Self::Turn => "moving the context on",
            Self::Fork => "a copy of the chat",
            Self::Snapshot => "the saved state",
        }
    }
}

/// Bytes of host memory that may be taken before the next look at it.
static CREDITED: AtomicI64 = AtomicI64::new(0);

/// Says whether `bytes` can be had on `device`.
///
/// # Errors
/// [`Error::OutOfMemory`] where fewer are free.
pub fn claim(device: &Device, bytes: u64, site: Site) -> Result<()> {
    let short = |free: u64| {
        let mib = |bytes: u64| bytes.div_ceil(1 << 20);
        let text = format!("{} MiB are needed for {}, {} MiB are free", mib(bytes), site.purpose(), mib(free));
        Err(Error::OutOfMemory { text, site: Some(site) })
    };
    if refused(site) {
        return short(0);
    }
    let on_host = device.is_cpu();
    let asked = i64::try_from(bytes).unwrap_or(i64::MAX);
    if on_host && CREDITED.fetch_sub(asked, Ordering::Relaxed) >= asked {
        return Ok(());
    }
    let Some(free) = device::free_memory(device) else { return Ok(()) };
    let Some(left) = free.checked_sub(bytes.saturating_add(RESERVE)) else {
        CREDITED.store(0, Ordering::Relaxed);
        return short(free);
    };
    if on_host {
        CREDITED.store((left / 4).min(CREDIT) as i64, Ordering::Relaxed);
    }
    Ok(())
}

/// Gives what was freed back to the system. glibc keeps it in pieces for later, and more of it with every turn: it goes
/// back when the engine rests, with what is closed, and where memory is short.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes no pointers, and may be called at any time from any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Claims that a test wants to fail, on the thread that it runs on and those that compute for it.
#[derive(Debug, Clone, Copy)]
struct Refusals {
    site: Site,
    granted: u32,
    refused: u32,
    asked: u32,
}

thread_local! {
    static REFUSALS: Cell<Option<Refusals>> = const { Cell::new(None) };
}

fn refused(site: Site) -> bool {
    let Some(mut refusals) = REFUSALS.get().filter(|refusals| refusals.site == site) else { return false };
    refusals.asked += 1;
    REFUSALS.set(Some(refusals));
    refusals.asked > refusals.granted && refusals.asked - refusals.granted <= refusals.refused
}

/// Runs `work` on one of rayon's threads, with the refusals of this one.
pub(crate) fn on_the_pool<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let refusals = REFUSALS.get();
    let (done, refusals) = rayon::scope(|_| {
        REFUSALS.set(refusals);
        (work(), REFUSALS.take())
    });
    REFUSALS.set(refusals);
    done
}

/// For tests: `granted` more claims of `site` on this thread succeed, the `refused` ones after them fail.
#[doc(hidden)]
pub fn refuse(site: Site, granted: u32, refused: u32) {
    REFUSALS.set(Some(Refusals { site, granted, refused, asked: 0 }));
}

/// For tests: ends what [`refuse`] began, and says how many claims there were and how many of them were refused.
#[doc(hidden)]
pub fn relent() -> (u32, u32) {
    REFUSALS.take().map_or((0, 0), |r| (r.asked, r.asked.saturating_sub(r.granted).min(r.refused)))
}
