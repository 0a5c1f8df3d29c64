//! What the tests with a real model share.
#![allow(dead_code)]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use candle_core::{Device, Tensor};
use engine::model::Model;

/// The starter model, which every test machine has.
pub fn starter() -> Arc<Model> {
    static MODEL: OnceLock<Arc<Model>> = OnceLock::new();
    MODEL
        .get_or_init(|| {
            open("SmolLM2-135M-Instruct.Q4_1.gguf").expect("scripts/starter-model fetches the starter model")
        })
        .clone()
}

/// A model of the tests' folder, where it is there.
pub fn open(file: &str) -> Option<Arc<Model>> {
    let path = models_folder().join(file);
    path.is_file().then(|| Arc::new(Model::open(&path, &engine::device::pick(), &mut |_| {}).unwrap()))
}

/// `CISTERN_TEST_MODELS`, or the `models` folder of the workspace.
pub fn models_folder() -> PathBuf {
    match std::env::var_os("CISTERN_TEST_MODELS") {
        Some(folder) => folder.into(),
        None => [env!("CARGO_MANIFEST_DIR"), "..", "models"].iter().collect(),
    }
}

/// The opening of a novel, about 26,000 characters.
pub fn novel() -> &'static str {
    include_str!("../texts/pride-and-prejudice-opening.txt")
}

pub fn to_vec(x: &Tensor) -> Vec<f32> {
    x.to_device(&Device::Cpu).unwrap().flatten_all().unwrap().to_vec1().unwrap()
}

pub fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

pub fn argmax(x: &[f32]) -> usize {
    (0..x.len()).max_by(|&a, &b| x[a].total_cmp(&x[b])).unwrap()
}
