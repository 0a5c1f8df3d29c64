//! Eviction against a full cache that *masks* the evicted entries: step for step the same logits.

// In a test an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

mod common;

use candle_core::{Device, Tensor};
use common::{argmax, cosine, to_vec};
use engine::context::Context;
use engine::error::Result;
use engine::model::{Attend, Model};
use engine::protocol::{CacheOptions, PolicyName};
use engine::tokenizer::Special;

/// Every entry ever computed, in f32, and plain loops. A query sees an old entry only where `visible` says so.
struct MaskedFull {
    /// `[layer][kv_head][position][head_dim]`.
    k: Vec<Vec<Vec<Vec<f32>>>>,
    v: Vec<Vec<Vec<Vec<f32>>>>,
    /// `[layer][kv_head]`: old positions that are not masked.
    visible: Vec<Vec<Vec<u32>>>,
    start: usize,
}

impl MaskedFull {
    fn new(model: &Model) -> Self {
        let empty = vec![vec![Vec::new(); model.config.kv_heads]; model.config.layers];
        let visible = vec![vec![Vec::new(); model.config.kv_heads]; model.config.layers];
        Self { k: empty.clone(), v: empty, visible, start: 0 }
    }

    /// The logits after `chunk`, with the entries that `kept` holds as it begins.
    fn pass(&mut self, model: &Model, chunk: &[u32], kept: &Context) -> Vec<f32> {
        self.visible =
            kept.cache().positions().iter().map(|heads| heads.iter().map(|p| p.to_vec()).collect()).collect();
        let hidden = model.forward(chunk, self.start as u32, self).unwrap();
        self.start += chunk.len();
        to_vec(&model.logits(&hidden).unwrap())
    }
}

impl Attend for MaskedFull {
    fn attend(&mut self, layer: usize, q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
        let q: Vec<Vec<Vec<f32>>> = q.to_vec3()?;
        for (all, new) in [(&mut self.k[layer], k), (&mut self.v[layer], v)] {
            for (all, new) in all.iter_mut().zip(new.to_vec3()?) {
                all.extend(new);
            }
        }
        let (heads, n, d) = (q.len(), q[0].len(), q[0][0].len());
        let group = heads / self.k[layer].len();
        let mut out = vec![0f32; n * heads * d];
        for (head, q) in q.iter().enumerate() {
            let kv = head / group;
            let (k, v) = (&self.k[layer][kv], &self.v[layer][kv]);
            for (t, q) in q.iter().enumerate() {
                let old = self.visible[layer][kv].iter().map(|&p| p as usize).filter(|&p| p < self.start);
                let seen: Vec<usize> = old.chain(self.start..=self.start + t).collect();
                let logits: Vec<f32> = seen
                    .iter()
                    .map(|&p| q.iter().zip(&k[p]).map(|(a, b)| a * b).sum::<f32>() / (d as f32).sqrt())
                    .collect();
                let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let total: f32 = logits.iter().map(|x| (x - max).exp()).sum();
                let out = &mut out[(t * heads + head) * d..][..d];
                for (&p, logit) in seen.iter().zip(&logits) {
                    let weight = (logit - max).exp() / total;
                    out.iter_mut().zip(&v[p]).for_each(|(out, v)| *out += weight * v);
                }
            }
        }
        Ok(Tensor::from_vec(out, (n, heads * d), &Device::Cpu)?)
    }
}

#[test]
fn koboldcpp_1084_evicting_equals_a_full_cache_with_the_same_entries_masked() {
    let model = common::starter();
    let ids = model.tokenizer.encode(common::novel(), Special::AsText);
    for policy in PolicyName::ALL.into_iter().filter(|&policy| policy != PolicyName::Full) {
        let options = CacheOptions { policy, budget: Some(96), chunk: 64, evict_every: 8, ..CacheOptions::default() };
        let mut context = Context::new(model.clone(), &options).unwrap();
        let mut oracle = MaskedFull::new(&model);
        let mut worst = 1f64;
        for chunk in ids[..256].chunks(64) {
            let want = oracle.pass(&model, chunk, &context);
            let got = to_vec(&context.prefill(chunk).unwrap());
            worst = worst.min(cosine(&got, &want));
        }
        // Decode over more than one eviction.
        let mut next = ids[256];
        for _ in 0..20 {
            let want = oracle.pass(&model, &[next], &context);
            let got = to_vec(&context.step(next).unwrap());
            worst = worst.min(cosine(&got, &want));
            next = argmax(&got) as u32;
        }
        println!("{policy:?}: least cosine {worst:.7}");
        assert!(worst >= 0.9999, "{policy:?}: the least cosine is {worst}");
    }
}
