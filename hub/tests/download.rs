//! Downloads from a real server on the loopback interface.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use common::{Faults, Server};
use hub::{CancellationToken, Catalog, Entry, Hub, HubError, Phase, Progress};
use sha2::{Digest, Sha256};

fn content() -> Vec<u8> {
    (0..3_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn entry(content: &[u8]) -> Entry {
    let sha256 = Sha256::digest(content).iter().map(|b| format!("{b:02x}")).collect();
    let bytes = content.len() as u64;
    Entry { id: "test".into(), repo: "some/repo".into(), file: "test.gguf".into(), bytes, sha256, ..starter() }
}

fn starter() -> Entry {
    Catalog::builtin().starter().clone()
}

async fn fetch(server: &Server, folder: &Path, entry: &Entry) -> Result<Vec<Progress>, HubError> {
    let seen = Mutex::new(Vec::new());
    let hub = Hub::at(&server.endpoint, folder).unwrap();
    hub.fetch(entry, |progress| seen.lock().unwrap().push(progress), &CancellationToken::new()).await?;
    Ok(seen.into_inner().unwrap())
}

fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_model_arrives_whole_with_progress_to_the_end() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let server = Server::start(content.clone(), Faults::default());
    let seen = fetch(&server, folder.path(), &entry(&content)).await.unwrap();

    assert_eq!(names(folder.path()), ["test.gguf"]);
    assert!(fs::read(folder.path().join("test.gguf")).unwrap() == content);
    assert!(seen.is_sorted_by_key(|p| (p.phase == Phase::Checking, p.done)));
    let last = seen.last().unwrap();
    assert_eq!((last.phase, last.done, last.total), (Phase::Checking, 3_000_000, 3_000_000));
}

#[tokio::test]
async fn a_transfer_that_is_cut_off_goes_on_where_it_was() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let server = Server::start(content.clone(), Faults { cut: Some((1_000_000, 2)), ..Faults::default() });
    fetch(&server, folder.path(), &entry(&content)).await.unwrap();

    assert!(fs::read(folder.path().join("test.gguf")).unwrap() == content);
    let ranges = server.ranges.lock().unwrap().clone();
    assert_eq!(ranges[0], None);
    assert!(ranges[1..].iter().all(|range| range.as_deref().is_some_and(|r| r.starts_with("bytes="))), "{ranges:?}");
}

#[tokio::test]
async fn what_an_earlier_try_left_is_not_fetched_again() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let server = Server::start(content.clone(), Faults::default());
    fs::write(folder.path().join("test.gguf.part"), &content[..2_999_000]).unwrap();
    fetch(&server, folder.path(), &entry(&content)).await.unwrap();

    assert!(fs::read(folder.path().join("test.gguf")).unwrap() == content);
    assert_eq!(*server.ranges.lock().unwrap(), [Some("bytes=2999000-2999999".to_owned())]);
}

#[tokio::test]
async fn a_server_without_ranges_begins_again_and_the_file_is_right() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let server = Server::start(content.clone(), Faults { whole_only: true, ..Faults::default() });
    fs::write(folder.path().join("test.gguf.part"), &content[..1000]).unwrap();
    fetch(&server, folder.path(), &entry(&content)).await.unwrap();
    assert!(fs::read(folder.path().join("test.gguf")).unwrap() == content);
}

#[tokio::test]
async fn a_server_that_always_breaks_off_ends_in_one_sentence_and_the_part_is_kept() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let server = Server::start(content.clone(), Faults { cut: Some((0, usize::MAX)), ..Faults::default() });
    fs::write(folder.path().join("test.gguf.part"), &content[..1_500_000]).unwrap();
    let error = fetch(&server, folder.path(), &entry(&content)).await.unwrap_err();

    assert_eq!(error.code(), "download_interrupted");
    assert_eq!(error.to_string(), "The download broke off after 1.5 MB of 3.0 MB; try again, it goes on from there.");
    assert_eq!(names(folder.path()), ["test.gguf.part"]);
}

#[tokio::test]
async fn wrong_bytes_are_refused_and_nothing_is_left() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let server = Server::start(content.clone(), Faults { other_bytes: true, ..Faults::default() });
    let error = fetch(&server, folder.path(), &entry(&content)).await.unwrap_err();
    assert_eq!(error.code(), "checksum");
    assert!(names(folder.path()).is_empty());
}

