//! The program `cistern`: one file for each command.

mod args;
mod ask;
mod bench;
mod chat;
mod documents;
mod eval;
mod failure;
mod memory;
mod models;
mod open;
mod output;
mod plot;
mod progress;
mod tokenize;
mod trace;
mod worker;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use failure::Failure;

#[global_allocator]
static ALLOCATOR: engine::leash::Allocator = engine::leash::Allocator;

/// Chat with long documents in a fixed amount of memory.
#[derive(Parser)]
#[command(name = "cistern", version, about, propagate_version = true, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answer questions, also about documents
    Ask(ask::Args),
    /// Talk to a model in the terminal
    Chat(chat::Args),
    /// Print the token ids of a text
    Tokenize(tokenize::Args),
    /// Feed token ids and print the logits and what the cache kept
    Trace(trace::Args),
    /// Measure speed and memory over contexts, policies and budgets
    Bench(bench::Args),
    /// Compare what policies and budgets answer with what the full cache answers
    Eval(eval::Args),
    /// List, fetch and verify models
    #[command(subcommand)]
    Models(models::Command),
    /// Serve the window over stdin and stdout
    #[command(hide = true)]
    Worker,
}

fn main() -> ExitCode {
    engine::cpu::require();
    run()
}

// Kept out of `main`, so that nothing of it can be moved before the check of the processor.
#[inline(never)]
fn run() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Ask(args) => ask::run(&args),
        Command::Chat(args) => chat::run(&args),
        Command::Tokenize(args) => tokenize::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Eval(args) => eval::run(&args),
        Command::Models(command) => models::run(&command),
        Command::Worker => {
            engine::device::set_threads(None);
            return worker::run();
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of a pipe went away, as `head` does.
        Err(Failure::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
