//! The command line as other programs use it, with the starter model.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn cistern(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cistern"))
        .args(args)
        // The model of the checkout, whatever the person running this has.
        .env("CISTERN_MODELS", models())
        .output()
        .unwrap()
}

fn models() -> PathBuf {
    match std::env::var_os("CISTERN_TEST_MODELS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../models"),
    }
}

/// The one JSON object on stdout.
fn json(args: &[&str]) -> Value {
    let output = cistern(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("stdout is one JSON object and nothing else")
}

/// The exit status, and the one sentence on stderr.
fn failure(args: &[&str]) -> (i32, String) {
    let output = cistern(args);
    assert!(output.stdout.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stdout));
    let sentence = String::from_utf8(output.stderr).unwrap().trim().to_owned();
    (output.status.code().unwrap(), sentence)
}

fn write(folder: &tempfile::TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn tokenize_prints_ids_of_a_text_or_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let text = "fn main() { /* 日本語 🦀 */ }<|im_end|>";
    let file = write(&folder, "a.txt", text);
    let ids = json(&["tokenize", "--text", text]);
    assert_eq!(ids, json(&["tokenize", "--file", &file]));
    // In this model's vocabulary 2 is <|im_end|>.
    assert_eq!(ids["ids"].as_array().unwrap().last(), Some(&Value::from(2)));
}

#[test]
fn trace_keeps_what_the_budget_allows_and_repeats_itself() {
    let folder = tempfile::tempdir().unwrap();
    let ids: Vec<u32> = (0..160).map(|i| 1000 + i * 37 % 4000).collect();
    let file = write(&folder, "ids.json", &serde_json::to_string(&ids).unwrap());
    let args = ["trace", "--ids", &file, "--budget", "64", "--chunk", "48", "--json"];
    let trace = json(&args);

    assert_eq!(trace["n_seen"], 160);
    assert_eq!(trace["logits"].as_array().unwrap().len(), 49152);
    let layers: Vec<Vec<Vec<u32>>> = serde_json::from_value(trace["layers"].clone()).unwrap();
    assert_eq!((layers.len(), layers[0].len()), (30, 3));
    for positions in layers.iter().flatten() {
        assert_eq!(positions.len(), 64);
        assert!(positions.is_sorted() && positions[..4] == [0, 1, 2, 3] && positions[63] == 159);
    }
    assert_eq!(trace, json(&args), "deterministic");

    let whole = json(&["trace", "--ids", &file, "--policy", "full", "--json"]);
    assert_eq!(whole["layers"][29][2].as_array().unwrap().len(), 160);
}

#[test]
fn ask_reads_a_document_once_and_answers_each_question_within_the_budget() {
    let folder = tempfile::tempdir().unwrap();
    let text = "The tower was built in 1889 by the company of Gustave Eiffel. It is 330 metres tall. ".repeat(12);
    let doc = write(&folder, "tower.md", &text);
    let out = json(&[
        "ask",
        "--doc",
        &doc,
        "--ask",
        "When was the tower built?",
        "--ask",
        "How tall is it?",
        "--budget",
        "128",
        "--chunk",
        "64",
        "--evict-every",
        "16",
        "--max-tokens",
        "16",
        "--temperature",
        "0",
        "--json",
    ]);

    assert!(out["doc_tokens"].as_u64().unwrap() > 200, "{out}");
    let answers = out["answers"].as_array().unwrap();
    assert_eq!(answers.len(), 2);
    for answer in answers {
        assert!(!answer["text"].as_str().unwrap().trim().is_empty());
        assert!((1..=16).contains(&answer["tokens"].as_u64().unwrap()));
        assert!(answer["ttft_s"].as_f64().unwrap() > 0.0 && answer["tok_s"].as_f64().unwrap() > 0.0);
        let kept = answer["kept"].as_f64().unwrap();
        assert!(kept > 0.0 && kept < 1.0, "{kept}");
    }
    // Nothing of the document is read again for the second question.
    assert!(answers[1]["ttft_s"].as_f64() < answers[0]["ttft_s"].as_f64(), "{out}");

    let bytes = &out["kv_bytes"];
    let [peak, now, full] = ["hot_peak", "hot_now", "full_would_be"].map(|key| bytes[key].as_u64().unwrap());
    // 30 layers × 3 KV heads × 64 dimensions × K and V × 2 bytes, with 8 bytes of position and score an entry.
    let per_token = 30 * 3 * (64 * 2 * 2 + 8);
    assert!(now <= peak && peak <= (128 + 64) * per_token * 11 / 10, "{bytes}");
    assert!(full > 2 * now, "{bytes}");
    // Everything is in the store: both turns, K and V of every token.
    assert!(bytes["store"].as_u64().unwrap() > full / 2, "{bytes}");
    if cfg!(target_os = "linux") {
        assert!(out["rss_peak"].as_u64().unwrap() > 90 << 20);
    }
}

