//! Ten thousand operations in random order against a plain account of what was put in: a list of tokens.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use candle_core::{Device, Tensor};
use half::f16;
use proptest::prelude::*;
use proptest::test_runner::{Config as Runs, TestRunner};

use super::rows::HostRows;
use super::snapshot::{self, Extra};
use super::store::{PAGE, Store};
use super::{Cache, Phase};
use crate::context::Context;
use crate::error::{Error, Result};
use crate::memory::{self, Site};
use crate::model::{Attend, Config, Model};
use crate::protocol::{CacheOptions, PolicyName};

#[allow(dead_code)]
#[path = "../../tests/hostile/seeds.rs"]
mod seeds;

/// Sequences of operations, and operations in each.
const SEQUENCES: u32 = 50;
const OPERATIONS: usize = 200;

const CHUNK: usize = 16;
const EVICT_EVERY: u32 = 8;

/// What can be done to a cache. Places are shares of what there is, so that each fits whatever came before it.
#[derive(Debug, Clone)]
enum Operation {
    /// Tokens of a prompt; layer by layer or chunk by chunk; from a share of them on it asks.
    Read {
        tokens: usize,
        exact: bool,
        asks: Option<f64>,
    },
    /// Tokens of an answer.
    Write {
        tokens: usize,
    },
    SetBudget {
        budget: u32,
    },
    SetPolicy {
        policy: PolicyName,
        budget: u32,
    },
    Pin {
        from: f64,
        tokens: u32,
        wish: bool,
    },
    Unpin,
    GoBack {
        to: f64,
    },
    BeginTurn,
    /// Goes on with a copy, and now and then with the other of the two.
    Fork,
    Switch,
    PutAway,
    /// Memory runs out while the next operation takes it for this, after so many times, as many times in a row.
    RunOut {
        site: Site,
        granted: u32,
        refused: u32,
    },
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    // The control of measurements has no memory of its own order; a repetition is a pass of its own.
    let policies: Vec<PolicyName> = PolicyName::ALL.into_iter().filter(|&name| name != PolicyName::KvZip).collect();
    prop_oneof![
        6 => (1usize..90, any::<bool>(), proptest::option::of(0.0..1.0))
            .prop_map(|(tokens, exact, asks)| Read { tokens, exact, asks }),
        8 => (1usize..14).prop_map(|tokens| Write { tokens }),
        4 => (24u32..160).prop_map(|budget| SetBudget { budget }),
        1 => (proptest::sample::select(policies), 32u32..160).prop_map(|(policy, budget)| SetPolicy { policy, budget }),
        2 => (0.0..1.0, 1u32..24, any::<bool>()).prop_map(|(from, tokens, wish)| Pin { from, tokens, wish }),
        1 => Just(Unpin),
        3 => (0.0..1.0f64).prop_map(|to| GoBack { to: 1.0 - to * to }),
        2 => Just(BeginTurn),
        1 => Just(Fork),
        1 => Just(Switch),
        1 => Just(PutAway),
        6 => (proptest::sample::select(Site::ALL.to_vec()), 0u32..5, 1u32..4)
            .prop_map(|(site, granted, refused)| RunOut { site, granted, refused }),
    ]
}

fn tiny() -> Arc<Model> {
    static TINY: OnceLock<(Arc<Model>, tempfile::TempDir)> = OnceLock::new();
    let (model, _) = TINY.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("tiny.gguf");
        std::fs::write(&path, seeds::model(false)).unwrap();
        (Arc::new(Model::open(&path, &Device::Cpu, &mut |_| {}).unwrap()), folder)
    });
    model.clone()
}

