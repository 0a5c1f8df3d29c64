//! Exact prefill: layer by layer, as if everything had been kept and compressed at the end.

// In a test an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

mod common;

use common::{cosine, to_vec};
use engine::context::{Context, Progress, exact_bytes};
use engine::error::Error;
use engine::protocol::{CacheOptions, KvType, PolicyName, PrefillMode};
use engine::tokenizer::Special;

fn novel_ids(n: usize) -> Vec<u32> {
    common::starter().tokenizer.encode(common::novel(), Special::AsText)[..n].to_vec()
}

fn options(policy: PolicyName, budget: u32, prefill: PrefillMode) -> CacheOptions {
    CacheOptions { policy, budget: Some(budget), prefill, chunk: 128, recall: false, ..CacheOptions::default() }
}

fn kept(context: &Context) -> Vec<Vec<Vec<u32>>> {
    let positions = context.cache().positions();
    positions.into_iter().map(|heads| heads.into_iter().map(<[u32]>::to_vec).collect()).collect()
}

#[test]
fn exact_prefill_equals_a_full_one_that_is_compressed_afterwards() {
    let model = common::starter();
    let ids = novel_ids(300);
    for policy in PolicyName::ALL {
        // What KVzip repeats a piece against is the whole prompt here, and what came so far when streaming.
        if policy == PolicyName::KvZip {
            continue;
        }
        let mut exact = Context::new(model.clone(), &options(policy, 96, PrefillMode::Exact)).unwrap();
        let exact_logits = to_vec(&exact.prefill(&ids).unwrap());
        // The pyramid's highest layer has room for everything too.
        let mut full = Context::new(model.clone(), &options(policy, 8_192, PrefillMode::Streaming)).unwrap();
        let full_logits = to_vec(&full.prefill(&ids).unwrap());
        assert_eq!(full.cache().state().kept, 1.0);
        full.set_budget(Some(96)).unwrap();

        assert_eq!(kept(&exact), kept(&full), "{policy:?} keeps other entries");
        let same = cosine(&exact_logits, &full_logits);
        assert!(same >= 0.9999, "{policy:?}: cosine {same} after the prompt");
        for id in [260, 1000, 2000] {
            let same = cosine(&to_vec(&exact.step(id).unwrap()), &to_vec(&full.step(id).unwrap()));
            assert!(same >= 0.9999, "{policy:?}: cosine {same} while generating");
        }
    }
}

#[test]
fn one_layer_and_the_hidden_states_are_all_that_an_exact_prefill_holds() {
    let model = common::starter();
    let per_layer = engine::cache::bytes_per_token(&model.config, KvType::F16) / model.config.layers as u64;
    for n in [300, 900] {
        let mut context = Context::new(model.clone(), &options(PolicyName::H2o, 128, PrefillMode::Exact)).unwrap();
        context.prefill(&novel_ids(n)).unwrap();
        let peak = context.cache().state().hot_peak_bytes;
        let others = per_layer * (model.config.layers as u64 - 1) * (128 + 64);
        println!("{n} tokens: peak {peak} bytes, one layer {}", per_layer * n as u64);
        assert!(peak <= per_layer * n as u64 + others, "{n} tokens took {peak} bytes");
        assert!(exact_bytes(&model, KvType::F16, n as u64) >= per_layer * n as u64);
        assert!(context.cache().bytes() <= per_layer * model.config.layers as u64 * (128 + 64));
    }
}

#[test]
fn auto_takes_exact_for_a_long_prompt_and_says_so() {
    let model = common::starter();
    let mut context = Context::new(model, &options(PolicyName::H2o, 128, PrefillMode::Auto)).unwrap();
    let mut modes = Vec::new();
    context
        .read(&novel_ids(300), None, &mut |Progress { mode, .. }| {
            modes.push(mode);
            Ok(true)
        })
        .unwrap();
    assert!(modes.iter().all(|&mode| mode == PrefillMode::Exact));
    // A short turn passes as one chunk either way.
    assert_eq!(context.mode(100), PrefillMode::Streaming);
    assert_eq!(context.mode(20_000), PrefillMode::Streaming, "past the trained context");
}

#[test]
fn an_exact_prefill_that_is_stopped_leaves_the_chat_as_it_was() {
    let model = common::starter();
    let ids = novel_ids(900);
    let mut context = Context::new(model, &options(PolicyName::H2o, 128, PrefillMode::Exact)).unwrap();
    context.prefill(&ids[..300]).unwrap();
    let before = (kept(&context), context.cache().state());
    let mut asked = 0;
    let stopped = context.read(&ids[300..], None, &mut |_| {
        asked += 1;
        Ok(asked < 40)
    });
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(context.ids(), &ids[..300]);
    let after = context.cache().state();
    assert_eq!((after.n_seen, after.kept), (before.1.n_seen, before.1.kept));
    assert_eq!(kept(&context).iter().flatten().map(Vec::len).sum::<usize>(), 128 * 90);
    // And goes on.
    context.prefill(&ids[300..400]).unwrap();
    assert_eq!(context.cache().n_seen(), 400);
}

#[test]
fn kvzip_keeps_what_the_model_needs_to_repeat_the_text() {
    let model = common::starter();
    let ids = novel_ids(384);
    let logits = |policy| {
        let mut context = Context::new(model.clone(), &options(policy, 192, PrefillMode::Exact)).unwrap();
        context.prefill(&ids).unwrap();
        // The text once more: how well does half of the cache foretell it?
        let mut loss = 0.0;
        let mut logits = to_vec(&context.step(ids[0]).unwrap());
        for &id in &ids[1..96] {
            let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let total: f64 = logits.iter().map(|x| f64::from(x - max).exp()).sum();
            loss += total.ln() - f64::from(logits[id as usize] - max);
            logits = to_vec(&context.step(id).unwrap());
        }
        loss / 95.0
    };
    let (kvzip, window, random) = (logits(PolicyName::KvZip), logits(PolicyName::Window), logits(PolicyName::Random));
    println!("loss of repeating the text: kvzip {kvzip:.3}, window {window:.3}, random {random:.3}");
    assert!(kvzip < random && kvzip < window);
}
