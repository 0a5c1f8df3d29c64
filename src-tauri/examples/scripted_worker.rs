//! A worker for the tests of the shell: a real process on real pipes that follows a script, so that crashes,
//! wrong versions and broken pipes can be had when they are wanted. Its manners are those of the file name it
//! was started under (the tests copy it): `healthy`, `dies-on-send`, `dies-on-load`, `dies-at-once`,
//! `loses-its-file`, `loses-its-card` (when it is to compute), `loses-its-card-on-load`, `babbles`, `old-version`, `waits-for-stop` (in the middle of an answer), `huge-cache` (as well,
//! where nothing bounds it).

use std::collections::HashSet;
use std::io::{self, Write};

use engine::protocol::{
    CacheState, Command, Device, Event, FinishReason, ModelInfo, Report, Request, TurnStats, VERSION, read_frame,
    write_frame,
};

fn main() -> io::Result<()> {
    let exe = std::env::current_exe()?;
    let manners = exe.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    if manners == "dies-at-once" {
        std::process::exit(3);
    }
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    let mut restored = HashSet::new();
    let device = match manners.starts_with("loses-its-card") {
        true => Device { kind: "cuda".into(), name: "a scripted GPU".into() },
        false => Device { kind: "cpu".into(), name: "a scripted CPU".into() },
    };
    let card_failed = |session| {
        let message = "The computation failed: DriverError(CUDA_ERROR_UNKNOWN)".into();
        Event::Failed { session, code: "compute".into(), message }
    };
    while let Some(Command { id, request }) = read_frame::<Command>(&mut from)? {
        let mut say = |re: Option<u64>, event: Event| write_frame(&mut to, &Report { re, event });
        match request {
            Request::Hello => {
                let version = if manners == "old-version" { VERSION + 1 } else { VERSION };
                say(Some(id), Event::Hello { version, device: device.clone() })?;
            }
            Request::Load { .. } if manners == "dies-on-load" => std::process::abort(),
            Request::Load { .. } if manners == "loses-its-card-on-load" => say(Some(id), card_failed(None))?,
            Request::Load { path } if !path.exists() => {
                let message = "There is no such file".into();
                say(Some(id), Event::Failed { session: None, code: "no_file".into(), message })?;
            }
            Request::Load { path } => {
                restored.clear();
                say(None, Event::ModelLoading { fraction: 0.5 })?;
                let model = ModelInfo {
                    name: "Scripted".into(),
                    path,
                    architecture: "llama".into(),
                    quantization: "Q4_1".into(),
                    parameters: 1,
                    weight_bytes: 1,
                    context: 2048,
                    layers: 1,
                    kv_heads: 1,
                    kv_bytes_per_token: if manners == "huge-cache" { 1 << 28 } else { 4 },
                    device: device.clone(),
                };
                say(Some(id), Event::ModelLoaded { model })?;
            }
            Request::Unload => say(Some(id), Event::ModelUnloaded)?,
            Request::Count { texts } => {
                let counts = texts.iter().map(|text| text.split_whitespace().count() as u32).collect();
                say(Some(id), Event::Counted { counts })?;
            }
            Request::Send { session, messages, cache, .. } => {
                say(Some(id), Event::Accepted)?;
                #[cfg(unix)]
                if manners == "loses-its-file" {
                    // As at the next read of a mapped file that was cut short.
                    // SAFETY: sets no handler of ours, and ends the process.
                    unsafe {
                        libc::signal(libc::SIGBUS, libc::SIG_DFL);
                        libc::raise(libc::SIGBUS);
                    }
                }
                if manners == "waits-for-stop" || manners == "huge-cache" && cache.budget.is_none() {
                    say(
                        None,
                        Event::Layout { session: session.clone(), n_tokens: 2_000, reused: 0, spans: Vec::new() },
                    )?;
                    let text = "Once ".into();
                    say(None, Event::Token { session, text, generated: 1, tok_s: 50.0 })?;
                    continue;
                }
                if manners == "loses-its-card" {
                    say(None, card_failed(Some(session)))?;
                    continue;
                }
                if manners == "babbles" {
                    io::stdout().write_all(b"thread 'main' panicked at engine/src/model.rs\n")?;
                    io::stdout().flush()?;
                    std::thread::sleep(std::time::Duration::from_secs(60));
                }
                let again = if restored.contains(&session) { "restored, " } else { "" };
                let last = &messages[messages.len() - 1].text;
                let answer = format!("{again}{} messages, the last: {last}", messages.len());
                for (n, word) in (1..).zip(answer.split_inclusive(' ')) {
                    say(None, Event::Token { session: session.clone(), text: word.into(), generated: n, tok_s: 50.0 })?;
                    if manners == "dies-on-send" && n == 2 {
                        // Long enough for the shell to read and store what has been said.
                        std::thread::sleep(std::time::Duration::from_millis(300));
                        std::process::abort();
                    }
                }
                say(None, cache_of(session.clone()))?;
                let stats = TurnStats { generated: 4, ..TurnStats::default() };
                say(None, Event::Finished { session, reason: FinishReason::Eos, stats })?;
            }
            Request::Stop { session } if manners == "waits-for-stop" || manners == "huge-cache" => {
                say(Some(id), Event::Accepted)?;
                let (reason, stats) = (FinishReason::Stopped, TurnStats::default());
                say(None, Event::Finished { session, reason, stats })?;
            }
            Request::TextAt { .. } => say(Some(id), Event::Text { text: "some text".into() })?,
            Request::Save { session, path } => {
                std::fs::write(path, session)?;
                say(Some(id), Event::Accepted)?;
            }
            Request::Restore { session, path, .. } => match std::fs::read_to_string(path) {
                Ok(saved) if saved == session => {
                    restored.insert(session.clone());
                    say(Some(id), Event::Accepted)?;
                    say(None, Event::Layout { session: session.clone(), n_tokens: 9, reused: 9, spans: Vec::new() })?;
                    say(None, cache_of(session))?;
                }
                _ => {
                    let (code, message) = ("snapshot".into(), "It is damaged".into());
                    say(Some(id), Event::Failed { session: Some(session), code, message })?;
                }
            },
            Request::Pieces { .. } => say(Some(id), Event::Pieces { text: "some text".into(), lengths: vec![4, 5] })?,
            Request::SetBudget { .. }
            | Request::Layers { .. }
            | Request::Pin { .. }
            | Request::Stop { .. }
            | Request::Close { .. } => say(Some(id), Event::Accepted)?,
            Request::Shutdown => break,
        }
    }
    Ok(())
}

fn cache_of(session: String) -> Event {
    let (kept, forgotten, pinned) = (Vec::new(), Vec::new(), Vec::new());
    Event::Cache { session, state: CacheState { hot_bytes: 400, ..CacheState::default() }, kept, forgotten, pinned }
}
