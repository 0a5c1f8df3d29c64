use proptest::prelude::*;

use super::*;

const EVICTING: [PolicyName; 3] = [PolicyName::Window, PolicyName::H2o, PolicyName::H2oPaper];

fn options(sinks: u32, recent: Option<u32>) -> CacheOptions {
    CacheOptions { sinks, recent, ..CacheOptions::default() }
}

fn kept(name: PolicyName, positions: &[u32], scores: &[f32], budget: u32, options: &CacheOptions) -> Vec<u32> {
    let entries = Entries { positions, scores, n_seen: positions.last().unwrap() + 1 };
    let slots = keep(&*by_name(name), &entries, budget, options, &|_| false);
    slots.iter().map(|&slot| positions[slot as usize]).collect()
}

/// 40 entries; position 10 has much attention over a long life, position 20 little less over a shorter one.
fn story() -> (Vec<u32>, Vec<f32>) {
    let positions: Vec<u32> = (0..40).collect();
    let mut scores = vec![0.1; 40];
    scores[10] = 3.0;
    scores[20] = 2.9;
    (positions, scores)
}

#[test]
fn window_keeps_sinks_and_the_most_recent() {
    let (positions, scores) = story();
    let want: Vec<u32> = (0..4).chain(24..40).collect();
    assert_eq!(kept(PolicyName::Window, &positions, &scores, 20, &options(4, None)), want);
}

#[test]
fn h2o_judges_by_mean_attention_and_the_paper_by_its_sum() {
    let (positions, scores) = story();
    // Room for one heavy hitter beside 4 sinks and 16 recent: 3.0 / 30 < 2.9 / 20.
    let h2o: Vec<u32> = (0..4).chain([20]).chain(24..40).collect();
    assert_eq!(kept(PolicyName::H2o, &positions, &scores, 21, &options(4, Some(16))), h2o);
    // 5 beside 16 recent, without sinks: the sum puts 10 before 20; ties keep the older.
    let paper: Vec<u32> = [0, 1, 2, 10, 20].into_iter().chain(24..40).collect();
    assert_eq!(kept(PolicyName::H2oPaper, &positions, &scores, 21, &options(4, Some(16))), paper);
}

#[test]
fn veloxquant_141_sixteen_recent_stay_whatever_is_set() {
    let (positions, scores) = story();
    for name in EVICTING {
        let kept = kept(name, &positions, &scores, 24, &options(4, Some(1)));
        assert!((24..40).all(|p| kept.contains(&p)), "{name:?} kept {kept:?}");
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
    ) {
        let positions: Vec<u32> = gaps.iter().scan(0, |p, gap| { *p += gap; Some(*p - 1) }).collect();
        let scores: Vec<f32> = positions.iter().map(|&p| (((u64::from(p) * 2_654_435_761) ^ seed) % 7) as f32).collect();
        let n_seen = positions.last().unwrap() + 1;
        let entries = Entries { positions: &positions, scores: &scores, n_seen };
        let options = options(sinks, recent);
        let pinned = |p: u32| p % 29 < pins / 3 && p < 60;
        for name in EVICTING {
            let policy = by_name(name);
            let slots = keep(&*policy, &entries, budget, &options, &pinned);
            prop_assert_eq!(slots.len(), positions.len().min(budget as usize));
            prop_assert!(slots.is_sorted());
            prop_assert_eq!(&slots, &keep(&*policy, &entries, budget, &options, &pinned));
            let kept: Vec<u32> = slots.iter().map(|&s| positions[s as usize]).collect();
            let protection = policy.protection(budget, sinks, recent);
            let must = |p: u32| pinned(p) || p < protection.sinks || p + protection.recent >= n_seen;
            if positions.iter().filter(|&&p| must(p)).count() <= budget as usize {
                for &p in positions.iter().filter(|&&p| must(p)) {
                    prop_assert!(kept.contains(&p), "{:?} lost {}", name, p);
                }
            }
            // Of two unprotected entries with one rank, the older one stays.
            for (slot, &p) in positions.iter().enumerate().filter(|(_, p)| !must(**p)) {
                if !kept.contains(&p) {
                    for (later, &q) in positions.iter().enumerate().skip(slot + 1).filter(|(_, q)| !must(**q)) {
                        let tie = policy.rank(&entries, slot) == policy.rank(&entries, later);
                        prop_assert!(!(tie && kept.contains(&q)), "{:?} kept {} before {}", name, q, p);
                    }
                }
            }
        }
    }
}
