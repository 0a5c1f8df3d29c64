#![no_main]

#[path = "../../engine/tests/hostile/seeds.rs"]
#[allow(dead_code)]
mod seeds;
#[path = "../../engine/tests/hostile/targets.rs"]
#[allow(dead_code)]
mod targets;

// As in the worker: what a template may take depends on it.
#[global_allocator]
static ALLOCATOR: engine::leash::Allocator = engine::leash::Allocator;

libfuzzer_sys::fuzz_target!(|source: &str| targets::template(source));
