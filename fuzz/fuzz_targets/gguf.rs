#![no_main]

#[path = "../../engine/tests/hostile/seeds.rs"]
#[allow(dead_code)]
mod seeds;
#[path = "../../engine/tests/hostile/targets.rs"]
#[allow(dead_code)]
mod targets;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| targets::gguf(bytes));
