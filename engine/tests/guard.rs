//! An answer that is watched while it is written.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use engine::protocol::{CacheOptions, Document, Event, Message, PrefillMode, Role, Sampling};
use engine::session::{Answer, Control, Session};

/// Answers a question about a text of which a twentieth stays, and says how often entries came back.
fn ask(options: &CacheOptions) -> (Answer, usize, u32) {
    let control = Arc::new(Control::default());
    let mut session = Session::new("a".into(), common::starter(), options, control).unwrap();
    let page: String = common::novel().chars().take(7_000).collect();
    let documents = vec![Document { name: "novel.txt".into(), pages: vec![page] }];
    let question = Message { role: Role::User, text: "What does Mrs. Bennet want of her husband?".into(), documents };
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    let mut came_back = 0;
    let answer = session
        .send(&[question], options, &sampling, 40, &mut |event| {
            came_back += usize::from(matches!(event, Event::Recalled { .. }));
        })
        .unwrap();
    let state = session.context().cache().state();
    assert!(state.hot_entries <= state.budget + options.evict_every);
    (answer, came_back, state.budget)
}

fn options() -> CacheOptions {
    CacheOptions { budget: Some(96), prefill: PrefillMode::Exact, ..CacheOptions::default() }
}

#[test]
fn where_much_is_missed_it_comes_back_while_the_answer_is_written_and_the_budget_that_was_set_stays() {
    let (answer, came_back, budget) = ask(&options());
    assert!(answer.stats.looked_again > 0);
    assert_eq!(came_back as u32, 1 + answer.stats.looked_again, "for the question, and for the answer");
    assert_eq!(budget, 96);
}

#[test]
fn switched_off_or_with_room_for_everything_nothing_comes_back_again() {
    for options in [
        CacheOptions { guard: false, ..options() },
        CacheOptions { budget: Some(4_096), ..options() },
        CacheOptions { recall: false, ..options() },
    ] {
        let (answer, came_back, _) = ask(&options);
        assert_eq!(answer.stats.looked_again, 0);
        assert_eq!(came_back, usize::from(options.recall && options.budget == Some(96)));
    }
}