#[test]
fn recall_can_be_switched_off_and_on() {
    for recall in ["off", "on"] {
        let out = json(&["ask", "--ask", "Say yes.", "--recall", recall, "--max-tokens", "4", "--json"]);
        assert_eq!(out["answers"][0]["tokens"], 4, "{out}");
    }
}

#[test]
fn bench_measures_every_combination_and_draws_it() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("speed.svg");
    let out = json(&[
        "bench",
        "--context",
        "0,96",
        "--gen",
        "4",
        "--policy",
        "full,window",
        "--budget",
        "64",
        "--reps",
        "2",
        "--json",
        "--plot",
        plot.to_str().unwrap(),
    ]);
    let rows = out["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        let speed = &row["decode_tok_s"];
        let [min, median, max] = ["min", "median", "max"].map(|key| speed[key].as_f64().unwrap());
        assert!(0.0 < min && min <= median && median <= max, "{row}");
        assert_eq!(row["prefill_tok_s"].is_null(), row["context"] == 0);
        assert!(row["roofline"]["median"].as_f64().unwrap() > 0.0, "{row}");
    }
    let [open, first] = ["open_s", "first_token_s"].map(|key| out[key].as_f64().unwrap());
    assert!(0.0 < open && open < first, "{open} {first}");
    let (weights, file) = (out["weight_bytes"].as_f64().unwrap(), 98_362_432.0);
    assert!(weights > 0.9 * file && weights < file, "a token reads every weight: {weights}");
    let hot = |i: usize| rows[i]["hot_bytes"]["median"].as_f64().unwrap();
    assert!(hot(3) < hot(2), "the window holds less than everything");
    let svg = std::fs::read_to_string(plot).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("window, budget 64"));
}

#[test]
fn models_list_names_the_starter_and_verify_reads_it() {
    let list = json(&["models", "list", "--json"]);
    let starter = &list["models"][0];
    assert_eq!(starter["id"], "smollm2-135m-instruct");
    assert!(starter["path"].is_string(), "{starter}");
    let verified = json(&["models", "verify", "smollm2-135m-instruct", "--json"]);
    assert_eq!(verified["models"][0]["ok"], true);
}

#[test]
fn wrong_use_is_status_2_and_a_failed_run_status_1_each_with_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let broken = write(&folder, "broken.gguf", "not a model");
    let ids = write(&folder, "ids.json", "[1, 2, 99999999]");

    let (status, sentence) = failure(&["ask", "--model", "gpt-5", "--ask", "Hi", "--json"]);
    assert_eq!((status, sentence.lines().count()), (2, 1), "{sentence}");
    let (status, sentence) = failure(&["ask", "--model", &broken, "--ask", "Hi", "--json"]);
    assert_eq!((status, sentence.lines().count()), (1, 1), "{sentence}");
    assert!(sentence.contains("broken.gguf"), "{sentence}");
    let (status, sentence) = failure(&["ask", "--doc", "missing.pdf", "--ask", "Hi", "--json"]);
    assert_eq!((status, sentence.lines().count()), (1, 1), "{sentence}");
    let (status, sentence) = failure(&["trace", "--ids", &ids, "--json"]);
    assert_eq!((status, sentence.lines().count()), (2, 1), "{sentence}");
    let (status, _) = failure(&["ask", "--policy", "lru", "--ask", "Hi"]);
    assert_eq!(status, 2);
    let (status, sentence) = failure(&["ask", "--ask", "Hi", "--budget", "3", "--json"]);
    assert_eq!((status, sentence.lines().count()), (2, 1), "{sentence}");
}

