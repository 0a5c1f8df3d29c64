//! The CPU kernel. Entries are read where they lie (f16, f32 or q8_0), sums are f32, GQA is never expanded.
//!
//! Softmax takes two passes, because a column sum needs a row's final normaliser. Rows are processed in
//! blocks, so that the scores of a block stay under [`BLOCK_BYTES`] whatever the prompt's length.

use half::f16;
use half::slice::HalfFloatSliceExt;
use rayon::prelude::*;

use crate::math::{Shared, exp, gemm_f32};
use crate::simd::Floats;

/// Cap on the attention scores that one task holds, in bytes.
const BLOCK_BYTES: usize = 4 << 20;

/// Most queries of a block.
const BLOCK_QUERIES: usize = 64;

/// Entries that are widened to f32 at once where many are read one after another.
pub(crate) const TILE: usize = 512;

/// Up to here, queries are so few that dot products beat a GEMM.
const FEW_QUERIES: usize = 4;

/// Entries of one task of a few queries: enough for the tasks to be worth their while, few enough for all threads to
/// have some.
const SPAN: usize = 256;

/// Keys or values as they lie in host memory, rows of `head_dim` one after another.
#[derive(Debug, Clone, Copy)]
pub enum Slices<'a> {
    /// Half precision.
    F16(&'a [f16]),
    /// Single precision.
    F32(&'a [f32]),
    /// Numbers with 128 added, and a scale for every 32 of them.
    Q8(&'a [u8], &'a [f16]),
}

impl Slices<'_> {
    /// Widens numbers from `start` on, for q8_0 a multiple of 32 of them.
    pub fn widen(&self, start: usize, out: &mut [f32]) {
        match self {
            Self::F16(rows) => rows[start..start + out.len()].convert_to_f32_slice(out),
            Self::F32(rows) => out.copy_from_slice(&rows[start..start + out.len()]),
            Self::Q8(q, scales) => {
                let blocks = q[start..].chunks_exact(32).zip(&scales[start / 32..]);
                for (out, (q, scale)) in out.chunks_exact_mut(32).zip(blocks) {
                    let scale = scale.to_f32();
                    for (out, &q) in out.iter_mut().zip(q) {
                        *out = f32::from(i16::from(q) - 128) * scale;
                    }
                }
            }
        }
    }
}

/// Rows of which eight numbers are widened at once, from a multiple of eight on.
trait Eights: Copy {
    fn eight(self, at: usize) -> Floats;
}

/// Eight of `from`, at `at`.
#[inline(always)]
fn chunk<T>(from: &[T], at: usize) -> &[T; 8] {
    &from[at..].as_chunks().0[0]
}

impl Eights for &[f16] {
    #[inline(always)]
    fn eight(self, at: usize) -> Floats {
        Floats::halves(chunk(self, at))
    }
}

impl Eights for &[f32] {
    #[inline(always)]
    fn eight(self, at: usize) -> Floats {
        Floats::load(chunk(self, at))
    }
}

/// As in [`Slices::Q8`].
impl Eights for (&[u8], &[f16]) {
    #[inline(always)]
    fn eight(self, at: usize) -> Floats {
        let scale = Floats::all(&self.1[at / 32].to_f32());
        Floats::bytes(chunk(self.0, at)).and(Floats::all(&-128.0)).times(scale)
    }
}

/// `$work` with the rows as what they are.
macro_rules! by_kind {
    ($slices:expr, $rows:ident => $work:expr) => {
        match $slices {
            Slices::F16($rows) => $work,
            Slices::F32($rows) => $work,
            Slices::Q8(q, scales) => {
                let $rows = (q, scales);
                $work
            }
        }
    };
}

/// `$work` for all of `$n` rows, as many at once as there are, at most eight.
macro_rules! by_rows {
    ($n:expr, $from:ident, $rows:ident => $work:block) => {{
        let mut $from = 0;
        while $from < $n {
            by_rows!(@ $n - $from, $rows => $work, 1, 2, 3, 4, 5, 6, 7);
            $from += ($n - $from).min(8);
        }
    }};
    (@ $n:expr, $rows:ident => $work:block, $($few:literal),*) => {
        match $n {
            $($few => {
                const $rows: usize = $few;
                $work
            })*
            _ => {
                const $rows: usize = 8;
                $work
            }
        }
    };
}

