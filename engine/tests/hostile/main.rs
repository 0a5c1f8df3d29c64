//! Files that someone meant ill by: a fixed number of them, which are the same on every machine. `CISTERN_FUZZ_SECONDS`
//! makes the search longer and `CISTERN_FUZZ_SEED` another one; inputs that were found to break something lie in
//! `corpus` and are tried every time.

// In a test an unwrap is an assertion.
#![allow(clippy::unwrap_used)]

mod memory;
mod mutate;
mod seeds;
mod targets;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{env, fs};

use candle_core::Device;
use engine::error::Error;
use engine::gguf::Gguf;
use engine::model::Model;
use mutate::{Chance, Search};

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// Memory is counted for the whole process: one test at a time.
static ONE: Mutex<()> = Mutex::new(());

/// What a reader may take of its own, and for each byte of the file: a value of a list takes 32, a letter of a
/// control token some more.
const OWN: usize = 48 << 20;
const PER_BYTE: usize = 80;

fn corpus_of(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile/corpus").join(name);
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.into_iter().map(|path| (path.clone(), fs::read(&path).unwrap())).collect()
}

/// Tries the corpus, then `count` changed seeds, or as many as the time allows. What breaks is kept and told.
fn search(
    name: &str,
    count: u64,
    seeds: &[Vec<u8>],
    change: impl Fn(&mut Vec<u8>, &mut Chance),
    target: impl Fn(&[u8]),
) {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
    fs::create_dir_all(&folder).unwrap();
    let at_work = folder.join(format!("{name}.at-work"));
    let mut broken = Vec::new();
    let mut most = 0;
    let mut attempt = |bytes: &[u8], what: String, keep: bool| {
        // Also there after what cannot be caught.
        fs::write(&at_work, bytes).unwrap();
        let mut outcome = Ok(());
        let taken = memory::peak(|| outcome = catch_unwind(AssertUnwindSafe(|| target(bytes))));
        most = most.max(taken);
        let limit = OWN + PER_BYTE * bytes.len();
        let trouble = match outcome {
            Err(_) => "it panicked".to_owned(),
            Ok(()) if taken > limit => format!("it took {taken} bytes for a file of {}", bytes.len()),
            Ok(()) => return,
        };
        let file = folder.join(format!("{name}-{}.bin", broken.len()));
        if keep {
            fs::write(&file, bytes).unwrap();
        }
        broken.push(format!("{what}: {trouble}; see {}", file.display()));
    };
    // What is set up once is not the target's.
    target(&seeds[0]);
    for seed in seeds {
        attempt(seed, "a seed".into(), true);
    }
    for (path, bytes) in corpus_of(name) {
        attempt(&bytes, path.display().to_string(), false);
    }
    let mut search = Search::new(count);
    for (run, mut chance) in search.by_ref() {
        let mut bytes = seeds[chance.below(seeds.len())].clone();
        change(&mut bytes, &mut chance);
        attempt(&bytes, run, true);
    }
    let _ = fs::remove_file(&at_work);
    let (runs, took) = (search.runs, search.took());
    println!("{name}: {runs} runs in {:.1} s, at most {} KiB", took.as_secs_f64(), most >> 10);
    assert!(broken.is_empty(), "{} of {runs} runs:\n{}", broken.len(), broken.join("\n"));
}

#[test]
fn a_changed_model_file_is_refused_or_answers() {
    search("gguf", 2_000, &[seeds::model(false), seeds::model(true)], mutate::bytes, targets::gguf);
}

#[test]
fn a_changed_tokenizer_is_refused_or_tokenizes() {
    search("tokenizer", 3_000, &[seeds::model(false), seeds::model(true)], mutate::bytes, targets::tokenizer);
}

#[test]
fn a_changed_chat_template_is_refused_or_writes_a_prompt() {
    let change = |bytes: &mut Vec<u8>, chance: &mut Chance| {
        let mut text = String::from_utf8_lossy(bytes).into_owned();
        mutate::template(&mut text, chance);
        *bytes = text.into_bytes();
    };
    search("template", 4_000, &[seeds::TEMPLATE.as_bytes().to_vec()], change, |bytes| {
        targets::template(&String::from_utf8_lossy(bytes));
    });
}

#[test]
fn a_changed_snapshot_is_refused_or_goes_on() {
    search("snapshot", 2_000, &[targets::snapshot_seed()], mutate::bytes, targets::snapshot);
}

