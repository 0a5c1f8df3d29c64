//! Thirty-two small integers, or eight numbers, at once: AVX2 where the build has it, plain loops elsewhere.

#[cfg(not(all(
    target_arch = "x86_64",
    target_feature = "avx2",
    target_feature = "fma",
    target_feature = "f16c"
)))]
pub use plain::{Bytes, Floats, Ints, Words, prefetch};
#[cfg(all(target_arch = "x86_64", target_feature = "avx2", target_feature = "fma", target_feature = "f16c"))]
pub use vector::{Bytes, Floats, Ints, Words, prefetch};

#[cfg(all(target_arch = "x86_64", target_feature = "avx2", target_feature = "fma", target_feature = "f16c"))]
mod vector {
    use std::arch::x86_64::*;

    use half::f16;

    /// Instructions that this module is only compiled for a processor with.
    macro_rules! avx2 {
        ($($code:tt)*) => {
            // SAFETY: the module's cfg says that the instructions are there. Loads and stores of more than a register
            // take arrays of that size, and no alignment is asked of them.
            unsafe { $($code)* }
        };
    }

    /// How far ahead memory is asked for what follows, in bytes.
    const AHEAD: usize = 1024;

    /// Asks memory for what lies a little after `at`.
    #[inline(always)]
    pub fn prefetch<T>(at: &T) {
        let ahead = std::ptr::from_ref(at).cast::<i8>().wrapping_add(AHEAD);
        // An address that is not there is no error.
        avx2!(_mm_prefetch::<_MM_HINT_T0>(ahead));
    }

    /// 32 bytes.
    #[derive(Clone, Copy)]
    pub struct Bytes(__m256i);

    impl Bytes {
        #[inline(always)]
        pub fn load(from: &[u8; 32]) -> Self {
            Self(avx2!(_mm256_loadu_si256(from.as_ptr().cast())))
        }

        /// The low halves of 16 bytes, then their high halves.
        #[inline(always)]
        pub fn nibbles(from: &[u8; 16]) -> Self {
            let both = avx2!(_mm_loadu_si128(from.as_ptr().cast()));
            Self(avx2!(_mm256_set_m128i(_mm_srli_epi16::<4>(both), both))).low()
        }

        /// The low halves.
        #[inline(always)]
        pub fn low(self) -> Self {
            Self(avx2!(_mm256_and_si256(self.0, _mm256_set1_epi8(15))))
        }

        /// The high halves.
        #[inline(always)]
        pub fn high(self) -> Self {
            Self(avx2!(_mm256_srli_epi16::<4>(self.0))).low()
        }

        /// 16 more in byte `j` where bit `j` of `bits` is set.
        #[inline(always)]
        pub fn plus_sixteens(self, bits: u32) -> Self {
            let (spread, mask) = spread(bits);
            self.sixteens_where(spread, mask)
        }

