use proptest::prelude::*;
use serde::Deserialize;

use super::expected::{Moments, Rotation};
use super::*;
use crate::attention::Slices;
use crate::attention::probe::{HeadKeys, Reduce, probe};
use crate::protocol::Preset;

const EVICTING: [PolicyName; 9] = [
    PolicyName::Window,
    PolicyName::H2o,
    PolicyName::H2oPaper,
    PolicyName::Tova,
    PolicyName::SnapKv,
    PolicyName::PyramidKv,
    PolicyName::Expected,
    PolicyName::KvZip,
    PolicyName::Random,
];

/// What `scripts/goldens/policies.py` computed in numpy.
#[derive(Deserialize)]
struct Golden {
    keep: Vec<Keep>,
    votes: Vec<Votes>,
    expected: Vec<ExpectedCase>,
    pyramid: Vec<Pyramid>,
}

#[derive(Deserialize)]
struct Keep {
    policy: PolicyName,
    phase: String,
    positions: Vec<u32>,
    scores: Vec<f32>,
    missed: Vec<u32>,
    observed: Option<Vec<Option<f32>>>,
    n_seen: u32,
    budget: u32,
    sinks: u32,
    recent: Option<u32>,
    pinned: Vec<u32>,
    recalled: Vec<u32>,
    kept: Vec<u32>,
}

#[derive(Deserialize)]
struct Votes {
    group: usize,
    w: usize,
    d: usize,
    q: Vec<f32>,
    k: Vec<f32>,
    sum: Vec<f32>,
    max: Vec<f32>,
}

#[derive(Deserialize)]
struct ExpectedCase {
    interleaved: bool,
    d: usize,
    group: usize,
    seen: u32,
    frequencies: Vec<f64>,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    scores: Vec<f32>,
}

#[derive(Deserialize)]
struct Pyramid {
    budget: u32,
    layers: Vec<u32>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../../../tests/golden/policies.json")).unwrap()
}

fn options(sinks: u32, recent: Option<u32>) -> CacheOptions {
    CacheOptions { sinks, recent, ..CacheOptions::default() }
}

#[test]
fn every_policy_keeps_what_numpy_keeps() {
    for (i, case) in golden().keep.into_iter().enumerate() {
        let plan = Plan::by_name(case.policy);
        let policy = if case.phase == "prompt" { &plan.prompt } else { &plan.decode };
        let observed: Option<Vec<f32>> =
            case.observed.map(|observed| observed.into_iter().map(|x| x.unwrap_or(f32::NAN)).collect());
        let entries = Entries {
            positions: &case.positions,
            scores: &case.scores,
            missed: &case.missed,
            observed: observed.as_deref(),
            n_seen: case.n_seen,
        };
        let claims = Claims { pinned: &|p| case.pinned.contains(&p), recalled: &case.recalled };
        let slots = keep(&**policy, &entries, case.budget, &options(case.sinks, case.recent), &claims);
        let kept: Vec<u32> = slots.iter().map(|&slot| case.positions[slot as usize]).collect();
        assert_eq!(kept, case.kept, "case {i}: {:?}, {}", case.policy, case.phase);
    }
}

#[test]
fn votes_of_the_last_queries_equal_numpys() {
    for case in golden().votes {
        let n = case.k.len() / case.d;
        let keys = HeadKeys { slices: Slices::F32(&case.k), base: 0, len: n, head_dim: case.d };
        assert_eq!(case.q.len(), case.group * case.w * case.d);
        for (reduce, want) in [(Reduce::Sum, &case.sum), (Reduce::Max, &case.max)] {
            let got = probe(&case.q, &keys, case.d, |row| n - case.w + row % case.w + 1, reduce);
            for (got, want) in got.iter().zip(want) {
                assert!((got - want).abs() < 1e-5, "{reduce:?}: {got} is not {want}");
            }
        }
    }
}

#[test]
fn expected_attention_equals_numpys() {
    for case in golden().expected {
        let group: Vec<Moments> = case
            .q
            .chunks_exact(case.q.len() / case.group)
            .map(|q| {
                let mut moments = Moments::default();
                moments.add(q, case.d);
                moments
            })
            .collect();
        let turns: Vec<(f32, f32)> = case
            .frequencies
            .iter()
            .map(|f| {
                let mean = |g: fn(f64) -> f64| {
                    (case.seen..case.seen + expected::FUTURE).map(|t| g(f64::from(t) * f)).sum::<f64>()
                        / f64::from(expected::FUTURE)
                };
                (mean(f64::cos) as f32, mean(f64::sin) as f32)
            })
            .collect();
        let rotation = Rotation { turns: &turns, interleaved: case.interleaved };
        let rows = |x| HeadKeys { slices: Slices::F32(x), base: 0, len: case.scores.len(), head_dim: case.d };
        let got = expected::scores(&rows(&case.k), &rows(&case.v), case.d, &group, &rotation);
        for (got, want) in got.iter().zip(&case.scores) {
            assert!((got - want).abs() < 1e-4 * want.max(0.1), "{got} is not {want}");
        }
    }
}

