//! One worker process: its pipes, and how it ended.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use engine::protocol::{Command, Event, Report, Request, SessionId};
use tokio::io::BufReader;
use tokio::process::{Child, ChildStdin};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::pipe;
use crate::error::Problem;

/// Time for the worker to end the current token and go, before it is killed.
const QUIT_WITHIN: Duration = Duration::from_secs(2);

/// A running process and the commands it owes an answer. Dropped, it is killed.
pub struct Process {
    child: Child,
    stdin: mpsc::UnboundedSender<Command>,
    /// What it says; ends when it closes its output, and after what is not a report.
    pub reports: mpsc::UnboundedReceiver<io::Result<Report>>,
    /// By the id of the command.
    pub pending: HashMap<u64, Pending>,
}

/// A command that has not been answered.
pub struct Pending {
    /// Who waits for the answer; nobody where it was our own idea.
    pub reply: Option<oneshot::Sender<Result<Event, Problem>>>,
    /// With a `load`, the file.
    pub load: Option<PathBuf>,
    /// With a question, its conversation.
    pub turn: Option<SessionId>,
}

impl Process {
    /// Starts `program`, with its error output in `log`.
    ///
    /// # Errors
    /// When the system does not start it.
    pub fn spawn(program: &Path, log: &Path) -> io::Result<Self> {
        let mut command = tokio::process::Command::new(program);
        command.arg("worker").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log_to(log)).kill_on_drop(true);
        // Ctrl+C in a terminal is for the window, which has the worker save what it holds first.
        #[cfg(unix)]
        command.process_group(0);
        #[cfg(windows)]
        command.creation_flags(0x0800_0000); // CREATE_NO_WINDOW: no console beside the window.
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;

        // Each pipe has its own task: neither may wait for the other while the worker waits for it.
        let (to_worker, commands) = mpsc::unbounded_channel();
        let (from_worker, reports) = mpsc::unbounded_channel();
        // Weak: the end of the worker's output must be the end of its reports.
        tokio::spawn(write_all(stdin, commands, from_worker.downgrade()));
        tokio::spawn(async move {
            let mut stdout = BufReader::new(stdout);
            while let Some(report) = pipe::receive(&mut stdout).await.transpose() {
                let broken = report.is_err();
                if from_worker.send(report).is_err() || broken {
                    break;
                }
            }
        });
        Ok(Self { child, stdin: to_worker, reports, pending: HashMap::new() })
    }

    /// Its process id, for as long as it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Sends a command. A closed pipe shows as the end of the reports.
    pub fn send(&self, command: Command) {
        let _ = self.stdin.send(command);
    }

    /// Ends it: it goes when it is told to, and when its stdin closes.
    pub async fn quit(self) {
        let Self { mut child, stdin, .. } = self;
        let _ = stdin.send(Command { id: 0, request: Request::Shutdown });
        drop(stdin);
        if timeout(QUIT_WITHIN, child.wait()).await.is_err() {
            let _ = child.kill().await;
        }
    }

    /// What became of it after `last` in place of a report, in words that fit after "because". `model` is the file
    /// that it had open.
    pub async fn how_it_died(&mut self, last: Option<io::Result<Report>>, model: Option<&Path>) -> String {
        if let Some(Err(error)) = last {
            let _ = self.child.kill().await;
            return format!("it sent something that could not be understood ({error})");
        }
        let Ok(Ok(status)) = timeout(Duration::from_secs(1), self.child.wait()).await else {
            let _ = self.child.kill().await;
            return "it closed its output".to_owned();
        };
        #[cfg(unix)]
        if let Some(signal) = std::os::unix::process::ExitStatusExt::signal(&status) {
            return match signal {
                // A mapped file that no longer holds what is read from it ends the reader.
                libc::SIGBUS => match model {
                    Some(model) => {
                        format!("the model's file {} was cut short or changed while it was open", model.display())
                    }
                    None => "a file that it reads was cut short or changed".to_owned(),
                },
                9 => "the system ended it, most likely for want of memory".to_owned(),
                6 => "it gave up, most likely for want of memory".to_owned(),
                4 => "this processor lacks an instruction that it needs".to_owned(),
                signal => format!("it crashed (signal {signal})"),
            };
        }
        match status.code() {
            Some(0) => "it ended by itself".to_owned(),
            Some(code) => format!("it failed (exit status {code}, see its log)"),
            None => "it ended in an unknown way".to_owned(),
        }
    }
}

async fn write_all(
    mut stdin: ChildStdin,
    mut commands: mpsc::UnboundedReceiver<Command>,
    reports: mpsc::WeakUnboundedSender<io::Result<Report>>,
) {
    while let Some(command) = commands.recv().await {
        match pipe::send(&mut stdin, &command).await {
            Ok(true) => {}
            Ok(false) => {
                let problem = Problem::TooMuchText;
                let event =
                    Event::Failed { session: None, code: problem.code().to_owned(), message: problem.to_string() };
                if let Some(reports) = reports.upgrade() {
                    let _ = reports.send(Ok(Report { re: Some(command.id), event }));
                }
            }
            Err(_) => break,
        }
    }
}

/// Appends to the log; a large one is set aside first. Without a log the worker runs all the same.
fn log_to(path: &Path) -> Stdio {
    const LARGE: u64 = 1 << 20;
    if fs::metadata(path).is_ok_and(|meta| meta.len() > LARGE) {
        let _ = fs::rename(path, path.with_extension("old.log"));
    }
    File::options().create(true).append(true).open(path).map_or_else(|_| Stdio::null(), Stdio::from)
}