        /// As words, 16 less in byte `j` where bit `j` of `bits` is not set, for bytes below 16.
        #[inline(always)]
        pub fn less_sixteens(self, bits: u32) -> Words {
            let (spread, mask) = spread(bits);
            let signed = avx2! {
                let set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, mask), mask);
                _mm256_or_si256(self.0, _mm256_andnot_si256(set, _mm256_set1_epi8(-16)))
            };
            Words(avx2! {
                let halves = [_mm256_castsi256_si128(signed), _mm256_extracti128_si256::<1>(signed)];
                [_mm256_cvtepi8_epi16(halves[0]), _mm256_cvtepi8_epi16(halves[1])]
            })
        }

        /// 16 more in every byte that has bit `bit` set in `bits`.
        #[inline(always)]
        pub fn plus_sixteens_at(self, bits: Self, bit: u32) -> Self {
            self.sixteens_where(bits.0, avx2!(_mm256_set1_epi8((1u8 << bit) as i8)))
        }

        #[inline(always)]
        fn sixteens_where(self, bits: __m256i, mask: __m256i) -> Self {
            Self(avx2! {
                let set = _mm256_cmpeq_epi8(_mm256_and_si256(bits, mask), mask);
                _mm256_or_si256(self.0, _mm256_and_si256(set, _mm256_set1_epi8(16)))
            })
        }

        /// 16 times the two bits of `bits` from `AT` on more in every byte.
        #[inline(always)]
        pub fn plus_pairs<const AT: i32>(self, bits: Self) -> Self {
            Self(avx2! {
                let moved = _mm256_srli_epi16::<AT>(bits.0);
                let four = _mm256_slli_epi16::<4>(_mm256_and_si256(moved, _mm256_set1_epi8(3)));
                _mm256_or_si256(self.0, four)
            })
        }

        #[inline(always)]
        pub fn words(self) -> Words {
            Words(avx2! {
                let halves = [_mm256_castsi256_si128(self.0), _mm256_extracti128_si256::<1>(self.0)];
                [_mm256_cvtepu8_epi16(halves[0]), _mm256_cvtepu8_epi16(halves[1])]
            })
        }
    }

    /// In byte `j` the bits that hold bit `j`, and which of them it is.
    #[inline(always)]
    fn spread(bits: u32) -> (__m256i, __m256i) {
        avx2! {
            let byte = _mm256_setr_epi64x(0, 0x0101_0101_0101_0101, 0x0202_0202_0202_0202, 0x0303_0303_0303_0303);
            (_mm256_shuffle_epi8(_mm256_set1_epi32(bits as i32), byte), _mm256_set1_epi64x(BITS as i64))
        }
    }

    /// Bit `j` in byte `j`.
    const BITS: u64 = 0x8040_2010_0804_0201;

    /// 32 integers of 16 bits.
    #[derive(Clone, Copy)]
    pub struct Words([__m256i; 2]);

    impl Words {
        #[inline(always)]
        pub fn load(from: &[i16; 32]) -> Self {
            let from = from.as_ptr().cast::<__m256i>();
            Self(avx2!([_mm256_loadu_si256(from), _mm256_loadu_si256(from.add(1))]))
        }

        /// The low halves of 16 bytes, then their high halves.
        #[inline(always)]
        pub fn nibbles(from: &[u8; 16]) -> Self {
            Self(avx2! {
                let wide = _mm256_cvtepu8_epi16(_mm_loadu_si128(from.as_ptr().cast()));
                [_mm256_and_si256(wide, _mm256_set1_epi16(15)), _mm256_srli_epi16::<4>(wide)]
            })
        }

        /// The low halves of 32 bytes, and their high halves.
        #[inline(always)]
        pub fn both_nibbles(from: &[u8; 32]) -> [Self; 2] {
            let from = from.as_ptr().cast::<__m128i>();
            avx2! {
                let wide = [
                    _mm256_cvtepu8_epi16(_mm_loadu_si128(from)),
                    _mm256_cvtepu8_epi16(_mm_loadu_si128(from.add(1))),
                ];
                let low = wide.map(|half| _mm256_and_si256(half, _mm256_set1_epi16(15)));
                [Self(low), Self(wide.map(|half| _mm256_srli_epi16::<4>(half)))]
            }
        }

        #[inline(always)]
        pub fn signed(from: &[i8; 32]) -> Self {
            let from = from.as_ptr().cast::<__m128i>();
            Self(avx2! {
                let halves = [_mm_loadu_si128(from), _mm_loadu_si128(from.add(1))];
                [_mm256_cvtepi8_epi16(halves[0]), _mm256_cvtepi8_epi16(halves[1])]
            })
        }

        #[inline(always)]
        pub fn minus(self, x: i16) -> Self {
            Self(self.0.map(|half| avx2!(_mm256_sub_epi16(half, _mm256_set1_epi16(x)))))
        }

        /// The first sixteen times one number, the others times another.
        #[inline(always)]
        pub fn times(self, by: [i16; 2]) -> Self {
            Self(std::array::from_fn(|i| avx2!(_mm256_mullo_epi16(self.0[i], _mm256_set1_epi16(by[i])))))
        }

        /// As numbers.
        #[inline(always)]
        pub fn floats(self) -> [Floats; 4] {
            avx2! {
                let eights = [
                    _mm256_castsi256_si128(self.0[0]),
                    _mm256_extracti128_si256::<1>(self.0[0]),
                    _mm256_castsi256_si128(self.0[1]),
                    _mm256_extracti128_si256::<1>(self.0[1]),
                ];
                eights.map(|eight| Floats(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(eight))))
            }
        }
    }

    /// Eight integers of 32 bits.
    #[derive(Clone, Copy)]
    pub struct Ints(__m256i);

    impl Ints {
        #[inline(always)]
        pub fn zero() -> Self {
            Self(avx2!(_mm256_setzero_si256()))
        }

        /// `self` and the products of `a` and `x`, four in each lane.
        #[inline(always)]
        pub fn plus(self, a: Words, x: Words) -> Self {
            Self(avx2! {
                let first = _mm256_add_epi32(self.0, _mm256_madd_epi16(a.0[0], x.0[0]));
                _mm256_add_epi32(first, _mm256_madd_epi16(a.0[1], x.0[1]))
            })
        }

        #[inline(always)]
        pub fn floats(self) -> Floats {
            Floats(avx2!(_mm256_cvtepi32_ps(self.0)))
        }
    }

    /// Eight numbers.
    #[derive(Clone, Copy)]
    pub struct Floats(__m256);

    impl Floats {
        #[inline(always)]
        pub fn zero() -> Self {
            Self(avx2!(_mm256_setzero_ps()))
        }

        #[inline(always)]
        pub fn load(from: &[f32; 8]) -> Self {
            Self(avx2!(_mm256_loadu_ps(from.as_ptr())))
        }

        #[inline(always)]
        pub fn store(self, to: &mut [f32; 8]) {
            avx2!(_mm256_storeu_ps(to.as_mut_ptr(), self.0));
        }

        #[inline(always)]
        pub fn halves(from: &[f16; 8]) -> Self {
            Self(avx2!(_mm256_cvtph_ps(_mm_loadu_si128(from.as_ptr().cast()))))
        }

        #[inline(always)]
        pub fn bytes(from: &[u8; 8]) -> Self {
            Self(avx2!(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64(from.as_ptr().cast())))))
        }

        /// Eight times the same.
        #[inline(always)]
        pub fn all(x: &f32) -> Self {
            Self(avx2!(_mm256_broadcast_ss(x)))
        }

        /// Number `i` of each of eight, as the `i`th of eight.
        #[inline(always)]
        pub fn transposed(rows: [Self; 8]) -> [Self; 8] {
            let rows = rows.map(|row| row.0);
            avx2! {
                let pair = |i: usize| {
                    (_mm256_unpacklo_ps(rows[i], rows[i + 1]), _mm256_unpackhi_ps(rows[i], rows[i + 1]))
                };
                let four = |i: usize| {
                    let ((low, high), (more_low, more_high)) = (pair(i), pair(i + 2));
                    [
                        _mm256_shuffle_ps::<0x44>(low, more_low),
                        _mm256_shuffle_ps::<0xee>(low, more_low),
                        _mm256_shuffle_ps::<0x44>(high, more_high),
                        _mm256_shuffle_ps::<0xee>(high, more_high),
                    ]
                };
                let (first, last) = (four(0), four(4));
                std::array::from_fn(|i| match i {
                    0..4 => Self(_mm256_permute2f128_ps::<0x20>(first[i], last[i])),
                    _ => Self(_mm256_permute2f128_ps::<0x31>(first[i - 4], last[i - 4])),
                })
            }
        }

        #[inline(always)]
        pub fn times(self, by: Self) -> Self {
            Self(avx2!(_mm256_mul_ps(self.0, by.0)))
        }

        /// `self + by · x`
        #[inline(always)]
        pub fn plus(self, x: Self, by: Self) -> Self {
            Self(avx2!(_mm256_fmadd_ps(x.0, by.0, self.0)))
        }

        #[inline(always)]
        pub fn and(self, more: Self) -> Self {
            Self(avx2!(_mm256_add_ps(self.0, more.0)))
        }

        #[inline(always)]
        pub fn sum(self) -> f32 {
            avx2! {
                let four = _mm_add_ps(_mm256_castps256_ps128(self.0), _mm256_extractf128_ps::<1>(self.0));
                let two = _mm_add_ps(four, _mm_movehl_ps(four, four));
                _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps::<1>(two, two)))
            }
        }
    }
}

