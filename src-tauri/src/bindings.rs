//! The TypeScript types in `ui/src/lib/ipc/bindings`.
//!
//! `CISTERN_BINDINGS=write cargo test -p cistern-desktop bindings` writes them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use engine::protocol::Passage;
use ts_rs::{Config, ExportError, TS};

use crate::api;

fn export(into: &Path) -> Result<(), ExportError> {
    let config = Config::new().with_out_dir(into);
    api::AppEvent::export_all(&config)?;
    api::AppInfo::export_all(&config)?;
    api::ModelEntry::export_all(&config)?;
    api::Chat::export_all(&config)?;
    api::Found::export_all(&config)?;
    api::ExportFormat::export_all(&config)?;
    api::Question::export_all(&config)?;
    api::Again::export_all(&config)?;
    api::Sent::export_all(&config)?;
    api::PickedFile::export_all(&config)?;
    api::SnapshotUse::export_all(&config)?;
    Passage::export_all(&config)?;
    api::ApiError::export_all(&config)
}

fn files(folder: &Path) -> BTreeMap<String, String> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

#[test]
fn the_windows_types_are_those_of_the_shell() {
    let theirs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ui/src/lib/ipc/bindings");
    let fresh = tempfile::tempdir().unwrap();
    export(fresh.path()).unwrap();
    if std::env::var_os("CISTERN_BINDINGS").is_some_and(|value| value == "write") {
        let _ = fs::remove_dir_all(&theirs);
        export(&theirs).unwrap();
    }
    let (ours, theirs) = (files(fresh.path()), files(&theirs));
    let stale: Vec<_> = ours.keys().chain(theirs.keys()).filter(|name| ours.get(*name) != theirs.get(*name)).collect();
    assert!(
        stale.is_empty(),
        "{stale:?} in ui/src/lib/ipc/bindings are not what the Rust types say; \
         run `CISTERN_BINDINGS=write cargo test -p cistern-desktop bindings`"
    );
}