#[test]
fn a_changed_frame_is_an_error_or_a_message() {
    let command = br#"{"id":1,"type":"send","session":"a","messages":[],"cache":{},"sampling":{},"max_tokens":1}"#;
    let report = br#"{"re":null,"type":"cache","session":"a","state":{},"kept":[],"forgotten":[],"pinned":[]}"#;
    let framed = |body: &[u8]| [&(body.len() as u32).to_le_bytes(), body].concat();
    search("frame", 8_000, &[framed(command), framed(report)], mutate::bytes, targets::frame);
}

/// Opens bytes as a model file.
fn open(bytes: &[u8]) -> Result<Model, Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, bytes).unwrap();
    Model::open(&path, &Device::Cpu, &mut |_| {})
}

fn refused(bytes: &[u8]) -> String {
    let error = open(bytes).err().expect("it is refused");
    let text = error.to_string();
    assert!(text.len() < 400 && !text.contains('\n'), "{text}");
    text
}

#[test]
fn the_seed_is_a_model() {
    for byte_pairs in [false, true] {
        let model = open(&seeds::model(byte_pairs)).unwrap();
        assert_eq!((model.config.layers, model.config.width), (2, 32));
    }
}

#[test]
fn sizes_that_the_weights_do_not_bear_out_are_refused_before_memory_is_taken_for_them() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let huge = u32::MAX - 1;
    // Later keys of a name would be refused as a second one: the value itself is changed.
    let with = |key: &str, value: u32| {
        let mut bytes = seeds::model(false);
        let at = bytes.windows(key.len()).position(|window| window == key.as_bytes()).unwrap() + key.len() + 4;
        bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        bytes
    };
    for key in [
        "llama.block_count",
        "llama.embedding_length",
        "llama.feed_forward_length",
        "llama.attention.head_count",
        "llama.attention.head_count_kv",
    ] {
        for value in [0, 3, huge] {
            let bytes = with(key, value);
            let taken = memory::peak(|| drop(refused(&bytes)));
            assert!(taken < OWN, "{key} = {value} took {taken} bytes");
        }
    }
    refused(&with("llama.context_length", 0));
    for key in ["llama.attention.key_length", "llama.rope.dimension_count"] {
        let bytes = seeds::build(false, |gguf| {
            gguf.u32(key, huge);
        });
        let taken = memory::peak(|| drop(refused(&bytes)));
        assert!(taken < OWN, "{key} took {taken} bytes");
    }
}

#[test]
fn lengths_and_counts_that_lie_are_refused() {
    let list = |kind: u32, length: u64, values: &[u8]| {
        seeds::build(false, |gguf| {
            gguf.list("x.list", kind, length, values);
        })
    };
    for (length, values) in [(u64::MAX, 0), (1 << 40, 0), (1 << 29, 64)] {
        for kind in [0, 4, 8, 9, 10, 77] {
            refused(&list(kind, length, &vec![0; values]));
        }
    }
    // Lists in lists in lists.
    let nested: Vec<u8> = (0..60).flat_map(|_| [9, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]).collect();
    assert!(refused(&list(9, 1, &nested)).contains("nests lists"));
    // A value that takes 32 bytes for one.
    let text = refused(&list(0, 5 << 20, &vec![0; 5 << 20]));
    assert!(text.contains("lists more than"), "{text}");
    let mut counts = seeds::model(false);
    counts[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    refused(&counts);
    counts[8..24].fill(0xff);
    refused(&counts);
    for cut in [0, 3, 4, 8, 20, 24, 100, 3000] {
        refused(&seeds::model(false)[..cut]);
    }
}

#[test]
fn what_stands_twice_is_refused() {
    let twice = |add: fn(&mut seeds::Gguf)| refused(&seeds::build(false, add));
    assert!(
        twice(|gguf| {
            gguf.u32("llama.block_count", 1);
        })
        .contains("a key twice")
    );
    assert!(
        twice(|gguf| {
            gguf.tensor("blk.0.attn_q.weight", &[32, 32], true);
        })
        .contains("a tensor twice")
    );
}

#[test]
fn an_alignment_that_is_none_is_refused() {
    for alignment in [0, 3, 1 << 31] {
        let bytes = seeds::build(false, |gguf| {
            gguf.u32("general.alignment", alignment);
        });
        assert!(refused(&bytes).contains("aligned to"), "{alignment}");
    }
    let text = seeds::build(false, |gguf| {
        gguf.text("general.alignment", "32");
    });
    assert!(refused(&text).contains("alignment"));
    open(&seeds::build(false, |gguf| {
        gguf.u32("general.alignment", 32);
    }))
    .unwrap();
}

#[test]
fn control_tokens_of_any_length_cost_no_more_than_their_file() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    // Letters of many kinds, as many as make the tables of an automaton wide.
    let letter = |i: u32, j: u32| char::from_u32(0x4e00 + (i * 131 + j * 7919) % 20_000).unwrap();
    let long: Vec<String> =
        (0..40).map(|i| format!("<|{}{i}|>", String::from_iter((0..7_000).map(|j| letter(i, j))))).collect();
    let mut gguf = seeds::Gguf::new();
    gguf.text("general.architecture", "llama")
        .text("tokenizer.ggml.model", "llama")
        .texts("tokenizer.ggml.tokens", &long);
    let bytes = gguf.bytes();
    let taken = memory::peak(|| targets::tokenizer(&bytes));
    assert!(taken < OWN + PER_BYTE * bytes.len(), "{taken} bytes for a file of {}", bytes.len());
}