#[tokio::test]
async fn a_file_of_another_size_than_the_catalogues_is_refused_before_it_is_fetched() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let server = Server::start(content.clone(), Faults::default());
    let entry = Entry { bytes: 1234, ..entry(&content) };
    let error = fetch(&server, folder.path(), &entry).await.unwrap_err();
    assert_eq!(error.code(), "model_changed");
    assert!(server.ranges.lock().unwrap().is_empty() && names(folder.path()).is_empty());
}

#[tokio::test]
async fn the_hubs_refusals_are_told_apart() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    for (status, code) in
        [(404, "model_not_found"), (401, "model_access"), (403, "model_access"), (429, "hub_rate_limited")]
    {
        let server = Server::start(content.clone(), Faults { status: Some(status), ..Faults::default() });
        let error = fetch(&server, folder.path(), &entry(&content)).await.unwrap_err();
        assert_eq!(error.code(), code, "{status}: {error}");
        assert!(names(folder.path()).is_empty());
    }
}

#[tokio::test]
async fn without_a_connection_the_sentence_names_the_hub() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let hub = Hub::at("http://127.0.0.1:9", folder.path()).unwrap();
    let error = hub.fetch(&entry(&content), |_| {}, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.code(), "hub_offline");
    assert!(error.to_string().contains("http://127.0.0.1:9"), "{error}");
}

#[tokio::test]
async fn a_stopped_download_keeps_what_arrived_and_two_never_write_the_same_file() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let server = Server::start(content.clone(), Faults { hang_after: Some(500_000), ..Faults::default() });
    let (entry, cancel) = (entry(&content), CancellationToken::new());
    let hub = Hub::at(&server.endpoint, folder.path()).unwrap();
    let part = folder.path().join("test.gguf.part");
    let arrived = async {
        while part.metadata().map_or(0, |meta| meta.len()) < 500_000 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let second = Hub::at(&server.endpoint, folder.path()).unwrap();
        let error = second.fetch(&entry, |_| {}, &CancellationToken::new()).await.unwrap_err();
        assert_eq!(error.code(), "download_busy");
        cancel.cancel();
    };
    let (fetched, ()) = tokio::join!(hub.fetch(&entry, |_| {}, &cancel), arrived);
    assert_eq!(fetched.unwrap_err().code(), "cancelled");
    assert_eq!(names(folder.path()), ["test.gguf.part"]);
    assert_eq!(part.metadata().unwrap().len(), 500_000);

    // Started again it goes on, and given up nothing of it is left.
    let server = Server::start(content.clone(), Faults { cut: Some((0, usize::MAX)), ..Faults::default() });
    let again = Hub::at(&server.endpoint, folder.path()).unwrap();
    again.fetch(&entry, |_| {}, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(server.ranges.lock().unwrap()[0].as_deref(), Some("bytes=500000-2999999"));
    again.discard(&entry).unwrap();
    assert!(names(folder.path()).is_empty());
    again.discard(&entry).unwrap();
}

#[tokio::test]
async fn a_disk_that_others_fill_ends_the_download_with_the_figures_and_the_part_is_kept() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let server = Server::start(content.clone(), Faults { slow: true, ..Faults::default() });
    let part = folder.path().join("test.gguf.part");
    let arrived = part.clone();
    let hub = Hub::at(&server.endpoint, folder.path()).unwrap().with_disk(move |_| {
        let some = arrived.metadata().map_or(0, |meta| meta.len()) >= 1_000_000;
        Some(if some { 60_000_000 } else { 1_000_000_000 })
    });
    let error = hub.fetch(&entry(&content), |_| {}, &CancellationToken::new()).await.unwrap_err();
    assert_eq!(error.code(), "disk_full");
    let says = error.to_string();
    assert!(says.contains("60.0 MB are free and 6") && says.contains(" MB are still needed"), "{says}");
    let len = part.metadata().unwrap().len();
    assert!((1_000_000..3_000_000).contains(&len), "{len}");
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_write_that_finds_no_room_says_so_with_the_figures() {
    let (content, folder) = (content(), tempfile::tempdir().unwrap());
    let server = Server::start(content.clone(), Faults::default());
    std::os::unix::fs::symlink("/dev/full", folder.path().join("test.gguf.part")).unwrap();
    let error = fetch(&server, folder.path(), &entry(&content)).await.unwrap_err();
    assert_eq!(error.code(), "disk_full");
    assert!(error.to_string().contains(" MB are still needed"), "{error}");
}
