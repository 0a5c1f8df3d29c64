//! `turns`: a long chat whose early turns state facts, whose middle is talk about other things, and whose end asks
//! for the facts.

use std::sync::Arc;

use engine::protocol::{Message, Role};
use engine::session::{Control, Session};
use engine::tokenizer::Special;

use super::needle::{self, codes, fact};
use super::{Bench, Case, Measured};
use crate::failure::Failure;

/// Facts that are stated, one a turn.
const FACTS: usize = needle::FACTS.len();

/// Tokens of prose in each turn between the facts and the questions.
const TALK: usize = 160;

const ANSWER_TOKENS: u32 = 20;

pub fn run(bench: &Bench, cases: &[Case]) -> Result<Vec<Measured>, Failure> {
    let codes = codes(bench.args.seed);
    let chat = chat(bench, &codes);
    let mut measured = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let options = bench.options(case);
        let mut session = Session::new("chat".into(), bench.model.clone(), &options, Arc::new(Control::default()))?;
        // Turn by turn, as it would have been held.
        let turns = chat.len() / 2;
        for turn in 1..=turns {
            bench.say(i, cases, format_args!(", turn {turn} of {turns}"));
            let mut messages = chat[..turn * 2].to_vec();
            messages.push(ask(0));
            session.read_ahead(&messages, &options, &mut |_| {})?;
        }
        let mut result = Measured { first: vec![false; FACTS], ..Measured::default() };
        for place in 0..FACTS {
            let mut fork = session.fork(format!("question {place}"), Arc::new(Control::default()))?;
            let mut messages = chat.clone();
            messages.push(ask(place));
            let answer = fork.send(&messages, &options, &bench.greedy(), ANSWER_TOKENS, &mut |_| {})?;
            result.first[place] = result.answered(&codes[place], &answer);
            result.remember(&fork);
        }
        measured.push(result.finish(case));
    }
    Ok(measured)
}

fn ask(place: usize) -> Message {
    let text =
        format!("I told you something about this before. {} Answer with the number only.", needle::FACTS[place].1);
    Message { role: Role::User, text, documents: Vec::new() }
}

/// Person and model in turn, with about the tokens asked for.
fn chat(bench: &Bench, codes: &[String]) -> Vec<Message> {
    let tokenizer = &bench.model.tokenizer;
    let message = |role, text: String| Message { role, text, documents: Vec::new() };
    let mut chat = Vec::new();
    let mut tokens = 0;
    for place in 0..FACTS {
        chat.push(message(Role::User, format!("Please remember this for later. {}", fact(place, codes))));
        chat.push(message(Role::Assistant, "I will remember it.".into()));
        tokens += 40;
    }
    let prose = tokenizer.encode(&bench.text, Special::AsText);
    for piece in prose.chunks(TALK) {
        if tokens >= bench.args.tokens as usize {
            break;
        }
        chat.push(message(
            Role::User,
            format!("What do you make of this passage?\n\n{}", tokenizer.decode(piece).trim()),
        ));
        chat.push(message(Role::Assistant, "It moves the story on and shows what the people in it want.".into()));
        tokens += piece.len() + 40;
    }
    chat
}
