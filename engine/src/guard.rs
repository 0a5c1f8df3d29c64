//! Watches an answer while it is written. Where its tokens would attend to much that is only in the store, it is brought
//! back; where that is not enough and the budget is automatic, the budget grows.
//!
//! When to look costs nothing to tell: at the beginning, now and then, and at once where the model becomes unsure or
//! begins to repeat itself. What decides is the attention that is missed (see [`Cache::take_missed`](crate::cache::Cache::take_missed)).

/// Tokens of an answer after which it is looked at first.
const FIRST: u32 = 2;

/// And from there on.
const EVERY: u32 = 16;

/// After a recall, the answer is left alone for so many tokens.
const REST: u32 = 8;

/// Most recalls in a row that may change nothing.
const IN_VAIN: u32 = 2;

/// The share of attention that may be missed. At a budget of 5%, Qwen2.5 0.5B misses 0.36 to 0.57 where it is asked for
/// what was said long ago; with what comes back for it, 17 of 22 answers are right in place of 10 (`eval turns`, 1,500
/// tokens, two seeds).
const LIMIT: f32 = 0.3;

/// An entropy this many times its mean is unsure.
const UNSURE: f32 = 2.0;

/// Longest loop that is noticed, in tokens, and how often it must come.
const LOOP: usize = 24;
const ROUNDS: usize = 3;

/// What is to be done for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Nothing.
    Nothing,
    /// Bring back what the last tokens attend to.
    Recall,
    /// Raise the budget: what was brought back did not help.
    Raise,
}

/// One answer's guard.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    tokens: u32,
    /// No look before this token.
    rest: u32,
    in_vain: u32,
    /// Mean entropy so far, in nats.
    entropy: f32,
}

impl Guard {
    /// Whether the next token is to be looked at, after `said` has grown by one that was drawn from `logits`.
    pub fn saw(&mut self, logits: &[f32], said: &[u32]) -> bool {
        self.tokens += 1;
        let entropy = entropy(logits);
        let unsure = self.tokens > FIRST && entropy > UNSURE * self.entropy.max(0.5);
        self.entropy += (entropy - self.entropy) / self.tokens as f32;
        if self.tokens < self.rest {
            return false;
        }
        self.tokens == FIRST || self.tokens.is_multiple_of(EVERY) || unsure || loops(said)
    }

    /// What is to be done where a token missed this share of its attention.
    pub fn judge(&mut self, missed: f32) -> Measure {
        if missed < LIMIT {
            self.in_vain = 0;
            return Measure::Nothing;
        }
        self.rest = self.tokens + REST;
        self.in_vain += 1;
        match self.in_vain > IN_VAIN {
            true => Measure::Raise,
            false => Measure::Recall,
        }
    }
}

/// Of the distribution that `logits` stand for, in nats.
fn entropy(logits: &[f32]) -> f32 {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let (mut sum, mut weighted) = (0f32, 0f32);
    for x in logits.iter().map(|x| x - max).filter(|&x| x > -30.0) {
        let e = x.exp();
        sum += e;
        weighted += e * x;
    }
    sum.ln() - weighted / sum
}

/// Whether the end says the same tokens over and over.
fn loops(said: &[u32]) -> bool {
    (1..=LOOP).any(|period| {
        let n = period * ROUNDS;
        said.len() >= n && n >= 6 && said[said.len() - n..].windows(period + 1).all(|w| w[0] == w[period])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropy_is_that_of_the_distribution() {
        assert!((entropy(&[1.0; 8]) - 8f32.ln()).abs() < 1e-6);
        // 0.9 ln(1/0.9) + 0.1 ln(1/0.1)
        assert!((entropy(&[0.9f32.ln(), 0.1f32.ln()]) - 0.325_083).abs() < 1e-5);
        assert!(entropy(&[50.0, 0.0, 0.0]) < 1e-6);
    }

    #[test]
    fn a_loop_is_one_that_comes_three_times() {
        let text = [4, 5, 6, 7, 1, 2, 3];
        assert!(!loops(&text));
        assert!(!loops(&[text.as_slice(), &[1, 2, 3]].concat()));
        assert!(loops(&[text.as_slice(), &[1, 2, 3, 1, 2, 3]].concat()));
        assert!(loops(&[9; 6]) && !loops(&[9; 5]));
    }

    #[test]
    fn looks_come_at_the_start_and_now_and_then_and_when_the_model_is_unsure() {
        let (sure, unsure) = (vec![20.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], vec![0.0; 8]);
        let mut guard = Guard::default();
        let mut looks = Vec::new();
        for token in 1..=40u32 {
            if guard.saw(if token == 21 { &unsure } else { &sure }, &(0..token).collect::<Vec<_>>()) {
                looks.push(token);
            }
        }
        assert_eq!(looks, [2, 16, 21, 32]);
    }

    #[test]
    fn what_is_missed_is_brought_back_and_where_that_does_not_help_the_budget_grows() {
        let much = 0.6;
        let mut guard = Guard::default();
        assert_eq!(guard.judge(0.1), Measure::Nothing);
        assert_eq!(
            [guard.judge(much), guard.judge(much), guard.judge(much)],
            [Measure::Recall, Measure::Recall, Measure::Raise]
        );
        assert_eq!(guard.judge(0.0), Measure::Nothing);
        assert_eq!(guard.judge(much), Measure::Recall);
    }
}