/// One layer's entries.
#[derive(Debug, Clone, Copy)]
pub struct Entries<'a> {
    /// Keys, rotated.
    pub k: Slices<'a>,
    /// Values.
    pub v: Slices<'a>,
    /// Slots that the buffers hold for each KV head.
    pub capacity: usize,
    /// Slots in use.
    pub len: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Position of every used slot of every KV head, ascending.
    pub positions: &'a [&'a [u32]],
}

impl Entries<'_> {
    /// Slots that a query at `position` sees: those whose position is not after its own.
    fn visible(&self, kv_head: usize, position: u32) -> usize {
        self.positions[kv_head].partition_point(|&p| p <= position)
    }
}

/// Attends with `q` `[heads, n, head_dim]`, whose queries stand at `first`, `first + 1`, …; writes
/// `out` `[n, heads * head_dim]` and adds each entry's column sum to `scores[kv_head][slot]`.
pub fn attend(q: &[f32], n: usize, first: u32, entries: &Entries, out: &mut [f32], scores: &mut [Vec<f32>]) {
    let group = q.len() / (n * entries.head_dim) / scores.len();
    if n <= FEW_QUERIES && entries.head_dim.is_multiple_of(8) {
        few_queries(q, n, first, entries, group, out, scores);
    } else {
        many_queries(q, n, first, entries, group, out, scores);
    }
}

/// A span of a KV head's entries, attended to by `rows` queries: softmax and output as if there were no others.
struct Attended {
    /// `[rows, entries of the span]`
    p: Vec<f32>,
    /// The largest logit of each row; minus infinity where it sees none of the span.
    max: Vec<f32>,
    /// The sum of each row of `p`.
    sum: Vec<f32>,
    /// `[rows, d]`
    out: Vec<f32>,
}

/// Decode: one task a span of a KV head's entries, which are widened once for all query heads of the group. What the
/// spans say is put together as flash-decoding does (Dao et al., 2023).
fn few_queries(
    q: &[f32],
    n: usize,
    first: u32,
    entries: &Entries,
    group: usize,
    out: &mut [f32],
    scores: &mut [Vec<f32>],
) {
    let d = entries.head_dim;
    let (rows, width) = (group * n, group * d * scores.len());
    let visible: Vec<usize> = (0..scores.len() * n).map(|i| entries.visible(i / n, first + (i % n) as u32)).collect();
    let spans = visible.iter().max().map_or(1, |most| most.div_ceil(SPAN));
    let attended: Vec<Attended> = (0..scores.len() * spans)
        .into_par_iter()
        .map(|task| {
            let (head, start) = (task / spans, task % spans * SPAN);
            // Queries of the group lie one after another in q.
            let q = &q[head * rows * d..(head + 1) * rows * d];
            let seen: Vec<usize> =
                visible[head * n..(head + 1) * n].iter().map(|v| v.saturating_sub(start).min(SPAN)).collect();
            attend_span(q, head * entries.capacity * d + start * d, &seen, entries)
        })
        .collect();
    for (head, (spans, scores)) in attended.chunks_exact(spans).zip(scores).enumerate() {
        for row in 0..rows {
            let max = spans.iter().fold(f32::NEG_INFINITY, |max, span| max.max(span.max[row]));
            let weight = |span: &Attended| exp(span.max[row] - max);
            let sum: f32 = spans.iter().map(|span| weight(span) * span.sum[row]).sum();
            let at = row % n * width + (head * group + row / n) * d;
            let out = &mut out[at..at + d];
            out.fill(0.0);
            for (span, scores) in spans.iter().zip(scores.chunks_mut(SPAN)) {
                let (len, by) = (span.p.len() / rows, weight(span) / sum);
                add_scaled(out, &span.out[row * d..(row + 1) * d], by);
                add_scaled(&mut scores[..len], &span.p[row * len..(row + 1) * len], by / group as f32);
            }
        }
    }
}

