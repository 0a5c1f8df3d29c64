//! The desktop window of Cistern: a thin shell around the engine, which runs in a process of its own.

// No console window beside ours.
#![cfg_attr(all(windows, not(debug_assertions)), windows_subsystem = "windows")]

mod answers;
mod api;
#[cfg(test)]
mod bindings;
mod chats;
mod commands;
mod error;
mod events;
mod files;
mod gauge;
mod models;
mod shell;
mod window;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    match window::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("Cistern could not start: {error}");
            ExitCode::FAILURE
        }
    }
}
