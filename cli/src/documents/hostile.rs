//! Documents that someone meant ill by: a fixed number of them, the same on every machine. `CISTERN_FUZZ_SECONDS` and
//! `CISTERN_FUZZ_SEED` look longer and elsewhere.

#[path = "../../../engine/tests/hostile/mutate.rs"]
#[allow(dead_code)]
mod mutate;

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};
use std::{fs, thread};

use engine::leash::Leash;

use super::tests::guide;
use super::*;
use mutate::{Chance, Search};

const RUNS: u64 = 150;
/// Whatever a document is, it is read or refused by then, in so much memory.
const WITHIN: Duration = Duration::from_secs(60);
const MEMORY: usize = 256 << 20;

/// Documents as they should be.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let pdfs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/pdfs");
    let mut files: Vec<PathBuf> = fs::read_dir(pdfs).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "pdf"));
    files.sort();
    files.push(guide());
    let mut seeds: Vec<_> = files.iter().map(|path| ("a.pdf", fs::read(path).unwrap())).collect();
    seeds.push(("a.txt", "\u{feff}# Café\r\n\u{2003}預算\n".into()));
    seeds
}

/// Has an object name another one, also itself or one above it.
fn redirect(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let places: Vec<usize> = (2..bytes.len().saturating_sub(4))
        .filter(|&at| &bytes[at..at + 4] == b" 0 R" && bytes[at - 1].is_ascii_digit())
        .collect();
    if places.is_empty() {
        return;
    }
    let end = places[chance.below(places.len())];
    let start = bytes[..end].iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |at| at + 1);
    let other = chance.below(40).to_string();
    bytes.splice(start..end, other.into_bytes());
}

/// What becomes of a document: whether it was read, or what is wrong with its being refused.
fn attempt(path: &Path) -> Result<bool, String> {
    let (path, leash) = (path.to_owned(), Leash::new(MEMORY));
    let (done, outcome) = mpsc::channel();
    let holds = leash.clone();
    thread::spawn(move || {
        let loaded = holds.hold(|| load(&path, None).map(drop));
        let _ = done.send(loaded);
    });
    let began = Instant::now();
    loop {
        match outcome.recv_timeout(Duration::from_millis(10)) {
            Ok(Ok(())) => return Ok(true),
            Ok(Err(error)) => {
                let text = error.to_string();
                return if text.len() < 400 && !text.contains('\n') { Ok(false) } else { Err(text) };
            }
            Err(RecvTimeoutError::Disconnected) => return Err("it panicked".to_owned()),
            Err(RecvTimeoutError::Timeout) if leash.has_ended() => return Err(format!("it took over {MEMORY} bytes")),
            Err(RecvTimeoutError::Timeout) if began.elapsed() > WITHIN => return Err("it did not end".to_owned()),
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}

#[test]
fn a_changed_document_is_refused_or_read() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = seeds();
    let (mut search, mut read, mut broken) = (Search::new(RUNS), 0, Vec::new());
    for (run, mut chance) in search.by_ref() {
        let (name, bytes) = &seeds[chance.below(seeds.len())];
        let mut bytes = bytes.clone();
        for _ in 0..chance.below(4) {
            redirect(&mut bytes, &mut chance);
        }
        if chance.below(3) > 0 {
            mutate::bytes(&mut bytes, &mut chance);
        }
        let path = folder.path().join(name);
        fs::write(&path, &bytes).unwrap();
        match attempt(&path) {
            Ok(whole) => read += u32::from(whole),
            Err(trouble) => broken.push(format!("{run}: {trouble}")),
        }
    }
    println!("documents: {} runs in {:?}, {read} read", search.runs, search.took());
    assert!(broken.is_empty(), "{} of {} runs:\n{}", broken.len(), search.runs, broken.join("\n"));
}
