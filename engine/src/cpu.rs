//! Whether this processor has the instructions that the program was compiled for.
//!
//! A build for `x86-64-v3` ends with an illegal instruction on an older processor, without a word. So both
//! programs ask first thing in `main`. `is_x86_feature_detected!` cannot tell: it answers from the compiler's
//! own settings where those already promise the feature.

/// The sentence to print before leaving, where the processor lacks something.
///
/// # Errors
/// That sentence.
#[inline(never)]
pub fn check() -> Result<(), String> {
    let missing = missing();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!(
        "This build of Cistern needs a newer processor (this one lacks {}); build it from source on this computer, which then uses what the processor has.",
        missing.join(", ")
    ))
}

#[cfg(not(target_arch = "x86_64"))]
fn missing() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(target_arch = "x86_64")]
fn missing() -> Vec<&'static str> {
    let has = Features::read();
    let mut missing = Vec::new();
    macro_rules! need {
        ($($name:tt: $has:expr,)*) => {
            $(if cfg!(target_feature = $name) && !$has { missing.push($name); })*
        };
    }
    need! {
        "ssse3": bit(has.leaf1_ecx, 9),
        "sse4.1": bit(has.leaf1_ecx, 19),
        "sse4.2": bit(has.leaf1_ecx, 20),
        "popcnt": bit(has.leaf1_ecx, 23),
        "avx": has.ymm && bit(has.leaf1_ecx, 28),
        "fma": has.ymm && bit(has.leaf1_ecx, 12),
        "f16c": has.ymm && bit(has.leaf1_ecx, 29),
        "movbe": bit(has.leaf1_ecx, 22),
        "bmi1": bit(has.leaf7_ebx, 3),
        "bmi2": bit(has.leaf7_ebx, 8),
        "lzcnt": bit(has.extended_ecx, 5),
        "avx2": has.ymm && bit(has.leaf7_ebx, 5),
        "avx512f": has.zmm && bit(has.leaf7_ebx, 16),
        "avx512dq": has.zmm && bit(has.leaf7_ebx, 17),
        "avx512cd": has.zmm && bit(has.leaf7_ebx, 28),
        "avx512bw": has.zmm && bit(has.leaf7_ebx, 30),
        "avx512vl": has.zmm && bit(has.leaf7_ebx, 31),
        "avx512vnni": has.zmm && bit(has.leaf7_ecx, 11),
    }
    missing
}

/// What the processor says of itself, and what the operating system saves for it.
#[cfg(target_arch = "x86_64")]
struct Features {
    leaf1_ecx: u32,
    leaf7_ebx: u32,
    leaf7_ecx: u32,
    extended_ecx: u32,
    ymm: bool,
    zmm: bool,
}

#[cfg(target_arch = "x86_64")]
impl Features {
    fn read() -> Self {
        use std::arch::x86_64::{__cpuid, __cpuid_count};

        let highest = __cpuid(0).eax;
        let leaf1_ecx = __cpuid(1).ecx;
        let leaf7 = (highest >= 7).then(|| __cpuid_count(7, 0));
        let extended = __cpuid(0x8000_0000).eax;
        // Registers that the operating system does not save are as good as missing.
        let saved = if bit(leaf1_ecx, 27) { saved_registers() } else { 0 };
        Self {
            leaf1_ecx,
            leaf7_ebx: leaf7.map_or(0, |leaf| leaf.ebx),
            leaf7_ecx: leaf7.map_or(0, |leaf| leaf.ecx),
            extended_ecx: if extended >= 0x8000_0001 { __cpuid(0x8000_0001).ecx } else { 0 },
            ymm: saved & 0x06 == 0x06,
            zmm: saved & 0xe6 == 0xe6,
        }
    }
}

/// The low half of XCR0.
#[cfg(target_arch = "x86_64")]
fn saved_registers() -> u32 {
    let low: u32;
    // SAFETY: the caller saw OSXSAVE, without which alone this instruction is illegal; it only reads.
    unsafe {
        std::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    low
}

#[cfg(target_arch = "x86_64")]
fn bit(word: u32, n: u32) -> bool {
    word >> n & 1 == 1
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn the_processor_that_compiled_for_itself_has_what_it_needs() {
        assert_eq!(check(), Ok(()));
    }

    #[test]
    fn the_bits_are_those_that_the_standard_library_reads() {
        // Trustworthy here, where the build does not promise the feature anyway or the processor has it.
        let has = Features::read();
        assert_eq!(has.ymm && bit(has.leaf7_ebx, 5), std::is_x86_feature_detected!("avx2"));
        assert_eq!(has.ymm && bit(has.leaf1_ecx, 12), std::is_x86_feature_detected!("fma"));
        assert_eq!(has.ymm && bit(has.leaf1_ecx, 29), std::is_x86_feature_detected!("f16c"));
        assert_eq!(bit(has.leaf7_ebx, 8), std::is_x86_feature_detected!("bmi2"));
        assert_eq!(bit(has.extended_ecx, 5), std::is_x86_feature_detected!("lzcnt"));
        assert_eq!(has.zmm && bit(has.leaf7_ebx, 16), std::is_x86_feature_detected!("avx512f"));
    }
}