#[cfg(any(
    test,
    not(all(target_arch = "x86_64", target_feature = "avx2", target_feature = "fma", target_feature = "f16c"))
))]
#[cfg_attr(test, allow(dead_code))]
mod plain {
    use half::f16;

    /// Left to the processor.
    #[inline(always)]
    pub fn prefetch<T>(_: &T) {}

    /// 32 bytes.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Bytes([u8; 32]);

    impl Bytes {
        #[inline(always)]
        pub fn load(from: &[u8; 32]) -> Self {
            Self(*from)
        }

        /// The low halves of 16 bytes, then their high halves.
        #[inline(always)]
        pub fn nibbles(from: &[u8; 16]) -> Self {
            Self(std::array::from_fn(|j| if j < 16 { from[j] & 15 } else { from[j - 16] >> 4 }))
        }

        /// The low halves.
        #[inline(always)]
        pub fn low(self) -> Self {
            Self(self.0.map(|x| x & 15))
        }

        /// The high halves.
        #[inline(always)]
        pub fn high(self) -> Self {
            Self(self.0.map(|x| x >> 4))
        }

        /// 16 more in byte `j` where bit `j` of `bits` is set.
        #[inline(always)]
        pub fn plus_sixteens(self, bits: u32) -> Self {
            Self(std::array::from_fn(|j| self.0[j] | ((bits >> j & 1) as u8) << 4))
        }