#[test]
fn the_pyramid_has_numpys_layers_and_the_budget_on_average() {
    for case in golden().pyramid {
        let layers = case.layers.len();
        let got: Vec<u32> = (0..layers).map(|i| PyramidKv.layer_budget(case.budget, i, layers)).collect();
        assert_eq!(got, case.layers);
        let mean = f64::from(got.iter().sum::<u32>()) / layers as f64;
        assert!((mean - f64::from(case.budget)).abs() <= 1.0, "{mean} on average for {}", case.budget);
    }
}

#[test]
fn veloxquant_141_sixteen_recent_stay_whatever_is_set() {
    let positions: Vec<u32> = (0..40).collect();
    let scores = vec![0.1; 40];
    for name in EVICTING {
        let plan = Plan::by_name(name);
        for policy in [&plan.prompt, &plan.decode] {
            let entries =
                Entries { positions: &positions, scores: &scores, missed: &[0; 40], observed: None, n_seen: 40 };
            let claims = Claims { pinned: &|_| false, recalled: &[] };
            let slots = keep(&**policy, &entries, 24, &options(4, Some(1)), &claims);
            assert!((24..40).all(|p| slots.contains(&p)), "{name:?} kept {slots:?}");
        }
    }
}

proptest! {
    #[test]
    fn every_policy_stays_in_budget_and_keeps_what_is_protected(
        gaps in prop::collection::vec(1u32..4, 1..300),
        seed: u64,
        budget in MIN_BUDGET..200,
        sinks in 0u32..8,
        recent in prop::option::of(0u32..40),
        pins in 0u32..10,
        observe: bool,
    ) {
        let positions: Vec<u32> = gaps.iter().scan(0, |p, gap| { *p += gap; Some(*p - 1) }).collect();
        let number = |p: u32| ((u64::from(p) * 2_654_435_761) ^ seed) % 7;
        let scores: Vec<f32> = positions.iter().map(|&p| number(p) as f32).collect();
        let missed: Vec<u32> = positions.iter().map(|&p| number(p + 1) as u32).collect();
        let observed: Vec<f32> = positions.iter().map(|&p| number(p + 2) as f32).collect();
        let n_seen = positions.last().unwrap() + 1;
        let entries = Entries {
            positions: &positions, scores: &scores, missed: &missed, observed: observe.then_some(&observed), n_seen,
        };
        let options = options(sinks, recent);
        let pinned = |p: u32| p % 29 < pins / 3 && p < 60;
        let recalled: Vec<u32> = positions.iter().copied().filter(|p| p % 31 == 5).take(6).collect();
        let claims = Claims { pinned: &pinned, recalled: &recalled };
        for name in EVICTING {
            let plan = Plan::by_name(name);
            for policy in [&*plan.prompt, &*plan.decode] {
                let slots = keep(policy, &entries, budget, &options, &claims);
                prop_assert_eq!(slots.len(), positions.len().min(budget as usize));
                prop_assert!(slots.is_sorted());
                prop_assert_eq!(&slots, &keep(policy, &entries, budget, &options, &claims));
                let kept: Vec<u32> = slots.iter().map(|&s| positions[s as usize]).collect();
                let protection = policy.protection(budget, sinks, recent);
                let before = |p: u32, recent: u32| pinned(p) || p < protection.sinks || p + recent >= n_seen;
                let must = |p: u32| before(p, newest(budget).min(protection.recent));
                let recalled = |p: u32| must(p) || recalled.contains(&p);
                let claimed = |p: u32| recalled(p) || before(p, protection.recent);
                let claims: [(_, &dyn Fn(u32) -> bool); 3] =
                    [("protected", &must), ("recalled", &recalled), ("recent", &claimed)];
                for (what, claim) in claims {
                    if positions.iter().filter(|&&p| claim(p)).count() <= budget as usize {
                        for &p in positions.iter().filter(|&&p| claim(p)) {
                            prop_assert!(kept.contains(&p), "{:?} lost {}, which is {}", name, p, what);
                        }
                    }
                }
                // Of two unclaimed entries with one rank, the older one stays.
                let ranks = policy.ranks(&entries);
                for (slot, &p) in positions.iter().enumerate().filter(|(_, p)| !claimed(**p)) {
                    if !kept.contains(&p) {
                        for (later, &q) in positions.iter().enumerate().skip(slot + 1).filter(|(_, q)| !claimed(**q)) {
                            let tie = ranks[slot] == ranks[later];
                            prop_assert!(!(tie && kept.contains(&q)), "{:?} kept {} before {}", name, q, p);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn a_recent_share_protects_as_much_as_the_tokens_that_it_stands_for() {
    let n = 400;
    let entries = Entries {
        positions: &(0..n).collect::<Vec<_>>(),
        scores: &(0..n).map(|p| (n - p) as f32).collect::<Vec<_>>(),
        missed: &vec![0; n as usize],
        observed: None,
        n_seen: n,
    };
    let kept =
        |options: &CacheOptions| keep(&H2o, &entries, 100, options, &Claims { pinned: &|_| false, recalled: &[] });
    let code = Preset::Code.options();
    assert_eq!(kept(&code), kept(&CacheOptions { recent: Some(75), recent_share: None, ..code.clone() }));
    assert!(kept(&code).iter().filter(|&&slot| slot >= n - 75).count() == 75);
    assert_ne!(kept(&code), kept(&Preset::Conversation.options()));
}