#[test]
fn templates_that_never_end_or_grow_without_end_are_ended() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    targets::template(seeds::TEMPLATE);
    let doubled = format!("{{% set x = ['aaaaaaaa'] %}}{}", "{% set x=[x,x] %}".repeat(40));
    for source in [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% for i in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
        "{{ 'a' * 99999999999 }}",
        "{{ [0] * 99999999 }}",
        "{%- set a = namespace(a=namespace()) -%}{% set a.a = a %}{{ a }}",
        "{%- set a = namespace(b=1) -%}{% set a.b | default(a, true) %}{% endset %}{{ a }}",
        "{% macro f(a) %}{{ f(a) }}{% endmacro %}{{ f(1) }}",
        "{{ ([[0] * 9999] * 9999) | tojson(indent=9999) }}",
        &format!("{doubled}{{{{ x | tojson }}}}"),
        &format!("{doubled}{{{{ '%s' % x }}}}"),
        &format!("{doubled}{{% set y = [x] %}}{doubled}{{{{ [x] == y }}}}"),
        &format!("{{% set x = [] %}}{}{{{{ x }}}}", "{% set x=[x] %}".repeat(17_000)),
    ] {
        let started = Instant::now();
        let taken = memory::peak(|| targets::template(source));
        let took = started.elapsed();
        assert!(took < Duration::from_secs(6), "{source} took {took:?}");
        assert!(taken < OWN, "{source} took {taken} bytes");
    }
}

#[test]
fn templates_read_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    fs::write(&secret, "a secret").unwrap();
    let tiny = targets::tiny();
    for source in ["{% include 'PATH' %}", "{% import 'PATH' as x %}", "{% extends 'PATH' %}"] {
        let source = source.replace("PATH", &secret.display().to_string());
        let value = candle_core::quantized::gguf_file::Value::String(source);
        let metadata = [("tokenizer.chat_template".to_owned(), value)].into();
        let Ok(prompt) = engine::prompt::Prompt::from_gguf(&metadata, &tiny.tokenizer) else { continue };
        let question = engine::protocol::Message {
            role: engine::protocol::Role::User,
            text: "Which?".into(),
            documents: Vec::new(),
        };
        assert!(prompt.build(&tiny.tokenizer, &[question], &|_| None).is_err());
    }
}

#[test]
fn a_header_is_read_without_the_weights() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    fs::write(&path, seeds::model(false)).unwrap();
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.shape("blk.1.ffn_up.weight"), Some(&[32, 32][..]));
    assert_eq!(gguf.shape("blk.2.ffn_up.weight"), None);
}

/// Where a search that is led by coverage begins; see `fuzz/README.md`.
#[test]
#[ignore = "writes files for cargo-fuzz"]
fn write_seeds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    let write = |target: &str, name: &str, bytes: &[u8]| {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(name), bytes).unwrap();
    };
    for target in ["gguf", "tokenizer"] {
        write(target, "pieces", &seeds::model(false));
        write(target, "merges", &seeds::model(true));
    }
    write("template", "chatml", seeds::TEMPLATE.as_bytes());
    for (i, word) in mutate::WORDS.iter().enumerate() {
        write("template", &format!("word-{i}"), word.as_bytes());
    }
    write("snapshot", "chat", &targets::snapshot_seed());
    for target in ["gguf", "tokenizer", "template", "snapshot", "frame"] {
        for (path, bytes) in corpus_of(target) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            write(target, &name, &bytes);
        }
    }
}