        /// As words, 16 less in byte `j` where bit `j` of `bits` is not set, for bytes below 16.
        #[inline(always)]
        pub fn less_sixteens(self, bits: u32) -> Words {
            self.plus_sixteens(bits).words().minus(16)
        }

        /// 16 more in every byte that has bit `bit` set in `bits`.
        #[inline(always)]
        pub fn plus_sixteens_at(self, bits: Self, bit: u32) -> Self {
            Self(std::array::from_fn(|j| self.0[j] | (bits.0[j] >> bit & 1) << 4))
        }

        /// 16 times the two bits of `bits` from `AT` on more in every byte.
        #[inline(always)]
        pub fn plus_pairs<const AT: i32>(self, bits: Self) -> Self {
            Self(std::array::from_fn(|j| self.0[j] | ((bits.0[j] >> AT) & 3) << 4))
        }

        #[inline(always)]
        pub fn words(self) -> Words {
            Words(self.0.map(i16::from))
        }
    }

    /// 32 integers of 16 bits.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Words([i16; 32]);

    impl Words {
        #[inline(always)]
        pub fn load(from: &[i16; 32]) -> Self {
            Self(*from)
        }

        /// The low halves of 16 bytes, then their high halves.
        #[inline(always)]
        pub fn nibbles(from: &[u8; 16]) -> Self {
            Bytes::nibbles(from).words()
        }

        /// The low halves of 32 bytes, and their high halves.
        #[inline(always)]
        pub fn both_nibbles(from: &[u8; 32]) -> [Self; 2] {
            [Bytes(*from).low().words(), Bytes(*from).high().words()]
        }

        #[inline(always)]
        pub fn signed(from: &[i8; 32]) -> Self {
            Self(from.map(i16::from))
        }

        #[inline(always)]
        pub fn minus(self, x: i16) -> Self {
            Self(self.0.map(|y| y - x))
        }

        /// The first sixteen times one number, the others times another.
        #[inline(always)]
        pub fn times(self, by: [i16; 2]) -> Self {
            Self(std::array::from_fn(|j| self.0[j] * by[j / 16]))
        }

        /// As numbers.
        #[inline(always)]
        pub fn floats(self) -> [Floats; 4] {
            std::array::from_fn(|i| Floats(std::array::from_fn(|lane| f32::from(self.0[8 * i + lane]))))
        }
    }

    /// Eight integers of 32 bits.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Ints([i32; 8]);

    impl Ints {
        #[inline(always)]
        pub fn zero() -> Self {
            Self([0; 8])
        }

        /// `self` and the products of `a` and `x`, four in each lane.
        #[inline(always)]
        pub fn plus(self, a: Words, x: Words) -> Self {
            let product = |j: usize| i32::from(a.0[j]) * i32::from(x.0[j]);
            Self(std::array::from_fn(|lane| {
                let first = product(2 * lane).wrapping_add(product(2 * lane + 1));
                let second = product(16 + 2 * lane).wrapping_add(product(17 + 2 * lane));
                self.0[lane].wrapping_add(first).wrapping_add(second)
            }))
        }

        #[inline(always)]
        pub fn floats(self) -> Floats {
            Floats(self.0.map(|x| x as f32))
        }
    }

    /// Eight numbers.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct Floats([f32; 8]);

    impl Floats {
        #[inline(always)]
        pub fn zero() -> Self {
            Self([0.0; 8])
        }

        #[inline(always)]
        pub fn load(from: &[f32; 8]) -> Self {
            Self(*from)
        }

        #[inline(always)]
        pub fn store(self, to: &mut [f32; 8]) {
            *to = self.0;
        }

        #[inline(always)]
        pub fn halves(from: &[f16; 8]) -> Self {
            Self(from.map(f16::to_f32))
        }

