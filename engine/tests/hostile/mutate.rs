//! Changes to honest input that readers are known to trip over.

use std::time::{Duration, Instant};

/// Numbers that are too large, too small, or at the edge.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    7,
    31,
    33,
    255,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// Words of chat templates, whole and broken.
pub const WORDS: [&str; 30] = [
    "{% for i in range(99999) %}",
    "{% for m in messages %}",
    "{% endfor %}",
    "{% if true %}",
    "{% else %}",
    "{% endif %}",
    "{% set ns.n = ns.n ~ ns.n %}",
    "{% set x = x ~ x %}",
    "{% macro f(a) %}{{ f(a) }}{% endmacro %}{{ f(1) }}",
    "{{ f(f) }}",
    "{{ 'a' * 999999999 }}",
    "{{ [0] * 999999999 }}",
    "{{ messages | tojson(indent=9999999) }}",
    "{{ messages[-1].content[::-1] }}",
    "{{ messages[0]['content'].split('')}}",
    "{{ raise_exception('no') }}",
    "{{ strftime_now('%Q%9999999Y%') }}",
    "{% include '/etc/passwd' %}",
    "{% import '../x' as y %}",
    "{{ 9223372036854775807 * 9223372036854775807 }}",
    "{{ 1 // 0 }}",
    "{{ 2 ** 9999 }}",
    "{{ messages | map(attribute='content') | join('x' * 9999) }}",
    "{% generation %}",
    "{% endgeneration %}",
    "{%- set a = namespace(a=namespace()) -%}{% set a.a = a %}{{ a }}",
    "{{ content | indent(999999999) }}",
    "\u{100000}\u{2001}\u{10fffd}",
    "{{ '%s' % messages }}",
    "{{ ('(' * 500) ~ '{' * 500 }}",
];

/// A small generator, so that a failure can be had again from its seed.
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.next() % n as u64) as usize }
    }
}

/// The runs of a search: the same ones on every machine, or as many as `CISTERN_FUZZ_SECONDS` allows;
/// `CISTERN_FUZZ_SEED` looks elsewhere.
pub struct Search {
    seed: u64,
    count: u64,
    time: Option<Duration>,
    started: Instant,
    pub runs: u64,
}

impl Search {
    pub fn new(count: u64) -> Self {
        fn asked<T: std::str::FromStr>(name: &str) -> Option<T> {
            std::env::var(name).ok().and_then(|text| text.parse().ok())
        }
        Self {
            seed: asked("CISTERN_FUZZ_SEED").unwrap_or(1),
            count,
            time: asked("CISTERN_FUZZ_SECONDS").map(Duration::from_secs_f64),
            started: Instant::now(),
            runs: 0,
        }
    }

    pub fn took(&self) -> Duration {
        self.started.elapsed()
    }
}

/// What a run is called, and its chance.
impl Iterator for Search {
    type Item = (String, Chance);

    fn next(&mut self) -> Option<Self::Item> {
        let goes_on = self.time.map_or(self.runs < self.count, |time| self.took() < time);
        goes_on.then(|| {
            let run = (
                format!("run {} of seed {}", self.runs, self.seed),
                Chance::new(self.seed.wrapping_mul(1 << 32).wrapping_add(self.runs)),
            );
            self.runs += 1;
            run
        })
    }
}

/// Changes `bytes` in a few places, more often near the beginning, where headers lie.
pub fn bytes(bytes: &mut Vec<u8>, chance: &mut Chance) {
    for _ in 0..=chance.below(6) {
        if bytes.is_empty() {
            return;
        }
        let reach = if chance.below(4) == 0 { bytes.len() } else { bytes.len().min(6_000) };
        let at = chance.below(reach);
        match chance.below(8) {
            0 => bytes[at] ^= 1 << chance.below(8),
            1 => bytes[at] = chance.next() as u8,
            2 => write(bytes, at, &(EDGES[chance.below(EDGES.len())] as u32).to_le_bytes()),
            3 => write(bytes, at, &EDGES[chance.below(EDGES.len())].to_le_bytes()),
            4 => {
                let end = (at + 1 + chance.below(40)).min(bytes.len());
                bytes.drain(at..end);
            }
            5 => {
                let end = (at + 1 + chance.below(200)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                bytes.splice(at..at, copy);
            }
            // Digits of a number in JSON.
            6 => digits(bytes, at, chance),
            _ => {
                if chance.below(12) == 0 {
                    bytes.truncate(at);
                }
            }
        }
    }
}

fn write(bytes: &mut [u8], at: usize, value: &[u8]) {
    for (byte, value) in bytes[at..].iter_mut().zip(value) {
        *byte = *value;
    }
}

fn digits(bytes: &mut [u8], at: usize, chance: &mut Chance) {
    if let Some(digit) = bytes[at..].iter().position(u8::is_ascii_digit) {
        for byte in bytes[at + digit..].iter_mut().take_while(|byte| byte.is_ascii_digit()) {
            *byte = b'0' + (chance.next() % 10) as u8;
        }
    }
}

/// Changes a template, by words or by letters.
pub fn template(text: &mut String, chance: &mut Chance) {
    for _ in 0..=chance.below(4) {
        let at = text.char_indices().nth(chance.below(text.chars().count())).map_or(0, |(at, _)| at);
        match chance.below(4) {
            0 => text.truncate(at),
            1 => {
                text.remove(at.min(text.len().saturating_sub(1)));
            }
            _ => text.insert_str(at, WORDS[chance.below(WORDS.len())]),
        }
        if text.is_empty() {
            text.push_str(WORDS[chance.below(WORDS.len())]);
        }
    }
}
