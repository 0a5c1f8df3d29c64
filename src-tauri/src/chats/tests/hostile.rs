//! Chats to import that someone meant ill by: a fixed number of them, the same on every machine. `CISTERN_FUZZ_SECONDS`
//! and `CISTERN_FUZZ_SEED` look longer and elsewhere.

#[path = "../../../../engine/tests/hostile/mutate.rs"]
#[allow(dead_code)]
mod mutate;

use super::transfer::{branched, exported};
use super::*;
use mutate::{Chance, Search};

const RUNS: u64 = 1_500;

/// What JSON is tripped over with.
const WORDS: [&str; 12] = [
    "null",
    "-1",
    "1e999",
    "9223372036854775808",
    "18446744073709551615",
    "\"\\ud800\"",
    "\"\\u0000\"",
    "[[[[[[[[",
    "{\"a\":",
    "\"documents\":[{\"name\":\"\",\"tokens\":4294967295,\"pages\":[]}],",
    "\"parent\":0,",
    "\"documents_of\":0,",
];

/// Puts a word in place of a value, or anywhere.
fn words(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let word = WORDS[chance.below(WORDS.len())].bytes();
    let values: Vec<usize> = (0..bytes.len()).filter(|&at| bytes[at] == b':').collect();
    if values.is_empty() || chance.below(3) == 0 {
        let at = chance.below(bytes.len() + 1);
        bytes.splice(at..at, word);
        return;
    }
    let start = values[chance.below(values.len())] + 1;
    let end = bytes[start..].iter().position(|byte| b",}\n".contains(byte)).map_or(bytes.len(), |at| start + at);
    bytes.splice(start..end, word);
}

#[tokio::test]
async fn a_changed_chat_is_refused_whole_or_can_be_read_and_taken_along_again() {
    let (_folder, store) = store();
    let honest = exported(&store, &branched(&store).await.chat.id).await;
    let (mut search, mut taken) = (Search::new(RUNS), 0);
    for (run, mut chance) in search.by_ref() {
        let mut json = honest.clone().into_bytes();
        for _ in 0..chance.below(3) {
            words(&mut json, &mut chance);
        }
        if chance.below(2) == 0 {
            mutate::bytes(&mut json, &mut chance);
        }
        let what = format!("{run}: {}", String::from_utf8_lossy(&json));
        match store.run(move |db| from_json(db, &json)).await {
            Ok(summary) => {
                taken += 1;
                let shown = store.chat(&summary.id).await;
                assert_eq!(shown.messages.last().map(|message| message.role), Some(Role::Assistant), "{what}");
                let leaf = shown.messages.last().map_or(0, |message| message.id);
                store.run(move |db| conversation(db, leaf)).await.expect(&what);
                let again = exported(&store, &summary.id).await;
                let again = store.run(move |db| from_json(db, again.as_bytes())).await.expect(&what);
                assert_eq!(texts(&store.chat(&again.id).await), texts(&shown), "{what}");
                for id in [summary.id, again.id] {
                    store.run(move |db| delete(db, &id)).await.unwrap();
                }
                store.run(|db| purge(db, 0)).await.unwrap();
            }
            Err(problem) => assert_eq!(problem.code(), "no_chat", "{problem}: {what}"),
        }
        assert_eq!(store.run(|db| all_ids(db)).await.unwrap().len(), 1, "{what}");
    }
    println!("chats: {} runs in {:?}, {taken} taken in", search.runs, search.took());
    assert!(taken > 0);
}