        #[inline(always)]
        pub fn bytes(from: &[u8; 8]) -> Self {
            Self(from.map(f32::from))
        }

        /// Eight times the same.
        #[inline(always)]
        pub fn all(x: &f32) -> Self {
            Self([*x; 8])
        }

        /// Number `i` of each of eight, as the `i`th of eight.
        #[inline(always)]
        pub fn transposed(rows: [Self; 8]) -> [Self; 8] {
            std::array::from_fn(|i| Self(rows.map(|row| row.0[i])))
        }

        #[inline(always)]
        pub fn times(self, by: Self) -> Self {
            Self(std::array::from_fn(|lane| self.0[lane] * by.0[lane]))
        }

        /// `self + by · x`
        #[inline(always)]
        pub fn plus(self, x: Self, by: Self) -> Self {
            Self(std::array::from_fn(|lane| x.0[lane].mul_add(by.0[lane], self.0[lane])))
        }

        #[inline(always)]
        pub fn and(self, more: Self) -> Self {
            Self(std::array::from_fn(|lane| self.0[lane] + more.0[lane]))
        }

        #[inline(always)]
        pub fn sum(self) -> f32 {
            let [a, b, c, d, e, f, g, h] = self.0;
            ((a + e) + (c + g)) + ((b + f) + (d + h))
        }
    }
}

#[cfg(all(test, target_arch = "x86_64", target_feature = "avx2", target_feature = "fma", target_feature = "f16c"))]
mod tests {
    use half::f16;

    use super::{plain, vector};

    /// What both say of the same bytes.
    macro_rules! check {
        ($lanes:ident, $bytes:expr, $more:expr, $bits:expr, $signed:expr) => {{
            use $lanes::{Bytes, Floats, Ints, Words};
            let (bytes, more) = (Bytes::load($bytes), Bytes::load($more));
            let half: &[u8; 16] = $bytes.first_chunk().unwrap();
            let signed = Words::signed($signed);
            let mut all = vec![
                bytes.words(),
                bytes.low().words(),
                bytes.high().words(),
                Bytes::nibbles(half).words(),
                Words::nibbles(half),
                Bytes::nibbles(half).plus_sixteens($bits).words().minus(16),
                Bytes::nibbles(half).less_sixteens($bits),
                bytes.low().words().times([-128, 31]),
                signed,
            ];
            all.extend(Words::both_nibbles($bytes));
            all.extend((0..8).map(|bit| bytes.low().plus_sixteens_at(more, bit).words()));
            let high = bytes.high();
            all.extend([high.plus_pairs::<0>(more), high.plus_pairs::<2>(more)].map(|x| x.words().minus(32)));
            all.extend([high.plus_pairs::<4>(more), high.plus_pairs::<6>(more)].map(|x| x.words().minus(32)));
            let halves: [f16; 8] = std::array::from_fn(|i| f16::from_f32(f32::from($signed[i]) / 3.0));
            let mut wide = vec![[0f32; 8]; 2];
            Floats::halves(&halves).store(&mut wide[0]);
            Floats::bytes($bytes.first_chunk().unwrap()).and(Floats::load(&wide[0].clone())).store(&mut wide[1]);
            let store = |eight: Floats| {
                let mut to = [0f32; 8];
                eight.store(&mut to);
                to
            };
            let rows: [f32; 64] = std::array::from_fn(|i| i as f32);
            let rows = std::array::from_fn(|row| Floats::load(&rows.as_chunks().0[row]));
            wide.extend(Floats::transposed(rows).map(store));
            let sums: Vec<f32> = all
                .iter()
                .map(|&words| Floats::zero().plus(Ints::zero().plus(words, signed).floats(), Floats::all(&0.5)).sum())
                .collect();
            (all.into_iter().map(|words| words.floats().map(store)).collect::<Vec<_>>(), sums, wide)
        }};
    }

    #[test]
    fn vectors_compute_what_plain_loops_compute() {
        for seed in 0..50u32 {
            let byte = |i: u32| (i.wrapping_mul(2_654_435_761).wrapping_add(seed * 40_503) >> 13) as u8;
            let bytes: [u8; 32] = std::array::from_fn(|i| byte(i as u32));
            let more: [u8; 32] = std::array::from_fn(|i| byte(i as u32 + 77));
            let signed = more.map(|x| x as i8);
            let bits = byte(3).into();
            assert_eq!(check!(vector, &bytes, &more, bits, &signed), check!(plain, &bytes, &more, bits, &signed));
        }
    }
}
