//! Chats longer than the context that the model was trained for.

// In a test an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

mod common;

use std::sync::Arc;

use common::to_vec;
use engine::context::Context;
use engine::model::Model;
use engine::protocol::{CacheOptions, PolicyName};
use engine::tokenizer::Special;

fn starter_with_context(context: u32) -> Arc<Model> {
    let path = common::models_folder().join("SmolLM2-135M-Instruct.Q4_1.gguf");
    let mut model = Model::open(&path, &engine::device::pick(), &mut |_| {}).unwrap();
    model.config.context = context;
    Arc::new(model)
}

/// Perplexity of the novel's tokens from `from` to `to`, after everything before them has been read.
fn perplexity(context: &mut Context, from: usize, to: usize) -> f64 {
    let ids = context.model().tokenizer.encode(common::novel(), Special::AsText);
    let mut logits = to_vec(&context.prefill(&ids[..from]).unwrap());
    let mut loss = 0.0;
    for &id in &ids[from..to] {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let total: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
        loss += total.ln() - f64::from(logits[id as usize] - max);
        logits = to_vec(&context.step(id).unwrap());
    }
    (loss / (to - from) as f64).exp()
}

#[test]
fn lms_1806_a_chat_three_times_as_long_as_the_context_goes_on_and_stays_language() {
    let options = CacheOptions { budget: Some(256), chunk: 128, ..CacheOptions::default() };
    let (from, to) = (1_300, 1_536);
    // The same text and budget with room for every position: what the cache alone can do.
    let mut whole = Context::new(starter_with_context(8_192), &options).unwrap();
    let baseline = perplexity(&mut whole, from, to);
    assert!(!whole.cache().state().past_context);

    let mut short = Context::new(starter_with_context(512), &options).unwrap();
    let moved = perplexity(&mut short, from, to);
    println!("perplexity {moved:.2} past a context of 512, {baseline:.2} within one of 8192");
    assert!(short.cache().state().past_context);
    assert_eq!(short.cache().n_seen(), to as u32, "positions keep counting");
    assert!(short.cache().angle() <= 512, "no key is rotated past the context");
    assert!(moved < baseline * 1.25, "perplexity {moved} is far from {baseline}");
}

#[test]
fn a_budget_as_large_as_the_context_makes_way_for_what_comes() {
    let options = CacheOptions { budget: Some(512), chunk: 64, evict_every: 16, ..CacheOptions::default() };
    let mut context = Context::new(starter_with_context(512), &options).unwrap();
    let ids = context.model().tokenizer.encode(common::novel(), Special::AsText);
    context.prefill(&ids[..700]).unwrap();
    for &id in &ids[700..800] {
        context.step(id).unwrap();
    }
    let state = context.cache().state();
    assert!(state.past_context && context.cache().angle() <= 512);
    assert!(state.hot_entries > 300, "{} entries are left of 512", state.hot_entries);
}

#[test]
fn a_policy_that_keeps_everything_says_when_the_context_is_full() {
    let options = CacheOptions { policy: PolicyName::Full, ..CacheOptions::default() };
    let mut context = Context::new(starter_with_context(128), &options).unwrap();
    let ids = context.model().tokenizer.encode(common::novel(), Special::AsText);
    let error = context.prefill(&ids[..129]).unwrap_err();
    assert_eq!(error.code(), "context_full");
    assert!(error.to_string().contains("128 tokens"));
}
