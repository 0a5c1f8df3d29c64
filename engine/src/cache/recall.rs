//! Bringing entries back from the store: because a question asks for them, because the budget grew, or because
//! what they had made way for is gone.
//!
//! A question's queries score *every* entry of the store: softmax over all of them per query, the largest over
//! the queries and the query heads of the group, max-pooled over neighbouring positions as SnapKV does with its
//! window. Bounds on whole pages choose badly, and so do scores without pooling. The pool is wider than SnapKV's: a
//! question attends to the words that name a thing, and what is said of it stands a few words later. What the layers
//! below asked for counts too: few of them find a passage, and more of them need it.

use std::time::Instant;

use candle_core::{Device, Tensor};
use rayon::prelude::*;

use super::evict::drop_entries;
use super::layer::{HotLayer, Slots};
use super::policy::{self, Claims, Entries, H2o, Policy, Protection};
use super::queries::Queries;
use super::{Cache, Phase, pinned_in};
use crate::attention::Slices;
use crate::attention::probe::{HeadKeys, Reduce, max_pool, probe};
use crate::error::Result;
use crate::memory::{self, Site};
use crate::protocol::Recalled;

/// Most queries of a question, over the heads of a group, that ask; each costs a pass over the store. Those that differ
/// most: six tokens of all seven heads, 42 queries, found as many facts at the end of a long chat, for twice the cost
/// (Qwen2.5 0.5B, 4,096 tokens, budget 10%).
const MOST_QUERIES: usize = 16;

/// How much a layer's scores weigh in what the next ones follow. Without, two of eleven answers were lost in one chat of
/// three.
const FOLLOW: f32 = 0.3;

/// The lowest layers, this part of all, bring nothing back: what they attend to is near, or everywhere. With their
/// share of the budget left to heavy hitters, as many answers are right (Qwen2.5 0.5B at 8,192 tokens: 11 and 11 of
/// 11 in place of 10 and 11; SmolLM2 at 2,048: as many), for a quarter less.
const LOWEST: usize = 4;

/// How far to both sides a hit brings its neighbours.
const REACH: u32 = 8;

/// Recalled positions closer than this are one passage.
const JOIN: u32 = 24;

/// Positions that fewer heads recalled than this part of the most agreed are not named.
const AGREED: usize = 4;

/// Most passages that are named.
const MOST_PASSAGES: usize = 12;

impl Cache {
    /// The first layer that brings something back.
    pub(super) fn lowest(&self) -> usize {
        self.layers.len() / LOWEST
    }

    /// Before a chunk's own entries join: brings back what its asking queries ask for.
    pub(super) fn recall_before(&mut self, i: usize, first: u32) -> Result<()> {
        let Some(ask) = self.ask else { return Ok(()) };
        let asking = match self.phase {
            Phase::Decode => self.tails[i].clone(),
            _ => std::mem::take(&mut self.asking),
        };
        if asking.n == 0 {
            return Ok(());
        }
        self.choose(i, &asking, ask.min(first), first)?;
        self.bring_back(i, first)
    }

