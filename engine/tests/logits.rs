//! The decoder against an independent one: numpy, f32, the same file (see `golden/README.md`).

// In a test an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{argmax, cosine, to_vec};
use engine::context::Context;
use engine::model::Model;
use engine::protocol::{CacheOptions, PolicyName};
use half::f16;
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    /// Vocabulary entries whose logits are stored.
    indices: Vec<usize>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    ids: Vec<u32>,
    top: usize,
}

fn compare(model: &Arc<Model>, name: &str, same_top_at_least: usize) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let golden: Golden = serde_json::from_slice(&std::fs::read(folder.join(format!("{name}.json"))).unwrap()).unwrap();
    let bytes = std::fs::read(folder.join(format!("{name}.f16"))).unwrap();
    let stored: Vec<f32> = bytes.chunks_exact(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect();
    assert_eq!(stored.len(), golden.cases.len() * golden.indices.len());

    let options = CacheOptions { policy: PolicyName::Full, ..CacheOptions::default() };
    let mut same_top = 0;
    let mut least = 1.0f64;
    for (case, want) in golden.cases.iter().zip(stored.chunks_exact(golden.indices.len())) {
        let mut context = Context::new(model.clone(), &options).unwrap();
        let logits = to_vec(&context.prefill(&case.ids).unwrap());
        let got: Vec<f32> = golden.indices.iter().map(|&i| logits[i]).collect();
        least = least.min(cosine(&got, want));
        same_top += usize::from(argmax(&logits) == case.top);
    }
    println!("{name}: least cosine {least:.6}, same top-1 {same_top} of {}", golden.cases.len());
    assert!(least >= 0.999, "the least cosine is {least}");
    assert!(same_top >= same_top_at_least, "{same_top} have the same top-1");
}

#[test]
fn logits_equal_an_independent_computation_of_the_same_file() {
    compare(&common::starter(), "logits-smollm2", 48);
}

#[test]
fn qwen2_logits_equal_an_independent_computation_where_that_model_is_there() {
    if let Some(model) = common::open("Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf") {
        compare(&model, "logits-qwen25", 4);
    }
}