/// `q` is `[rows, d]`, and row `i` sees the first `seen[i % seen.len()]` of the entries that begin at `base`.
fn attend_span(q: &[f32], base: usize, seen: &[usize], entries: &Entries) -> Attended {
    let d = entries.head_dim;
    let (rows, scale) = (q.len() / d, 1.0 / (d as f32).sqrt());
    let len = seen.iter().copied().max().unwrap_or(0);
    let mut p = vec![0f32; rows * len];
    by_kind!(entries.k, k => by_rows!(rows, from, ROWS => {
        logits::<_, ROWS>(&q[from * d..][..ROWS * d], k, base, scale, len, &mut p[from * len..][..ROWS * len]);
    }));
    let (mut max, mut sum) = (vec![f32::NEG_INFINITY; rows], vec![0f32; rows]);
    for row in 0..rows {
        let (seen, unseen) = p[row * len..(row + 1) * len].split_at_mut(seen[row % seen.len()]);
        unseen.fill(0.0);
        (max[row], sum[row]) = exponentials(seen);
    }
    let mut out = vec![0f32; rows * d];
    by_kind!(entries.v, v => by_rows!(rows, from, ROWS => {
        mix::<_, ROWS>(&p[from * len..][..ROWS * len], v, base, len, &mut out[from * d..][..ROWS * d]);
    }));
    Attended { p, max, sum, out }
}

/// `p[row][i] = scale · q[row] · k[i]` for `ROWS` queries, which share each load of a key.
#[inline(always)]
fn logits<E: Eights, const ROWS: usize>(q: &[f32], k: E, base: usize, scale: f32, len: usize, p: &mut [f32]) {
    let d = q.len() / ROWS;
    let q: [_; ROWS] = std::array::from_fn(|row| q[row * d..(row + 1) * d].as_chunks::<8>().0);
    for i in 0..len {
        let mut sums = [Floats::zero(); ROWS];
        for c in 0..d / 8 {
            let k = k.eight(base + i * d + c * 8);
            for row in 0..ROWS {
                sums[row] = sums[row].plus(k, Floats::load(&q[row][c]));
            }
        }
        for row in 0..ROWS {
            p[row * len + i] = sums[row].sum() * scale;
        }
    }
}

/// `out[row] = Σ p[row][i] · v[i]` for `ROWS` queries, which share each load of a value.
#[inline(always)]
fn mix<E: Eights, const ROWS: usize>(p: &[f32], v: E, base: usize, len: usize, out: &mut [f32]) {
    let d = out.len() / ROWS;
    for c in (0..d).step_by(8) {
        let mut sums = [Floats::zero(); ROWS];
        for i in 0..len {
            let v = v.eight(base + i * d + c);
            for row in 0..ROWS {
                sums[row] = sums[row].plus(v, Floats::all(&p[row * len + i]));
            }
        }
        for row in 0..ROWS {
            if let Some(out) = out[row * d + c..].first_chunk_mut() {
                sums[row].store(out);
            }
        }
    }
}

