//! The desktop window of Cistern: a thin shell around the engine, which runs in a process of its own.

// No console window beside ours.
#![cfg_attr(all(windows, not(debug_assertions)), windows_subsystem = "windows")]

mod answers;
mod api;
#[cfg(test)]
mod bindings;
mod chats;
mod commands;
mod compare;
#[cfg(test)]
mod desk;
mod documents;
mod error;
mod events;
mod files;
mod gauge;
mod idle;
mod instance;
mod links;
mod model_file;
mod models;
#[cfg(target_os = "linux")]
mod paint;
#[cfg(test)]
mod security;
mod settings;
mod shell;
mod snapshots;
#[cfg(test)]
mod soak;
mod window;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    engine::cpu::require();
    run()
}

// Kept out of `main`, so that nothing of it can be moved before the check of the processor.
#[inline(never)]
fn run() -> ExitCode {
    #[cfg(target_os = "linux")]
    // SAFETY: nothing has started a thread.
    unsafe {
        paint::choose();
    }
    match window::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Cistern could not start: {error}");
            ExitCode::FAILURE
        }
    }
}
