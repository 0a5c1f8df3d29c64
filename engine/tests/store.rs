//! The store and what comes back from it.

// In a test an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

mod common;

use common::{cosine, to_vec};
use engine::context::Context;
use engine::protocol::{CacheOptions, KvType, PolicyName, PrefillMode};
use engine::tokenizer::Special;

fn novel_ids(n: usize) -> Vec<u32> {
    common::starter().tokenizer.encode(common::novel(), Special::AsText)[..n].to_vec()
}

fn options(budget: u32) -> CacheOptions {
    CacheOptions {
        budget: Some(budget),
        chunk: 128,
        prefill: PrefillMode::Exact,
        store_limit: Some(1 << 30),
        ..CacheOptions::default()
    }
}

fn context(options: &CacheOptions) -> Context {
    Context::new(common::starter(), options).unwrap()
}

/// Positions that every layer and KV head holds.
fn everywhere(context: &Context) -> Vec<u32> {
    let positions = context.cache().positions();
    let n = context.cache().n_seen();
    let held = |p: &u32| positions.iter().flatten().all(|of_head| of_head.binary_search(p).is_ok());
    (0..n).filter(held).collect()
}

#[test]
fn moving_the_budget_up_brings_everything_back_without_reading_it_again() {
    let ids = novel_ids(500);
    let mut small = context(&options(64));
    small.prefill(&ids).unwrap();
    assert!(everywhere(&small).len() < 64);
    small.set_budget(Some(1024)).unwrap();
    assert_eq!(everywhere(&small), (0..500).collect::<Vec<_>>());
    let state = small.cache().state();
    assert_eq!((state.kept, state.hot_entries), (1.0, 500));

    let mut whole = context(&CacheOptions { policy: PolicyName::Full, ..options(1024) });
    whole.prefill(&ids).unwrap();
    for id in [260, 1000, 2000] {
        let same = cosine(&to_vec(&small.step(id).unwrap()), &to_vec(&whole.step(id).unwrap()));
        assert!(same >= 0.999_99, "cosine {same}");
    }
}

#[test]
fn a_passage_that_is_pinned_after_it_was_evicted_comes_back() {
    let ids = novel_ids(500);
    let mut context = context(&options(64));
    context.prefill(&ids).unwrap();
    let passage: Vec<u32> = (100..120).collect();
    let held = |context: &Context| everywhere(context).into_iter().filter(|p| passage.contains(p)).count();
    assert!(held(&context) < passage.len());
    let before = context.cache().state();
    context.cache_mut().set_pins(vec![std::ops::Range { start: 100, end: 120 }], Vec::new()).unwrap();
    assert_eq!(held(&context), passage.len());
    let after = context.cache().state();
    assert_eq!((after.hot_entries, after.hot_bytes), (before.hot_entries, before.hot_bytes));
    context.step(260).unwrap();
    assert_eq!(held(&context), passage.len());
}

#[test]
fn the_picture_of_the_layers_counts_what_each_of_them_holds() {
    let ids = novel_ids(500);
    let mut context = context(&options(64));
    context.prefill(&ids).unwrap();
    let cache = context.cache();
    let (bins, layers) = (7, cache.layers());
    let shares = cache.layer_shares(bins);
    assert_eq!(shares.len(), layers * bins as usize);
    for (layer, of_heads) in cache.positions().iter().enumerate() {
        for bin in 0..bins {
            // Of 500 positions in 7 bins, 500 × b ÷ 7 rounded up is where bin b begins.
            let (start, end) = ((bin * 500).div_ceil(bins), ((bin + 1) * 500).div_ceil(bins));
            let held = of_heads.iter().flat_map(|head| head.iter()).filter(|&&p| (start..end).contains(&p)).count();
            let share = held as f64 / (f64::from(end - start) * of_heads.len() as f64);
            let told = f64::from(shares[layer * bins as usize + bin as usize]) / 255.0;
            assert!((share - told).abs() <= 1.0 / 255.0, "layer {layer}, bin {bin}: {share} is told as {told}");
        }
    }
    context.set_budget(Some(1024)).unwrap();
    assert!(context.cache().layer_shares(bins).iter().all(|&share| share == 255));
}

