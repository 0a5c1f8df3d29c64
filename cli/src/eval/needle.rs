//! `needle`: one document of real prose holds facts at eleven depths. It is read once, before any question is
//! known; each fact is then asked for from a fork of the session, and once more after another question.

use std::sync::Arc;

use engine::protocol::{Document, Message, PolicyName, PrefillMode, Role};
use engine::session::{Control, Session};
use engine::tokenizer::Special;

use super::{Bench, Case, Measured, read_once};
use crate::failure::Failure;

/// Facts of different kinds, one for each depth from 0% to 100%: what is stated, and how it is asked for. `#` is
/// five digits.
pub const FACTS: [(&str, &str); 11] = [
    ("The safe in the lighthouse opens with the combination #.", "Which combination opens the safe in the lighthouse?"),
    ("Doctor Marsh can be reached at extension #.", "At which extension can Doctor Marsh be reached?"),
    ("The key of the boathouse hangs on hook number #.", "On which hook number does the key of the boathouse hang?"),
    (
        "The lost atlas stands in the catalogue under number #.",
        "Under which catalogue number does the lost atlas stand?",
    ),
    ("Captain Rowe sailed with # barrels of oil.", "With how many barrels of oil did Captain Rowe sail?"),
    ("The password of the greenhouse computer is #.", "What is the password of the greenhouse computer?"),
    ("The great bell of the chapel weighs # pounds.", "How many pounds does the great bell of the chapel weigh?"),
    ("The brewery sold # casks in its first year.", "How many casks did the brewery sell in its first year?"),
    ("The oldest coin of the museum bears the mark #.", "Which mark does the oldest coin of the museum bear?"),
    (
        "Madame Orlova's ticket for the theatre has the number #.",
        "Which number does Madame Orlova's theatre ticket have?",
    ),
    (
        "The harbour master paid # crowns for the new crane.",
        "How many crowns did the harbour master pay for the new crane?",
    ),
];

/// An answer is a code and little else.
const ANSWER_TOKENS: u32 = 20;

/// After question i comes question i + this.
const NEXT: usize = 5;

pub fn run(bench: &Bench, cases: &[Case]) -> Result<Vec<Measured>, Failure> {
    let codes = codes(bench.args.seed);
    let document = Document { name: "novel.txt".into(), pages: vec![document(bench, &codes)] };
    let mut read: Vec<(PolicyName, Session)> = Vec::new();
    let mut measured = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let options = bench.options(case);
        let streaming = bench.args.prefill == PrefillMode::Streaming;
        let reading = if streaming { options.clone() } else { bench.reading(case.policy) };
        if streaming {
            read.clear();
        }
        let session = read_once(&mut read, reading.policy, || {
            bench.say(i, cases, format_args!(", reading the document"));
            let control = Arc::new(Control::default());
            let mut session = Session::new("document".into(), bench.model.clone(), &reading, control)?;
            session.read_ahead(&[ask(0, Some(&document))], &reading, &mut |_| {})?;
            Ok(session)
        })?;
        let mut result =
            Measured { first: vec![false; FACTS.len()], second: vec![false; FACTS.len()], ..Measured::default() };
        for q in 0..FACTS.len() {
            bench.say(i, cases, format_args!(", question {} of {}", q + 1, FACTS.len()));
            let mut session = session.fork(format!("question {q}"), Arc::new(Control::default()))?;
            let mut messages = vec![ask(q, Some(&document))];
            let then = (q + NEXT) % FACTS.len();
            let first = session.send(&messages, &options, &bench.greedy(), ANSWER_TOKENS, &mut |_| {})?;
            messages.push(Message { role: Role::Assistant, text: first.text.clone(), documents: Vec::new() });
            messages.push(ask(then, None));
            let second = session.send(&messages, &options, &bench.greedy(), ANSWER_TOKENS, &mut |_| {})?;
            result.first[q] = result.answered(&codes[q], &first);
            result.second[then] = result.answered(&codes[then], &second);
            result.remember(&session);
        }
        measured.push(result.finish(case));
    }
    Ok(measured)
}

fn ask(place: usize, document: Option<&Document>) -> Message {
    Message {
        role: Role::User,
        text: format!("{} Answer with the number only.", FACTS[place].1),
        documents: document.cloned().into_iter().collect(),
    }
}

/// Five digits for each fact.
pub fn codes(seed: u64) -> Vec<String> {
    let mut state = seed.wrapping_mul(2).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        10_000 + (state >> 33) % 90_000
    };
    FACTS.iter().map(|_| next().to_string()).collect()
}

/// The sentence that states a fact.
pub fn fact(place: usize, codes: &[String]) -> String {
    FACTS[place].0.replace('#', &codes[place])
}

/// So much of the text that it has the tokens asked for, with the facts between its paragraphs.
fn document(bench: &Bench, codes: &[String]) -> String {
    let tokenizer = &bench.model.tokenizer;
    let facts: Vec<String> = (0..FACTS.len()).map(|place| fact(place, codes)).collect();
    let taken: usize = facts.iter().map(|fact| tokenizer.encode(fact, Special::AsText).len() + 2).sum();
    let ids = tokenizer.encode(&bench.text, Special::AsText);
    // The template and the first question take some too.
    let room = (bench.args.tokens as usize).saturating_sub(taken + 80);
    let text = tokenizer.decode(&ids[..room.min(ids.len())]);
    let paragraphs: Vec<&str> = text.split("\n\n").collect();
    let mut parts = Vec::new();
    let mut placed = 0;
    let (mut before, whole) = (0, text.len());
    for paragraph in &paragraphs {
        while placed < facts.len() && before * (facts.len() - 1) >= placed * whole {
            parts.push(facts[placed].as_str());
            placed += 1;
        }
        parts.push(paragraph);
        before += paragraph.len() + 2;
    }
    parts.extend(facts[placed..].iter().map(String::as_str));
    parts.join("\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_five_digits_and_change_with_the_seed_alone() {
        let codes = codes(0);
        assert!(codes.iter().all(|code| code.len() == 5));
        assert_eq!(codes, super::codes(0));
        assert_ne!(codes, super::codes(1));
        let distinct: std::collections::HashSet<_> = codes.iter().collect();
        assert_eq!(distinct.len(), FACTS.len());
    }
}
