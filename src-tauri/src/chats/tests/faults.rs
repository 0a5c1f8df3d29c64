//! Clocks that are wrong, folders that cannot be written to, and a program that is killed while it brings an old
//! database up to date.

use std::process::Command;
use std::{env, thread};

use super::*;

const AN_HOUR: i64 = 3_600_000;

async fn titles(store: &Store) -> Vec<String> {
    store.run(|db| chats(db)).await.unwrap().into_iter().map(|chat| chat.title).collect()
}

/// As if the clock had been ahead by so much until now.
async fn clock_was_ahead(store: &Store, by_ms: i64) {
    let moved = "UPDATE chats SET updated_ms = updated_ms + ?1, deleted_ms = deleted_ms + ?1";
    store.run(move |db| Ok(db.execute(moved, [by_ms])?)).await.unwrap();
}

#[tokio::test]
async fn a_clock_that_is_set_back_or_forward_leaves_chats_and_messages_in_the_order_of_use() {
    let (_folder, store) = store();
    let mut asked = Vec::new();
    for title in ["One", "Two", "Three"] {
        asked.push(store.ask(None, title, &[]).await.unwrap());
        thread::sleep(Duration::from_millis(3));
    }
    store.answered(asked[0].answer.id, "Yes.", FinishReason::Eos).await;
    assert_eq!(titles(&store).await, ["One", "Three", "Two"]);

    // Back by an hour, and by thirty years.
    for ahead in [AN_HOUR, 30 * 365 * 24 * AN_HOUR] {
        clock_was_ahead(&store, ahead).await;
        store.ask(Some(&asked[1].chat.id), "Again?", &[]).await.unwrap();
        assert_eq!(titles(&store).await, ["Two", "One", "Three"]);
        let now = now_ms();
        let list = store.run(|db| chats(db)).await.unwrap();
        assert!(list.iter().all(|chat| (now - AN_HOUR..=now).contains(&chat.updated_ms)), "{list:?}");
        thread::sleep(Duration::from_millis(3));
        store.ask(Some(&asked[0].chat.id), "And?", &[]).await.unwrap();
        assert_eq!(titles(&store).await, ["One", "Two", "Three"]);
        thread::sleep(Duration::from_millis(3));
    }
    let chat = store.chat(&asked[0].chat.id).await;
    assert_eq!(texts(&chat), ["One", "Yes.", "And?", "", "And?", ""]);

    // Forward: everything is older than it was.
    clock_was_ahead(&store, -AN_HOUR).await;
    store.ask(Some(&asked[2].chat.id), "Still?", &[]).await.unwrap();
    assert_eq!(titles(&store).await, ["Three", "One", "Two"]);
}

#[tokio::test]
async fn what_was_deleted_goes_for_good_also_when_the_clock_is_set_back_after_it() {
    let (_folder, store) = store();
    let id = store.ask(None, "A secret", &[]).await.unwrap().chat.id;
    let gone = id.clone();
    store.run(move |db| delete(db, &gone)).await.unwrap();
    clock_was_ahead(&store, 365 * 24 * AN_HOUR).await;
    assert_eq!(store.run(|db| purge(db, 20)).await.unwrap(), 0, "it can still be put back");
    thread::sleep(Duration::from_millis(40));
    assert_eq!(store.run(|db| purge(db, 20)).await.unwrap(), 1);
    assert!(store.run(|db| all_ids(db)).await.unwrap().is_empty());
}

#[cfg(target_os = "linux")]
#[test]
fn a_data_folder_that_cannot_be_written_to_is_a_sentence() {
    // Nobody can write there, not even who may write everywhere.
    let problem = Store::open(Path::new("/proc/self/chats.db")).unwrap_err();
    assert_eq!(problem.code(), "store");
    assert!(problem.to_string().ends_with("the data folder can be written to."), "{problem}");
}

const MESSAGES: i64 = 3_000;
const MIGRATED: &str = "CISTERN_TEST_MIGRATED";

/// A database of the first version, with a chat long enough for its migration to take a while.
fn old_database(path: &Path) {
    let mut old = Connection::open(path).unwrap();
    Migrations::from_slice(&STEPS[..1]).to_latest(&mut old).unwrap();
    let tx = old.transaction().unwrap();
    tx.execute("INSERT INTO chats VALUES ('a', 'Long', 1, 9)", []).unwrap();
    for id in 1..=MESSAGES {
        let role = if id % 2 == 1 { "user" } else { "assistant" };
        let text = format!("Message {id} {}", "about many things ".repeat(20));
        tx.execute(
            "INSERT INTO messages (id, chat_id, role, text, finish, created_ms) VALUES (?1, 'a', ?2, ?3, NULL, ?1)",
            rusqlite::params![id, role, text],
        )
        .unwrap();
    }
    tx.commit().unwrap();
}

#[test]
#[ignore = "runs in the process that the next test kills"]
fn migrates() {
    if let Some(path) = env::var_os(MIGRATED) {
        Store::open(Path::new(&path)).unwrap();
    }
}

#[tokio::test]
async fn a_program_that_is_killed_while_it_brings_a_database_up_to_date_loses_no_message() {
    let folder = tempfile::tempdir().unwrap();
    let original = folder.path().join("original.db");
    old_database(&original);
    let mut killed = 0;
    for wait in [0, 15, 40, 120] {
        let path = folder.path().join(format!("{wait}.db"));
        std::fs::copy(&original, &path).unwrap();
        let mut other = Command::new(env::current_exe().unwrap())
            .args(["--exact", "chats::tests::faults::migrates", "--ignored", "--quiet"])
            .env(MIGRATED, &path)
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // From the moment that it has begun: it makes this file first.
        let log = path.with_extension("db-wal");
        while !log.is_file() && other.try_wait().unwrap().is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(wait));
        killed += u32::from(other.try_wait().unwrap().is_none());
        other.kill().unwrap();
        other.wait().unwrap();

        let store = Store::open(&path).unwrap();
        let chat = store.chat("a").await;
        assert_eq!(chat.messages.len() as i64, MESSAGES, "after {wait} ms");
        assert!(chat.messages.iter().zip(1..).all(|(message, n)| message.text.starts_with(&format!("Message {n} "))));
        let found = store.run(|db| search(db, "Message 2999")).await.unwrap();
        assert_eq!(found.len(), 1, "after {wait} ms everything can be found");
    }
    assert!(killed >= 2, "it was killed in the middle {killed} times");
}