    /// Chooses what `asking` asks for among the entries of one layer before position `ask`: it has a claim on the
    /// budget from here on. `n` tokens have been through the layer.
    pub(super) fn choose(&mut self, i: usize, asking: &Queries, ask: u32, n: u32) -> Result<()> {
        let started = Instant::now();
        let lowest = self.lowest();
        if i == lowest {
            self.asked.clear();
        }
        let budget = self.layer_budget(i);
        let Some(store) = &self.store else { return Ok(()) };
        let layer = &self.layers[i];
        let old = store.layers[i].len().min(n);
        if i < lowest || !self.options.recall || self.policy().keeps_all() || old <= budget {
            return Ok(());
        }
        let (d, group) = (self.shape.head_dim, self.shape.group());
        // Logits and scores of each head, and past the context its keys.
        let floats = MOST_QUERIES + 2 + if self.past_context() { 4 * d } else { 0 };
        memory::claim(
            &Device::Cpu,
            u64::from(old) * (self.shape.kv_heads * floats * size_of::<f32>()) as u64,
            Site::Scores,
        )?;
        let positions = store.layers[i].positions();
        let candidates = positions.partition_point(|&p| p < ask);
        let Protection { sinks, recent } =
            self.policy().protection(budget, self.options.sinks, self.options.recent_at(budget));
        let pinned = pinned_in(&self.pinned);
        let newest = policy::newest(budget).min(recent);
        let protected = |p: u32| pinned(p) || p < sinks || p >= n.saturating_sub(newest);
        let scores = |(head, slots): (usize, &Slots)| -> Result<Vec<f32>> {
            let (rows, at) = asking.unlike(head, group, MOST_QUERIES);
            let visible: Vec<usize> = at.iter().map(|&q| positions.partition_point(|&p| p <= q)).collect();
            let see = |row: usize| visible[row];
            let scores = match self.past_context() {
                false => probe(&rows, &store.keys(i, head, &positions), d, see, Reduce::Max),
                true => {
                    let turned = self.turned(i, head, &positions, slots)?;
                    let slices = Slices::F32(&turned);
                    probe(&rows, &HeadKeys { slices, base: 0, len: positions.len(), head_dim: d }, d, see, Reduce::Max)
                }
            };
            Ok(max_pool(&scores[..candidates], &positions[..candidates], REACH))
        };
        let scores: Vec<Vec<f32>> = layer.heads.par_iter().enumerate().map(scores).collect::<Result<_>>()?;
        self.asked.resize(ask as usize, 0.0);
        for (c, &p) in positions[..candidates].iter().enumerate() {
            let most = scores.iter().map(|of_head| of_head[c]).fold(0.0, f32::max);
            let asked = &mut self.asked[p as usize];
            *asked += (most - *asked) * FOLLOW;
        }
        let of_head = |(head, slots): (usize, &Slots)| -> Vec<u32> {
            let scores: Vec<f32> =
                scores[head].iter().zip(&positions).map(|(score, &p)| score + self.asked[p as usize]).collect();
            let taken = slots.positions.iter().filter(|&&p| protected(p)).count();
            let room = (budget as usize).saturating_sub(taken);
            let most = ((f64::from(budget) * f64::from(self.options.recall_share)) as usize).min(room);
            let mut order: Vec<usize> = (0..candidates).filter(|&c| !protected(positions[c])).collect();
            if order.len() > most {
                order.select_nth_unstable_by(most, |&a, &b| scores[b].total_cmp(&scores[a]).then(a.cmp(&b)));
                order.truncate(most);
            }
            let mut best: Vec<u32> = order.into_iter().map(|c| positions[c]).collect();
            best.sort_unstable();
            best
        };
        self.recalled[i] = layer.heads.par_iter().enumerate().map(of_head).collect();
        self.recall_time += started.elapsed();
        Ok(())
    }

    /// Brings what was chosen and is not hot into one layer that `n` tokens have been through, in place of the
    /// lowest heavy hitters.
    pub(super) fn bring_back(&mut self, i: usize, n: u32) -> Result<()> {
        let started = Instant::now();
        let Some(store) = &self.store else { return Ok(()) };
        let stored = &store.layers[i];
        let missing: Vec<Vec<u32>> = (self.layers[i].heads.iter().zip(&self.recalled[i]))
            .map(|(slots, recalled)| {
                // A smaller budget may have evicted some since, and the limit of the store have taken them after that.
                let away = |&p: &u32| stored.holds(p) && slots.positions.binary_search(&p).is_err();
                recalled.iter().copied().filter(away).collect()
            })
            .collect();
        if missing.iter().any(|positions| !positions.is_empty()) {
            self.take_in(i, n, &missing)?;
        }
        self.recall_time += started.elapsed();
        Ok(())
    }