#[test]
fn without_recall_a_store_changes_nothing() {
    let ids = novel_ids(400);
    for kv in [KvType::F16, KvType::Q8_0] {
        let run = |store_limit| {
            let options = CacheOptions { recall: false, store_limit: Some(store_limit), kv, ..options(128) };
            let mut context = context(&options);
            context.prefill(&ids[..250]).unwrap();
            let mut logits: Vec<Vec<f32>> =
                ids[250..330].iter().map(|&id| to_vec(&context.step(id).unwrap())).collect();
            logits.push(to_vec(&context.read(&ids[330..], Some(380), &mut |_| Ok(true)).unwrap()));
            let kept: Vec<Vec<u32>> = context.cache().positions().into_iter().flatten().map(<[u32]>::to_vec).collect();
            (logits, kept)
        };
        assert_eq!(run(0), run(1 << 30));
    }
}

/// A document that states a fact, where it states it, and a question for it.
fn lighthouse() -> (Vec<u32>, std::ops::Range<u32>, Vec<u32>) {
    let encode = |text: &str| common::starter().tokenizer.encode(text, Special::AsText);
    let novel = common::novel();
    let fact = "The password of the old lighthouse is seven-three-green-otter.";
    let text = format!("{}\n\n{fact}\n\n{}", &novel[..2_000], &novel[2_000..7_000]);
    let before = encode(&format!("{}\n\n", &novel[..2_000])).len() as u32;
    let passage = before..before + encode(fact).len() as u32;
    let question = encode("\n\nQuestion: What is the password of the old lighthouse?\nAnswer: The password is");
    (encode(&text), passage, question)
}

#[test]
fn a_question_brings_its_passage_back_and_keeps_it_for_the_turn() {
    let (document, passage, question) = lighthouse();
    // The lowest layers bring nothing back.
    let hot = |context: &Context| -> usize {
        let positions = context.cache().positions();
        positions[positions.len() / 4..]
            .iter()
            .flatten()
            .map(|of_head| of_head.iter().filter(|&p| passage.contains(p)).count())
            .sum()
    };
    let mut context = context(&options(160));
    context.prefill(&document).unwrap();
    let left = hot(&context);
    let ask = context.cache().n_seen();
    context.read(&question, Some(ask), &mut |_| Ok(true)).unwrap();
    let recalled = hot(&context);
    let all = passage.len() * 3 * 23;
    println!("{left} of {all} entries of the passage were hot, {recalled} after the question");
    assert!(recalled > left + all / 8, "{recalled} of {all} after, {left} before");
    assert!(context.cache().state().hot_entries <= 160);
    assert!(context.cache().passages().iter().take(3).any(|p| p.start < passage.end && p.end > passage.start));

    // Protected: more than an eviction's worth of tokens later it is still there.
    for &id in &novel_ids(150) {
        context.step(id).unwrap();
    }
    assert!(hot(&context) >= recalled * 9 / 10, "{} are left", hot(&context));
}