/// Prefill: each task takes a block of queries of one query head and widens the entries tile by tile.
fn many_queries(
    q: &[f32],
    n: usize,
    first: u32,
    entries: &Entries,
    group: usize,
    out: &mut [f32],
    scores: &mut [Vec<f32>],
) {
    let (d, len) = (entries.head_dim, entries.len);
    let scale = 1.0 / (d as f32).sqrt();
    let width = group * d * scores.len();
    let block = (BLOCK_BYTES / (len * size_of::<f32>())).clamp(1, BLOCK_QUERIES);
    let blocks = n.div_ceil(block);
    let out = Shared(out.as_mut_ptr());
    for (head, scores) in scores.iter_mut().enumerate() {
        let base = head * entries.capacity * d;
        let sums = (0..group * blocks)
            .into_par_iter()
            .fold(
                || (vec![0f32; len], Vec::new(), vec![0f32; TILE * d]),
                |(mut sums, mut p, mut tile), task| {
                    let (g, t) = (task / blocks, task % blocks * block);
                    let rows = block.min(n - t);
                    let seen = entries.visible(head, first + (t + rows - 1) as u32);
                    p.resize(rows * seen, 0f32);
                    let q = &q[((head * group + g) * n + t) * d..][..rows * d];
                    for start in (0..seen).step_by(TILE) {
                        let keys = TILE.min(seen - start);
                        entries.k.widen(base + start * d, &mut tile[..keys * d]);
                        // SAFETY: q is rows × d, tile holds keys × d, p is rows × seen.
                        unsafe {
                            let p = p.as_mut_ptr().add(start);
                            gemm_f32(
                                (rows, keys, d),
                                (p, seen),
                                (q.as_ptr(), 1, d),
                                (tile.as_ptr(), d, 1),
                                scale,
                                false,
                            );
                        }
                    }
                    for (i, p) in p.chunks_exact_mut(seen).enumerate() {
                        softmax(p, entries.visible(head, first + (t + i) as u32));
                        add_scaled(&mut sums[..seen], p, 1.0);
                    }
                    let out = &out;
                    for start in (0..seen).step_by(TILE) {
                        let keys = TILE.min(seen - start);
                        entries.v.widen(base + start * d, &mut tile[..keys * d]);
                        // SAFETY: p is rows × seen, tile holds keys × d; this task alone writes the columns of its
                        // query head in its rows of out.
                        unsafe {
                            let out = out.0.add(t * width + (head * group + g) * d);
                            let p = p.as_ptr().add(start);
                            gemm_f32(
                                (rows, d, keys),
                                (out, width),
                                (p, 1, seen),
                                (tile.as_ptr(), 1, d),
                                1.0,
                                start > 0,
                            );
                        }
                    }
                    (sums, p, tile)
                },
            )
            .map(|(sums, ..)| sums)
            .reduce_with(|mut a, b| {
                add_scaled(&mut a, &b, 1.0);
                a
            });
        if let Some(sums) = sums {
            add_scaled(&mut scores[..len], &sums, 1.0 / group as f32);
        }
    }
}

/// Softmax of the first `visible` numbers; the rest become 0.
fn softmax(row: &mut [f32], visible: usize) {
    let (seen, unseen) = row.split_at_mut(visible);
    unseen.fill(0.0);
    let scale = 1.0 / exponentials(seen).1;
    seen.iter_mut().for_each(|x| *x *= scale);
}

/// Each number becomes `e` to the power of its distance to the largest; gives the largest, and the sum of the powers.
/// In lanes, which the compiler turns into vector code.
fn exponentials(row: &mut [f32]) -> (f32, f32) {
    let (eights, rest) = row.as_chunks_mut::<8>();
    let mut most = [f32::NEG_INFINITY; 8];
    for eight in eights.iter() {
        for lane in 0..8 {
            most[lane] = most[lane].max(eight[lane]);
        }
    }
    let max = rest.iter().chain(&most).fold(f32::NEG_INFINITY, |max, &x| max.max(x));
    let mut sums = [0f32; 8];
    for eight in eights {
        for lane in 0..8 {
            eight[lane] = exp(eight[lane] - max);
            sums[lane] += eight[lane];
        }
    }
    let more: f32 = rest
        .iter_mut()
        .map(|x| {
            *x = exp(*x - max);
            *x
        })
        .sum();
    (max, Floats::load(&sums).sum() + more)
}