    /// Brings what is pinned and only in the store back into every layer.
    pub(super) fn bring_back_pinned(&mut self) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        let n = self.n_seen;
        let missing_of = |(i, layer): (usize, &HotLayer)| -> Vec<Vec<u32>> {
            let stored = &store.layers[i];
            let away = |slots: &Slots| {
                let pins = self.pins.iter().flat_map(|range| range.start..range.end.min(n));
                pins.filter(|&p| stored.holds(p) && slots.positions.binary_search(&p).is_err()).collect()
            };
            layer.heads.iter().map(away).collect()
        };
        let missing: Vec<Vec<Vec<u32>>> = self.layers.iter().enumerate().map(missing_of).collect();
        for (i, missing) in missing.iter().enumerate() {
            if missing.iter().any(|positions| !positions.is_empty()) {
                self.take_in(i, n, missing)?;
            }
        }
        Ok(())
    }

    /// Fills one layer with the best of what is hot and in the store before position `n`; the rest goes.
    pub(super) fn refill(&mut self, i: usize, n: u32) -> Result<()> {
        let stored = self.store.as_ref().map(|store| store.layers[i].positions()).unwrap_or_default();
        let missing: Vec<Vec<u32>> = (self.layers[i].heads.iter())
            .map(|slots| {
                let before = stored.iter().copied().take_while(|&p| p < n);
                before.filter(|p| slots.positions.binary_search(p).is_err()).collect()
            })
            .collect();
        self.take_in(i, n, &missing)
    }

    /// Drops the entries of one layer from position `n` on, and takes nothing in.
    pub(super) fn drop_from(&mut self, i: usize, n: u32) -> Result<()> {
        self.take_in(i, n, &vec![Vec::new(); self.shape.kv_heads])
    }

    /// Of the hot entries before position `n` and `missing` ones of the store, keeps the best within the budget.
    fn take_in(&mut self, i: usize, n: u32, missing: &[Vec<u32>]) -> Result<()> {
        let kv = self.options.kv;
        self.layers[i].fetch_scores()?;
        let plan = &*self.plan.decode;
        let policy: &dyn Policy = if plan.keeps_all() { &H2o } else { plan };
        let heads = &self.layers[i].heads;
        let whole = heads.iter().zip(missing).map(|(slots, missing)| slots.before(n) + missing.len()).min();
        let mut budget = whole.unwrap_or(0) as u32;
        if !plan.keeps_all() {
            budget = budget.min(self.layer_budget(i));
        }
        let past_context = self.past_context();
        if past_context {
            // Each entry needs an angle of its own.
            budget = budget.min(self.angle);
        }
        let pinned = pinned_in(&self.pinned);
        let (mut kept, mut picks, mut fetched) = (Vec::new(), Vec::new(), Vec::new());
        let mut only_drops = true;
        for (head, (slots, missing)) in heads.iter().zip(missing).enumerate() {
            let back = match &self.store {
                Some(store) => store.recall(i, head, missing, n),
                None => Slots::default(),
            };
            // Hot slots and those that may come back, in order of position.
            let (mut all, mut from) = (Slots::default(), Vec::new());
            let (mut a, mut b) = (0, 0);
            let end = slots.before(n);
            while a < end || b < back.len() {
                if b == back.len() || (a < end && slots.positions[a] < back.positions[b]) {
                    all.push(slots, a);
                    from.push((false, a));
                    a += 1;
                } else {
                    all.push(&back, b);
                    from.push((true, b));
                    b += 1;
                }
            }
            let entries = Entries {
                positions: &all.positions,
                scores: &all.scores,
                missed: &all.missed,
                observed: None,
                n_seen: n,
            };
            let claims = Claims { pinned: &pinned, recalled: &self.recalled[i][head] };
            let chosen = policy::keep(policy, &entries, budget, &self.options, &claims);
            let (mut new, mut pick, mut fetch) = (Slots::default(), Vec::new(), Vec::new());
            for c in chosen {
                new.push(&all, c as usize);
                match from[c as usize] {
                    (false, slot) => pick.push(slot as u32),
                    (true, slot) => {
                        pick.push((slots.len() + fetch.len()) as u32);
                        fetch.push(back.positions[slot]);
                        only_drops = false;
                    }
                }
            }
            kept.push(new);
            picks.push(pick);
            fetched.push(fetch);
        }
        if only_drops {
            let unchanged = picks.iter().zip(heads).all(|(pick, slots)| pick.len() == slots.len());
            if !unchanged {
                drop_entries(&mut self.layers[i], i, &mut self.ledger, self.store.as_mut(), &picks, n)?;
            }
        } else if let Some(store) = &mut self.store {
            let layer = &mut self.layers[i];
            if past_context {
                layer.claim_rotation(kept[0].len())?;
            }
            let device = layer.k.device().clone();
            let (k, v) = store.rows(i, &fetched, kv, &device)?;
            let before = layer.heads.clone();
            layer.assemble((&k, &v), &picks, kept)?;
            for (head, (slots, kept)) in before.iter().zip(&layer.heads).enumerate() {
                let gone: Vec<usize> = (0..slots.len())
                    .filter(|&slot| kept.positions.binary_search(&slots.positions[slot]).is_err())
                    .collect();
                self.ledger.remove(gone.iter().map(|&slot| slots.positions[slot]));
                store.note(i, head, slots, gone.into_iter(), n);
            }
            self.ledger.restore(fetched.into_iter().flatten());
            if past_context {
                layer.rotate_to(self.angle, &self.rope)?;
            }
        }
        Ok(())
    }

    /// The store's keys of a head, each rotated for where it would stand among the hot ones: past the trained
    /// context, `[positions, head_dim]`.
    fn turned(&self, i: usize, head: usize, positions: &[u32], slots: &Slots) -> Result<Vec<f32>> {
        let Some(store) = &self.store else { return Ok(Vec::new()) };
        let d = self.shape.head_dim;
        let mut keys = vec![0f32; positions.len() * d];
        crate::attention::probe::Keys::widen(&store.keys(i, head, positions), 0, &mut keys);
        let turns: Vec<i64> = positions
            .iter()
            .map(|&p| {
                let slot = slots.before(p).min(slots.len().saturating_sub(1));
                let to = slots.angles.get(slot).copied().unwrap_or(0);
                i64::from(to) - i64::from(store.angles[p as usize])
            })
            .collect();
        let keys = Tensor::from_vec(keys, (1, positions.len(), d), &Device::Cpu)?;
        Ok(self.rope.turn(&keys, &turns)?.flatten_all()?.to_vec1()?)
    }
}

/// Passages of `recalled` (by layer and KV head): neighbouring positions that many heads agree on, the most agreed
/// first.
pub(super) fn passages(recalled: &[Vec<Vec<u32>>]) -> Vec<Recalled> {
    let mut positions: Vec<u32> = recalled.iter().flatten().flatten().copied().collect();
    positions.sort_unstable();
    let runs: Vec<&[u32]> = positions.chunk_by(|a, b| a == b).collect();
    let most = runs.iter().map(|run| run.len()).max().unwrap_or(0);
    let mut passages: Vec<Recalled> = Vec::new();
    for run in runs.iter().filter(|run| run.len() * AGREED >= most) {
        let (position, entries) = (run[0], run.len() as u32);
        match passages.last_mut() {
            Some(last) if position < last.end + JOIN => {
                last.end = position + 1;
                last.entries += entries;
            }
            _ => passages.push(Recalled { start: position, end: position + 1, entries }),
        }
    }
    let density = |p: &Recalled| f64::from(p.entries) / f64::from(p.end - p.start);
    passages.sort_by(|a, b| density(b).total_cmp(&density(a)).then(a.start.cmp(&b.start)));
    passages.truncate(MOST_PASSAGES);
    passages
}