/// A number that stands for part `part` of one token's entry.
fn number(token: u64, layer: usize, head: usize, part: usize) -> f32 {
    let mut x = token.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ ((layer * 64 + head) * 64 + part) as u64;
    x = (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((x >> 40) as f32 / (1u64 << 24) as f32 - 0.5) * 4.0
}

const KEY: usize = 0;
const VALUE: usize = 16;
const QUERY: usize = 32;

fn vectors(tokens: &[u64], layer: usize, heads: usize, d: usize, part: usize) -> Tensor {
    let numbers: Vec<f32> = (0..heads)
        .flat_map(|head| {
            tokens.iter().flat_map(move |&token| (0..d).map(move |i| number(token, layer, head, part + i)))
        })
        .collect();
    Tensor::from_vec(numbers, (heads, tokens.len(), d), &Device::Cpu).unwrap()
}

/// A cache, and what it was told.
struct Pair {
    context: Context,
    /// By position; no two tokens are the same.
    told: Vec<u64>,
    /// Entries over the budget that are not evicted yet.
    slack: u32,
}

struct World {
    config: Config,
    pairs: Vec<Pair>,
    at: usize,
    next: u64,
    done: usize,
    /// How often memory ran out, and for what.
    short: HashMap<Site, usize>,
    folder: tempfile::TempDir,
}

impl World {
    fn new(options: &CacheOptions) -> Self {
        let model = tiny();
        let cache = Cache::new(&model.config, model.rope(), options, 64, 0, &Device::Cpu).unwrap();
        let config = model.config.clone();
        let pair = Pair { context: Context::from_parts(model, cache, Vec::new()), told: Vec::new(), slack: 0 };
        Self {
            config,
            pairs: vec![pair],
            at: 0,
            next: 1,
            done: 0,
            short: HashMap::new(),
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn fresh(&mut self, n: usize) -> Vec<u64> {
        let first = self.next;
        self.next += n as u64;
        (first..self.next).collect()
    }

    /// One pass of `tokens` through a layer.
    fn attend(&mut self, layer: usize, tokens: &[u64]) -> Result<()> {
        let Config { heads, kv_heads, head_dim: d, .. } = self.config;
        let q = vectors(tokens, layer, heads, d, QUERY);
        let k = vectors(tokens, layer, kv_heads, d, KEY);
        let v = vectors(tokens, layer, kv_heads, d, VALUE);
        let out = self.pairs[self.at].context.cache_mut().attend(layer, &q, &k, &v)?;
        let out = out.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert!(out.iter().all(|x| x.is_finite()));
        Ok(())
    }

    /// A pass through all layers; where it fails, the cache stands where it stood.
    fn pass(&mut self, tokens: &[u64], through: impl FnOnce(&mut Self) -> Result<()>) -> bool {
        let start = self.cache().n_seen();
        match through(self) {
            Ok(()) => {
                self.cache().advance(tokens.len() as u32);
                self.pairs[self.at].told.extend(tokens);
                true
            }
            Err(error) => {
                self.ran_out(&error);
                self.cache().truncate(start).unwrap();
                false
            }
        }
    }

    /// Nothing else may go wrong.
    fn ran_out(&mut self, error: &Error) {
        let Error::OutOfMemory { site: Some(site), .. } = error else { panic!("{error}") };
        *self.short.entry(*site).or_default() += 1;
    }

    fn cache(&mut self) -> &mut Cache {
        self.pairs[self.at].context.cache_mut()
    }

    fn run(&mut self, operation: &Operation) {
        let pinned = self.pinned_and_hot();
        let mut may_lose_pins = false;
        match *operation {
            Operation::Read { tokens, exact, asks } => self.read(tokens, exact, asks),
            Operation::Write { tokens } => {
                for token in self.fresh(tokens) {
                    self.cache().set_phase(Phase::Decode);
                    self.cache().set_ask(None);
                    let layers = 0..self.config.layers;
                    self.pass(&[token], |world| layers.into_iter().try_for_each(|layer| world.attend(layer, &[token])));
                }
                self.pairs[self.at].slack = EVICT_EVERY;
            }
            Operation::SetBudget { budget } => {
                let before = self.cache().budget();
                match self.cache().set_budget(budget) {
                    Ok(()) => {
                        assert_eq!(self.cache().budget(), budget);
                        self.pairs[self.at].slack = 0;
                    }
                    Err(error @ Error::OutOfMemory { .. }) => {
                        self.ran_out(&error);
                        assert_eq!(self.cache().budget(), budget);
                        self.pairs[self.at].slack = 0;
                    }
                    // Too small, for anything or for what is pinned.
                    Err(error) => {
                        assert_eq!(error.code(), "options");
                        assert_eq!(self.cache().budget(), before);
                    }
                }
                // Wishes have a part of the budget only.
                may_lose_pins = true;
            }
            Operation::SetPolicy { policy, budget } => {
                let before = self.cache().options().clone();
                let options = CacheOptions { policy, budget: Some(budget), ..before.clone() };
                let limit = self.cache().store.as_ref().map_or(0, Store::limit);
                match self.cache().set_options(&options, budget, limit) {
                    Ok(()) => self.pairs[self.at].slack = 0,
                    Err(error @ Error::OutOfMemory { .. }) => {
                        self.ran_out(&error);
                        self.pairs[self.at].slack = 0;
                    }
                    Err(error) => {
                        assert_eq!(error.code(), "options");
                        assert_eq!(self.cache().options(), &before, "what is refused changes nothing");
                    }
                }
                may_lose_pins = true;
            }
            Operation::Pin { from, tokens, wish } => {
                let n = self.pairs[self.at].told.len() as u32;
                let start = (from * f64::from(n)) as u32;
                let range = start..(start + tokens).min(n);
                let cache = self.cache();
                let (mut pins, mut wishes) = (cache.pins.clone(), cache.wishes.clone());
                if wish { &mut wishes } else { &mut pins }.push(range);
                let before = cache.pins.clone();
                match cache.set_pins(pins, wishes) {
                    Ok(()) => {}
                    Err(error @ Error::OutOfMemory { .. }) => self.ran_out(&error),
                    Err(error) => {
                        assert_eq!(error.code(), "options");
                        assert_eq!(self.cache().pins, before);
                    }
                }
            }
            Operation::Unpin => self.cache().set_pins(Vec::new(), Vec::new()).unwrap(),
            Operation::GoBack { to } => {
                let n = (to * self.pairs[self.at].told.len() as f64) as usize;
                let Pair { context, told, .. } = &mut self.pairs[self.at];
                told.truncate(n);
                context.cache_mut().truncate(n as u32).unwrap();
                assert_eq!(context.cache().n_seen() as usize, n);
            }
            Operation::BeginTurn => self.cache().begin_turn(),
            Operation::Fork => {
                let Pair { context, told, slack } = &mut self.pairs[self.at];
                match context.fork() {
                    Ok(context) => {
                        let copy = Pair { context, told: told.clone(), slack: *slack };
                        if self.pairs.len() > 2 {
                            self.pairs.remove(0);
                        }
                        self.pairs.push(copy);
                        self.at = self.pairs.len() - 1;
                    }
                    Err(error) => self.ran_out(&error),
                }
            }
            Operation::Switch => self.at = (self.at + 1) % self.pairs.len(),
            Operation::PutAway => self.put_away(),
            Operation::RunOut { .. } => {}
        }
        memory::relent();
        if let Operation::RunOut { site, granted, refused } = *operation {
            memory::refuse(site, granted, refused);
        }
        self.done += 1;
        if !may_lose_pins && !matches!(operation, Operation::GoBack { .. } | Operation::Switch | Operation::Pin { .. })
        {
            let still = self.pinned_and_hot();
            for (place, positions) in pinned {
                for position in positions {
                    let kept = still[&place].contains(&position) || !self.is_pinned(position);
                    assert!(kept, "{position} was pinned and hot in {place:?}, and is gone");
                }
            }
        }
        self.check(self.at);
        // Whatever is done to one is not done to the others.
        if self.done.is_multiple_of(16) {
            (0..self.pairs.len()).for_each(|i| self.check(i));
        }
    }

    fn read(&mut self, tokens: usize, exact: bool, asks: Option<f64>) {
        let tokens = self.fresh(tokens);
        let n_seen = self.cache().n_seen();
        let ask = asks.map(|share| n_seen + (share * tokens.len() as f64) as u32);
        if exact {
            self.cache().set_phase(Phase::Exact);
            self.cache().set_ask(ask);
            let read = self.pass(&tokens, |world| {
                for layer in 0..world.config.layers {
                    world.cache().begin_layer(layer, tokens.len())?;
                    for (j, chunk) in tokens.chunks(CHUNK).enumerate() {
                        world.cache().set_offset((j * CHUNK) as u32);
                        world.attend(layer, chunk)?;
                    }
                    world.cache().set_offset(0);
                    world.cache().finish_layer(layer, tokens.len() as u32)?;
                }
                Ok(())
            });
            if read {
                self.pairs[self.at].slack = 0;
            }
        } else {
            for chunk in tokens.chunks(CHUNK) {
                let start = self.cache().n_seen();
                self.cache().set_phase(Phase::Streaming);
                self.cache().set_ask(ask.filter(|&ask| ask < start + chunk.len() as u32));
                let layers = 0..self.config.layers;
                if !self.pass(chunk, |world| layers.into_iter().try_for_each(|layer| world.attend(layer, chunk))) {
                    break;
                }
                self.pairs[self.at].slack = 0;
            }
        }
        self.cache().set_ask(None);
    }

    /// Written to a file and read back, it is the same.
    fn put_away(&mut self) {
        let path = self.folder.path().join("chat.snapshot");
        let pair = &mut self.pairs[self.at];
        let vocab = self.config.vocab as u64;
        let ids = pair.told.iter().map(|token| (token % vocab) as u32).collect();
        let model = tiny();
        let options = pair.context.cache().options().clone();
        let empty = Cache::new(&model.config, model.rope(), &options, 64, 0, &Device::Cpu).unwrap();
        let cache = std::mem::replace(pair.context.cache_mut(), empty);
        let mut context = Context::from_parts(model.clone(), cache, ids);
        let saved = snapshot::write(&path, &mut context, &Extra::default());
        let read = saved.and_then(|()| snapshot::read(&path, model));
        let (again, _) = match read {
            Ok(read) => read,
            Err(error) => {
                pair.context = context;
                return self.ran_out(&error);
            }
        };
        let (before, after) = (context.cache(), again.cache());
        assert_eq!(before.positions(), after.positions());
        assert_eq!((&before.pins, &before.pinned, &before.recalled), (&after.pins, &after.pinned, &after.recalled));
        let (before, after) = (before.state(), after.state());
        assert_eq!((before.kept, before.store_bytes, before.budget), (after.kept, after.store_bytes, after.budget));
        pair.context = again;
    }

    fn is_pinned(&self, position: u32) -> bool {
        self.pairs[self.at].context.cache().pinned.iter().any(|range| range.contains(&position))
    }

    /// Pinned positions that are hot, by layer and head; none where the layers' budgets differ, and pins may not fit.
    fn pinned_and_hot(&self) -> HashMap<(usize, usize), Vec<u32>> {
        let cache = self.pairs[self.at].context.cache();
        let mut found = HashMap::new();
        for (i, layer) in cache.layers.iter().enumerate() {
            for (head, slots) in layer.heads.iter().enumerate() {
                let pinned = slots.positions.iter().copied().filter(|&p| self.is_pinned(p));
                let of_head = if cache.layer_budget(i) < cache.budget { Vec::new() } else { pinned.collect() };
                found.insert((i, head), of_head);
            }
        }
        found
    }

    fn check(&mut self, i: usize) {
        let Config { layers, kv_heads, head_dim: d, .. } = self.config;
        let Pair { context, told, slack } = &mut self.pairs[i];
        let cache = context.cache_mut();
        let n = told.len() as u32;
        assert_eq!(cache.n_seen(), n);
        let mut hot = vec![0u32; told.len()];
        for l in 0..layers {
            let layer = &cache.layers[l];
            let len = layer.len();
            if !cache.plan.prompt.keeps_all() {
                let most = cache.layer_budget(l) + *slack;
                assert!(len as u32 <= most, "{len} entries in a budget of {most}");
            }
            let row = 2 * d * size_of::<f16>() * kv_heads;
            assert_eq!(layer.bytes(), ((layer.k.capacity() + layer.v.capacity()) * row / 2) as u64);
            let (HostRows::F16(k), HostRows::F16(v)) = (layer.k.to_host(len).unwrap(), layer.v.to_host(len).unwrap())
            else {
                panic!("entries are halves");
            };
            for (head, slots) in layer.heads.iter().enumerate() {
                assert_eq!(slots.len(), len, "all heads hold as many");
                assert!(slots.positions.windows(2).all(|pair| pair[0] < pair[1]));
                for (slot, &position) in slots.positions.iter().enumerate() {
                    hot[position as usize] += 1;
                    let at = (head * len + slot) * d;
                    same(&k[at..at + d], told[position as usize], l, head, KEY);
                    same(&v[at..at + d], told[position as usize], l, head, VALUE);
                    assert!(slots.scores[slot] >= 0.0 && slots.missed[slot] < n - position);
                }
            }
        }
        // The ledger is what a recount finds.
        let whole = (layers * kv_heads) as u32;
        let sum: u32 = hot.iter().sum();
        let mean = if n == 0 { 1.0 } else { f64::from(sum) / f64::from(n * whole) };
        assert!((f64::from(cache.state().kept) - mean).abs() < 1e-6);
        for (position, &count) in hot.iter().enumerate() {
            assert_eq!(cache.ledger.cold(position as u32), count == 0);
        }
        // The store holds what was put in, and what is nowhere is said to be forgotten.
        let forgotten = cache.forgotten();
        let is_forgotten = |p: u32| forgotten.iter().any(|&(start, end)| (start..end).contains(&p));
        for p in 0..n {
            let mut stored = false;
            if let Some(store) = &cache.store {
                for l in 0..layers {
                    let Some(Some(page)) = store.layers[l].pages.get(p as usize / PAGE) else { continue };
                    stored = true;
                    for head in 0..kv_heads {
                        let (HostRows::F16(k), HostRows::F16(v)) = (&page.k[head], &page.v[head]) else {
                            panic!("entries are halves");
                        };
                        let at = p as usize % PAGE * d;
                        same(&k[at..at + d], told[p as usize], l, head, KEY);
                        same(&v[at..at + d], told[p as usize], l, head, VALUE);
                    }
                }
            }
            let anywhere = stored || hot[p as usize] > 0;
            assert_eq!(is_forgotten(p), !anywhere, "position {p} of {n}");
        }
    }
}

fn same(row: &[f16], token: u64, layer: usize, head: usize, part: usize) {
    for (i, x) in row.iter().enumerate() {
        let put_in = f16::from_f32(number(token, layer, head, part + i));
        assert_eq!(x.to_bits(), put_in.to_bits(), "token {token}, layer {layer}, head {head}");
    }
}

#[test]
fn ten_thousand_operations_keep_the_budget_the_account_and_every_bit() {
    let options = || {
        let stores = proptest::sample::select(vec![0u64, 20_000, 60_000, 1 << 24]);
        let policies = proptest::sample::select(vec![PolicyName::H2o, PolicyName::SnapKv, PolicyName::Expected]);
        (stores, policies, any::<bool>()).prop_map(|(store_limit, policy, recall)| CacheOptions {
            policy,
            budget: Some(64),
            chunk: CHUNK as u32,
            evict_every: EVICT_EVERY,
            store_limit: Some(store_limit),
            recall,
            ..CacheOptions::default()
        })
    };
    let runs = Runs { cases: SEQUENCES, failure_persistence: None, max_shrink_iters: 300, ..Runs::default() };
    let sequences = (options(), proptest::collection::vec(operation(), OPERATIONS));
    let mut runner =
        TestRunner::new_with_rng(runs, proptest::test_runner::TestRng::deterministic_rng(Default::default()));
    let done = std::cell::Cell::new(0);
    let short = std::cell::RefCell::new(HashMap::new());
    let outcome = runner.run(&sequences, |(options, operations)| {
        let mut world = World::new(&options);
        operations.iter().for_each(|operation| world.run(operation));
        memory::relent();
        done.set(done.get() + world.done);
        for (site, times) in world.short {
            *short.borrow_mut().entry(site).or_insert(0) += times;
        }
        Ok(())
    });
    let (done, short) = (done.get(), short.into_inner());
    println!("{done} operations; memory ran out {short:?}");
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
    assert!(done >= 10_000, "{done} operations");
    for site in [Site::Hot, Site::Recall, Site::Store, Site::Fork, Site::Snapshot] {
        assert!(short.contains_key(&site), "{site:?} never ran out");
    }
}