#[test]
fn a_question_attends_to_what_it_brought_back() {
    let (document, _, question) = lighthouse();
    let encode = |text: &str| common::starter().tokenizer.encode(text, Special::AsText);
    let other = encode(&common::novel()[7_000..8_000]);
    let answer = |policy, recall, prefill, between: &[u32]| {
        let mut context = context(&CacheOptions { policy, recall, prefill, ..options(160) });
        context.prefill(&document).unwrap();
        let mut prompt = between.to_vec();
        let ask = document.len() + prompt.len();
        prompt.extend_from_slice(&question);
        let logits = to_vec(&context.read(&prompt, Some(ask as u32), &mut |_| Ok(true)).unwrap());
        (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap() as u32
    };
    let right = encode(" seven")[0];
    assert_eq!(answer(PolicyName::Full, false, PrefillMode::Exact, &[]), right, "everything kept");
    assert_ne!(answer(PolicyName::H2o, false, PrefillMode::Exact, &[]), right, "without recall");
    for prefill in [PrefillMode::Exact, PrefillMode::Streaming] {
        // The question alone, and behind so much else that both are read layer by layer.
        for between in [&[][..], &other] {
            assert_eq!(answer(PolicyName::H2o, true, prefill, between), right, "{prefill:?}: {}", between.len());
        }
    }
}

#[test]
fn the_store_stays_in_its_limit_and_says_what_is_forgotten() {
    let limit = 4 << 20;
    let mut context = context(&CacheOptions { store_limit: Some(limit), ..options(64) });
    let ids = novel_ids(900);
    context.prefill(&ids[..800]).unwrap();
    for &id in &ids[800..] {
        context.step(id).unwrap();
    }
    let state = context.cache().state();
    assert!(state.store_bytes <= limit, "{} bytes", state.store_bytes);
    let forgotten = context.cache().forgotten();
    let positions = context.cache().positions();
    assert!(!forgotten.is_empty());
    for (start, end) in forgotten {
        assert!(start < end && end <= 900);
        assert!(!positions.iter().flatten().any(|of_head| of_head.iter().any(|p| (start..end).contains(p))));
    }
    // Nothing of what is hot is lost with it, and the chat goes on.
    context.set_budget(Some(400)).unwrap();
    assert!(context.cache().state().hot_entries >= 64);
    context.read(&ids[..40], Some(900), &mut |_| Ok(true)).unwrap();
}

#[test]
fn going_back_brings_back_what_later_tokens_pushed_out() {
    let ids = novel_ids(700);
    let mut there_and_back = context(&options(128));
    there_and_back.prefill(&ids[..300]).unwrap();
    let before = to_vec(&there_and_back.prefill(&ids[300..310]).unwrap());
    there_and_back.prefill(&ids[310..]).unwrap();
    there_and_back.truncate(300).unwrap();
    let state = there_and_back.cache().state();
    assert_eq!((state.n_seen, state.hot_entries), (300, 128));
    let after = to_vec(&there_and_back.prefill(&ids[300..310]).unwrap());
    let same = cosine(&before, &after);
    println!("cosine {same:.5} after going back");
    assert!(same > 0.98, "cosine {same}");
}

#[test]
fn a_fork_goes_its_own_way() {
    let ids = novel_ids(500);
    let mut one = context(&options(128));
    one.prefill(&ids[..300]).unwrap();
    let mut other = one.fork().unwrap();
    let expected = {
        let mut alone = one.fork().unwrap();
        to_vec(&alone.prefill(&ids[300..400]).unwrap())
    };
    other.prefill(&ids[400..]).unwrap();
    for &id in &ids[..100] {
        other.step(id).unwrap();
    }
    assert_eq!(to_vec(&one.prefill(&ids[300..400]).unwrap()), expected);
    assert_eq!((one.cache().n_seen(), other.cache().n_seen()), (400, 500));
}

#[test]
fn a_chat_past_its_context_still_recalls() {
    let path = common::models_folder().join("SmolLM2-135M-Instruct.Q4_1.gguf");
    let mut model = engine::model::Model::open(&path, &engine::device::pick(), &mut |_| {}).unwrap();
    model.config.context = 512;
    let mut context = Context::new(std::sync::Arc::new(model), &options(128)).unwrap();
    let ids = novel_ids(1_400);
    context.prefill(&ids[..1_300]).unwrap();
    let ask = context.cache().n_seen();
    context.read(&ids[1_300..], Some(ask), &mut |_| Ok(true)).unwrap();
    let state = context.cache().state();
    assert!(state.past_context && state.hot_entries <= 128);
    assert!(!context.cache().passages().is_empty());
    assert!(context.cache().angle() <= 512);
    context.set_budget(Some(300)).unwrap();
    assert_eq!(context.cache().least_entries(), 300, "up again, the store fills it");
    let logits = to_vec(&context.step(260).unwrap());
    assert!(logits.iter().all(|x| x.is_finite()));
    context.truncate(900).unwrap();
    assert_eq!(context.cache().n_seen(), 900);
    context.prefill(&ids[900..950]).unwrap();
}

#[test]
fn q8_0_halves_the_bytes_and_stays_close_to_f32() {
    let ids = novel_ids(400);
    let run = |kv| {
        let mut context = context(&CacheOptions { kv, ..options(512) });
        let logits = to_vec(&context.prefill(&ids).unwrap());
        (logits, context.cache().state())
    };
    let (exact, f32_state) = run(KvType::F32);
    let (close, q8_state) = run(KvType::Q8_0);
    let same = cosine(&exact, &close);
    println!("cosine {same:.6}, {} instead of {} bytes", q8_state.hot_bytes, f32_state.hot_bytes);
    assert!(same > 0.999, "cosine {same}");
    assert!(q8_state.full_bytes * 3 < f32_state.full_bytes);
    assert!(q8_state.store_bytes * 5 < f32_state.store_bytes * 3);
}
