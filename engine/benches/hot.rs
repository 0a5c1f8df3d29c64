//! What an answer's time goes into, one bench for each operation. Shapes are those of Qwen2.5 0.5B.

// A bench may unwrap: nobody's file or driver is behind it.
#![allow(clippy::unwrap_used, missing_docs)]

use std::hint::black_box;
use std::sync::Arc;

use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::attention::Slices;
use engine::attention::cpu::{Entries, attend};
use engine::attention::probe::{HeadKeys, Reduce, max_pool, probe};
use engine::cache::policy::{self, Claims, H2o};
use engine::model::Linear;
use engine::protocol::CacheOptions;
use half::f16;

const HEADS: usize = 14;
const KV_HEADS: usize = 2;
const D: usize = 64;

/// Numbers from -1 to 1 that are the same every time.
fn numbers(n: usize) -> Vec<f32> {
    let mut state = 1u64;
    let next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(n).collect()
}

fn halves(n: usize) -> Vec<f16> {
    numbers(n).into_iter().map(f16::from_f32).collect()
}

fn attention(c: &mut Criterion) {
    let mut group = c.benchmark_group("attention");
    for (name, queries, len) in
        [("decode", 1, 1_024), ("decode", 1, 8_192), ("prefill", 512, 1_536), ("prefill", 512, 8_192)]
    {
        let (k, v) = (halves(KV_HEADS * len * D), halves(KV_HEADS * len * D));
        let q = numbers(HEADS * queries * D);
        let positions: Vec<u32> = (0..len as u32).collect();
        let positions = [positions.as_slice(); KV_HEADS];
        let entries =
            Entries { k: Slices::F16(&k), v: Slices::F16(&v), capacity: len, len, head_dim: D, positions: &positions };
        let mut out = vec![0f32; queries * HEADS * D];
        let mut scores = vec![vec![0f32; len]; KV_HEADS];
        group.throughput(Throughput::Elements((queries * len * HEADS) as u64));
        group.bench_function(BenchmarkId::new(name, len), |b| {
            b.iter(|| attend(&q, queries, (len - queries) as u32, &entries, &mut out, &mut scores));
        });
    }
}

fn eviction(c: &mut Criterion) {
    let n = 1_024 + 64;
    let positions: Vec<u32> = (0..n).map(|i| i * 7).collect();
    let (scores, missed) = (numbers(n as usize), vec![0; n as usize]);
    let entries =
        policy::Entries { positions: &positions, scores: &scores, missed: &missed, observed: None, n_seen: n * 7 };
    let claims = Claims { pinned: &|p| p < 40, recalled: &[] };
    c.bench_function("eviction/h2o from 1088 to 1024", |b| {
        b.iter(|| policy::keep(&H2o, black_box(&entries), 1_024, &CacheOptions::default(), &claims));
    });
}

fn recall(c: &mut Criterion) {
    let mut group = c.benchmark_group("recall");
    for len in [8_192, 65_536] {
        let keys = halves(len * D);
        let q = numbers(8 * HEADS / KV_HEADS * D);
        let positions: Vec<u32> = (0..len as u32).collect();
        group.throughput(Throughput::Elements(len as u64));
        group.bench_function(BenchmarkId::new("score", len), |b| {
            let keys = HeadKeys { slices: Slices::F16(&keys), base: 0, len, head_dim: D };
            b.iter(|| probe(&q, &keys, D, |_| len, Reduce::Max));
        });
        let scores = numbers(len);
        group.bench_function(BenchmarkId::new("pool", len), |b| b.iter(|| max_pool(&scores, &positions, 8)));
    }
}

fn matmul(c: &mut Criterion) {
    let mut group = c.benchmark_group("matmul");
    group.sample_size(20);
    for (dtype, n_in, n_out) in [
        (GgmlDType::Q4_1, 576, 1_536),
        (GgmlDType::Q5_0, 896, 4_864),
        (GgmlDType::Q8_0, 896, 4_864),
        (GgmlDType::Q4K, 4_864, 896),
        (GgmlDType::Q6K, 4_864, 896),
    ] {
        let weight = Tensor::from_vec(numbers(n_in * n_out), (n_out, n_in), &Device::Cpu).unwrap();
        let weight = Arc::new(QTensor::quantize(&weight, dtype).unwrap());
        let linear = Linear::new(weight, None).unwrap();
        for rows in [1, 24, 512] {
            let x = Tensor::from_vec(numbers(rows * n_in), (rows, n_in), &Device::Cpu).unwrap();
            group.throughput(Throughput::Elements((2 * rows * n_in * n_out) as u64));
            group.bench_function(BenchmarkId::new(format!("{dtype:?}"), rows), |b| {
                b.iter_batched(|| x.clone(), |x| linear.forward(&x).unwrap(), BatchSize::SmallInput);
            });
        }
    }
}

criterion_group!(benches, attention, eviction, recall, matmul);
criterion_main!(benches);
