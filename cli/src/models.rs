//! `cistern models`

use std::io::Write;
use std::path::{Path, PathBuf};

use hub::{CancellationToken, Catalog, Entry, Hub, HubError, Phase, Progress};
use serde_json::json;

use crate::failure::Failure;
use crate::output;
use crate::progress::{Line, bytes, seconds};

/// What to do with models.
#[derive(clap::Subcommand)]
pub enum Command {
    /// List the models of the catalogue and your own
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Download a model; a download that broke off goes on
    Fetch {
        /// An id that `cistern models list` names
        id: String,
    },
    /// Read models on this computer whole and compare them with the catalogue's checksums
    Verify {
        /// Only these [default: all that are here]
        ids: Vec<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
}

/// Runs the command.
pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::List { json } => list(*json),
        Command::Fetch { id } => wait(fetch(entry(id)?)),
        Command::Verify { ids, json } => {
            let entries: Vec<_> = match ids.is_empty() {
                true => Catalog::builtin().entries().iter().collect(),
                false => ids.iter().map(|id| entry(id)).collect::<Result<_, _>>()?,
            };
            wait(verify(&entries, !ids.is_empty(), *json))
        }
    }
}

fn entry(id: &str) -> Result<&'static Entry, Failure> {
    Catalog::builtin()
        .get(id)
        .ok_or_else(|| Failure::Usage(format!("No model is called {id}; `cistern models list` names them all.")))
}

fn wait(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::System(error.to_string()))?.block_on(work)
}

fn list(json: bool) -> Result<(), Failure> {
    let known: Vec<_> = Catalog::builtin().entries().iter().map(|entry| (entry, hub::local_path(entry))).collect();
    let own = hub::own_files();
    if json {
        let models: Vec<_> = known
            .iter()
            .map(|(entry, path)| {
                json!({
                    "id": entry.id, "name": entry.name, "summary": entry.summary, "repo": entry.repo,
                    "file": entry.file, "bytes": entry.bytes, "licence": entry.licence, "context": entry.context,
                    "fits": entry.fits, "path": path,
                })
            })
            .collect();
        let own: Vec<_> = own.iter().map(|file| json!({ "path": file.path, "bytes": file.bytes })).collect();
        return output::json(&json!({ "models": models, "own": own }));
    }
    let mut out = std::io::stdout().lock();
    writeln!(out, "{:<26} {:>8}  {:>7}  {:<5} {:<6} Licence", "ID", "Size", "Context", "GPU", "Here")?;
    for (entry, path) in &known {
        let here = if path.is_some() { "yes" } else { "" };
        let context = format!("{}K", entry.context / 1024);
        writeln!(
            out,
            "{:<26} {:>8}  {context:>7}  {:<5} {here:<6} {}",
            entry.id,
            bytes(entry.bytes),
            entry.fits,
            entry.licence
        )?;
    }
    for file in &own {
        writeln!(out, "{:<26} {:>8}  (your own)", file.path.display(), bytes(file.bytes))?;
    }
    Ok(())
}

async fn fetch(entry: &Entry) -> Result<(), Failure> {
    if let Some(path) = hub::local_path(entry) {
        eprintln!("{} is here already: {}", entry.name, path.display());
        return Ok(());
    }
    eprintln!("Fetching {} ({}) from {} …", entry.name, bytes(entry.bytes), entry.repo);
    let cancel = CancellationToken::new();
    let line = Line::new();
    let hub = Hub::new()?;
    let fetching = hub.fetch(entry, |progress| line.set(&describe(progress)), &cancel);
    tokio::pin!(fetching);
    let path = tokio::select! {
        path = &mut fetching => path,
        // The part that arrived is closed properly and kept.
        _ = tokio::signal::ctrl_c() => {
            cancel.cancel();
            fetching.await
        }
    }?;
    line.clear();
    eprintln!("Done: {}", path.display());
    Ok(())
}

fn describe(Progress { phase, done, total, bytes_s }: Progress) -> String {
    let percent = done as f64 * 100.0 / total.max(1) as f64;
    match phase {
        Phase::Checking => format!("Checking … {percent:.0}%"),
        Phase::Downloading if bytes_s == 0 => format!("{} of {} ({percent:.0}%)", bytes(done), bytes(total)),
        Phase::Downloading => format!(
            "{} of {} ({percent:.0}%), {}/s, {} left",
            bytes(done),
            bytes(total),
            bytes(bytes_s),
            seconds((total - done) as f32 / bytes_s as f32)
        ),
    }
}

async fn verify(entries: &[&Entry], named: bool, json: bool) -> Result<(), Failure> {
    let mut results = Vec::new();
    for entry in entries {
        match hub::local_path(entry) {
            Some(path) => {
                let verdict = verify_one(entry, &path).await;
                if !json {
                    match &verdict {
                        Ok(()) => output::line(format_args!("{}: right ({})", entry.id, path.display()))?,
                        Err(error) => eprintln!("{}: {error}", entry.id),
                    }
                }
                results.push((entry, Some(path), verdict.is_ok()));
            }
            None if named => {
                if !json {
                    eprintln!("{}: not on this computer, fetch it with `cistern models fetch {}`.", entry.id, entry.id);
                }
                results.push((entry, None, false));
            }
            None => {}
        }
    }
    if json {
        let models: Vec<_> = results
            .iter()
            .map(|(entry, path, right): &(_, Option<PathBuf>, _)| json!({ "id": entry.id, "path": path, "ok": right }))
            .collect();
        output::json(&json!({ "models": models }))?;
    } else if results.is_empty() {
        output::line("No model of the catalogue is on this computer.")?;
    }
    match results.iter().filter(|(_, _, right)| !right).count() {
        0 => Ok(()),
        n => Err(Failure::Checks(format!("{n} of {} models cannot be used as they are.", results.len()))),
    }
}

async fn verify_one(entry: &Entry, path: &Path) -> Result<(), HubError> {
    let line = Line::new();
    let tell = |done| line.set(&format!("Reading {} … {:.0}%", entry.file, done as f64 * 100.0 / entry.bytes as f64));
    hub::verify(entry, path, tell, &CancellationToken::new()).await
}
