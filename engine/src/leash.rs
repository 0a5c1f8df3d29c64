//! How much memory a thread may take while it runs what came with a file.
//!
//! Code in the middle of a call can be ended by nothing but itself. So a thread that asks for too much stops where it
//! asks, and stays there: what it holds is lost, which is little, and the rest of the program goes on.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

thread_local! {
    /// What the leash on this thread points to; null without one.
    static ON: Cell<*const Reach> = const { Cell::new(ptr::null()) };
    /// Bytes taken since it was put on, less those given back.
    static HELD: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug)]
struct Reach {
    bytes: usize,
    ended: AtomicBool,
}

/// A limit for the memory of a thread. It holds in programs whose allocator is [`Allocator`].
#[derive(Debug, Clone)]
pub struct Leash(Arc<Reach>);

impl Leash {
    /// One that gives way for so many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Reach { bytes, ended: AtomicBool::new(false) }))
    }

    /// Runs `work` on this thread, which never comes back from it where it takes too much.
    pub fn hold<T>(&self, work: impl FnOnce() -> T) -> T {
        struct Off;
        impl Drop for Off {
            fn drop(&mut self) {
                ON.set(ptr::null());
            }
        }
        HELD.set(0);
        ON.set(Arc::as_ptr(&self.0));
        let _off = Off;
        work()
    }

    /// Whether the thread was stopped, or is to be.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Relaxed)
    }

    /// Stops the thread as soon as it asks for memory.
    pub fn end(&self) {
        self.0.ended.store(true, Ordering::Relaxed);
    }
}

/// The system's allocator, which minds leashes.
#[derive(Debug)]
pub struct Allocator;

/// Before `more` bytes are taken, while so many of them stand for `less` that are given back.
fn take(more: usize, less: usize) {
    let on = ON.get();
    if !on.is_null() {
        // SAFETY: `hold` borrows what it points to for as long as the pointer is there.
        mind(unsafe { &*on }, more, less);
    }
}

#[cold]
fn mind(reach: &Reach, more: usize, less: usize) {
    let held = HELD.get().saturating_add(more);
    // Whoever panics holds locks that others wait for, and is done soon.
    if (held > reach.bytes || reach.ended.load(Ordering::Relaxed)) && !thread::panicking() {
        reach.ended.store(true, Ordering::Relaxed);
        loop {
            thread::park();
        }
    }
    HELD.set(held.saturating_sub(less));
}

// SAFETY: hands everything on to the system's allocator as it came.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        take(layout.size(), 0);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        take(layout.size(), 0);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        HELD.set(HELD.get().saturating_sub(layout.size()));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        take(size, layout.size());
        // SAFETY: as the caller promises.
        unsafe { System.realloc(at, layout, size) }
    }
}