#[inline]
fn add_scaled(to: &mut [f32], x: &[f32], by: f32) {
    for (to, x) in to.iter_mut().zip(x) {
        *to = x.mul_add(by, *to);
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Tensor};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn column_sums_of_chunks_add_up_to_those_of_one_pass() {
        let (d, n, heads) = (16, 700, 4);
        let number = |i: usize| ((i * 2_654_435_761 % 1_000) as f32 / 250.0) - 2.0;
        let q: Vec<f32> = (0..heads * n * d).map(number).collect();
        let k: Vec<f32> = (0..2 * n * d).map(|i| number(i + 5)).collect();
        let all: Vec<u32> = (0..n as u32).collect();
        let run = |chunk: usize| {
            let (mut scores, mut outputs) = (vec![vec![0f32; n]; 2], Vec::new());
            for start in (0..n).step_by(chunk) {
                let some = chunk.min(n - start);
                let end = start + some;
                let positions = [&all[..end]; 2];
                let slices = Slices::F32(&k);
                let entries =
                    Entries { k: slices, v: slices, capacity: n, len: end, head_dim: d, positions: &positions };
                let q: Vec<f32> =
                    (0..heads).flat_map(|h| &q[(h * n + start) * d..(h * n + end) * d]).copied().collect();
                let mut out = vec![0f32; q.len()];
                let mut sums = vec![vec![0f32; end]; 2];
                attend(&q, some, start as u32, &entries, &mut out, &mut sums);
                for (scores, sums) in scores.iter_mut().zip(&sums) {
                    scores.iter_mut().zip(sums).for_each(|(score, sum)| *score += sum);
                }
                outputs.extend(out);
            }
            (scores, outputs)
        };
        let (want, want_out) = run(n);
        for chunk in [3, 64, 512] {
            let (got, out) = run(chunk);
            for (a, b) in got.iter().flatten().zip(want.iter().flatten()) {
                assert!((a - b).abs() < 1e-4, "chunks of {chunk}: {a} is not {b}");
            }
            assert!(out.iter().zip(&want_out).all(|(a, b)| (a - b).abs() < 1e-5), "chunks of {chunk}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// The kernel equals candle's operations: output and column sums, for both paths and both types.
        #[test]
        fn kernel_equals_the_operations(
            kv_heads in 1usize..4, group in 1usize..4, old in 0usize..300, n in 1usize..90, f16s: bool, seed: u64,
        ) {
            let (d, capacity) = (16, old + n + 5);
            let mut state = seed | 1;
            let mut random = |count: usize| -> Vec<f32> {
                (0..count).map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
                }).collect()
            };
            let q = random(kv_heads * group * n * d);
            let (k, v) = (random(kv_heads * capacity * d), random(kv_heads * capacity * d));
            let (k16, v16): (Vec<f16>, Vec<f16>) = (
                k.iter().map(|&x| f16::from_f32(x)).collect(), v.iter().map(|&x| f16::from_f32(x)).collect(),
            );
            // Old entries with gaps between them, then the chunk's own.
            let first = old as u32 * 3;
            let positions: Vec<Vec<u32>> = (0..kv_heads)
                .map(|h| (0..old as u32).map(|i| i * 3 + h as u32 % 2).chain(first..first + n as u32).collect())
                .collect();
            let borrowed: Vec<&[u32]> = positions.iter().map(Vec::as_slice).collect();
            let entries = Entries {
                k: if f16s { Slices::F16(&k16) } else { Slices::F32(&k) },
                v: if f16s { Slices::F16(&v16) } else { Slices::F32(&v) },
                capacity, len: old + n, head_dim: d, positions: &borrowed,
            };
            let mut out = vec![0f32; q.len()];
            let mut scores = vec![vec![0f32; old + n]; kv_heads];
            attend(&q, n, first, &entries, &mut out, &mut scores);

            let cpu = &Device::Cpu;
            let shape = (kv_heads, capacity, d);
            let tensor = |wide: &[f32], half: &[f16]| match f16s {
                true => Tensor::from_slice(half, shape, cpu).unwrap().to_dtype(DType::F32).unwrap(),
                false => Tensor::from_slice(wide, shape, cpu).unwrap(),
            }.narrow(1, 0, old + n).unwrap();
            let q = Tensor::from_slice(&q, (kv_heads * group, n, d), cpu).unwrap();
            let (want, sums) =
                super::super::ops::attend(&q, &tensor(&k, &k16), &tensor(&v, &v16), first, &borrowed).unwrap();
            let want: Vec<f32> = want.flatten_all().unwrap().to_vec1().unwrap();
            let sums: Vec<Vec<f32>> = sums.to_vec2().unwrap();
            for (a, b) in out.iter().zip(&want) {
                prop_assert!((a - b).abs() < 1e-5, "output {a} is not {b}");
            }
            for (a, b) in scores.iter().flatten().zip(sums.iter().flatten()) {
                prop_assert!((a - b).abs() < 1e-4, "column sum {a} is not {b}");
            }
        }
    }
}