#[test]
fn ask_goes_on_from_a_snapshot_and_says_when_it_cannot() {
    let folder = tempfile::tempdir().unwrap();
    let doc = write(&folder, "a.txt", &"The lantern in the north tower is green. ".repeat(40));
    let snapshot = folder.path().join("a.snapshot");
    let snapshot = snapshot.to_str().unwrap();
    let args = ["ask", "--doc", &doc, "--ask", "Which colour?", "--budget", "128", "--max-tokens", "4", "--json"];
    let args = [&args[..], &["--temperature", "0", "--snapshot", snapshot, "--pin", "north tower"]].concat();
    let first = json(&args);
    assert!(first["answers"][0]["prefilled"].as_u64().unwrap() > 300);
    assert_eq!(first["prefill"], "streaming", "it is shorter than a chunk");
    assert!(first["kv_bytes"]["store"].as_u64().unwrap() > first["kv_bytes"]["hot_now"].as_u64().unwrap());
    let second = json(&args);
    assert!(second["answers"][0]["prefilled"].as_u64().unwrap() < 16, "{second}");

    std::fs::write(snapshot, "no snapshot").unwrap();
    let output = cistern(&args);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("read again"));
}

#[test]
fn eval_compares_with_the_full_cache_and_repeats_itself() {
    let folder = tempfile::tempdir().unwrap();
    let plot = folder.path().join("kl.svg");
    let args =
        ["eval", "--suite", "kl", "--tokens", "512", "--gen", "8", "--policy", "h2o,expected", "--budget", "25%"];
    let args = [&args[..], &["--recall", "off", "--json", "--plot", plot.to_str().unwrap()]].concat();
    let report = json(&args);
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 3);
    assert_eq!((&rows[0]["policy"], &rows[0]["budget"]), (&Value::from("full"), &Value::Null));
    assert!(rows[0]["kl"].as_f64().unwrap() < 1e-3 && rows[0]["top1"] == 1.0);
    for row in &rows[1..] {
        assert_eq!(row["budget"], 128);
        assert!(row["kl"].as_f64().unwrap() > 0.0);
        assert!(row["hot_bytes"].as_u64().unwrap() < rows[0]["hot_bytes"].as_u64().unwrap() / 2);
    }
    assert!(std::fs::read_to_string(&plot).unwrap().contains("expected"));
    assert_eq!(json(&args), report);

    let (status, sentence) = failure(&["eval", "--suite", "kl", "--tokens", "100000"]);
    assert_eq!(status, 2);
    assert!(sentence.contains("--text"), "{sentence}");
}

/// The most address space that a run took, in bytes.
#[cfg(target_os = "linux")]
fn address_space(command: &mut Command) -> u64 {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
        let kib = peak.and_then(|text| text.trim().trim_end_matches(" kB").parse::<u64>().ok());
        most = most.max(kib.unwrap_or(0) << 10);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    most
}

#[cfg(target_os = "linux")]
#[test]
fn under_a_limit_of_the_system_a_question_is_answered_with_less_or_refused_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let document = write(&folder, "a.txt", &"The lighthouse keeper counts the ships that pass at night. ".repeat(30));
    let model = models().join("SmolLM2-135M-Instruct.Q4_1.gguf");
    let ask = |limit: &str| {
        let mut command = Command::new("sh");
        let line = format!("ulimit -v {limit} && exec \"$@\"");
        command.args(["-c", &line, "sh", env!("CARGO_BIN_EXE_cistern"), "ask", "--model"]).arg(&model);
        command.args(["--doc", &document, "--ask", "Who counts?", "--max-tokens", "2", "--threads", "1", "--json"]);
        command.env("MALLOC_ARENA_MAX", "1");
        command
    };
    let enough = address_space(&mut ask("unlimited"));
    let mut answered = Vec::new();
    for more in [0u64, 72, 80, 88, 96, 192] {
        let output = ask(&((enough + (more << 20)) >> 10).to_string()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {
                let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
                assert!(!printed["answers"][0]["text"].as_str().unwrap().is_empty());
                answered.push((more, said.into_owned()));
            }
            Some(1) => assert!(said.contains("memory") && said.trim().ends_with('.'), "{more}: {said}"),
            code => panic!("{more}: ended by {code:?}, {said}"),
        }
    }
    println!("{answered:#?}");
    assert!(answered.iter().any(|(_, said)| !said.is_empty()), "with less, and it is said");
    assert_eq!(answered.last().unwrap(), &(192, String::new()));
}
