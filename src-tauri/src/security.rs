//! What the page may do, as the configuration says it: a change of it should be meant.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde_json::Value;

fn json(file: &str) -> Value {
    let path = format!("{}/{file}", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

#[test]
fn nothing_comes_from_elsewhere_and_no_code_stands_in_the_page() {
    let config = json("tauri.conf.json");
    let security = &config["app"]["security"];
    let policy: BTreeMap<String, String> = serde_json::from_value(security["csp"].clone()).unwrap();
    assert_eq!(policy["default-src"], "'self'");
    for none in ["object-src", "frame-src", "media-src", "base-uri", "form-action"] {
        assert_eq!(policy[none], "'none'", "{none}");
    }
    let own = ["'self'", "'none'", "data:", "blob:", "ipc:", "http://ipc.localhost", "'wasm-unsafe-eval'"];
    for (directive, sources) in &policy {
        for source in sources.split_whitespace() {
            let styles = directive == "style-src" && source == "'unsafe-inline'";
            assert!(own.contains(&source) || styles, "{directive} allows {source}");
        }
    }
    let scripts: BTreeSet<_> = policy["script-src"].split_whitespace().collect();
    assert_eq!(scripts, ["'self'", "'wasm-unsafe-eval'"].into());
    assert_eq!(security.get("dangerousRemoteDomainIpcAccess"), None);
    assert_eq!(security["dangerousDisableAssetCspModification"], serde_json::json!(["style-src"]));
    assert!(security.get("assetProtocol").is_none_or(|asset| asset["enable"] == false));
    assert_ne!(config["app"]["withGlobalTauri"], true);
}

#[test]
fn the_page_has_our_commands_and_the_events_of_dropped_files_and_nothing_else() {
    let folder = format!("{}/capabilities", env!("CARGO_MANIFEST_DIR"));
    let files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(files, ["main.json"]);
    let main = json("capabilities/main.json");
    assert_eq!(main["windows"], serde_json::json!(["main"]));
    assert_eq!(main.get("remote"), None);
    assert_eq!(main["permissions"], serde_json::json!(["core:event:allow-listen", "core:event:allow-unlisten"]));
}

#[test]
fn no_plugin_can_run_programs_or_reach_files_and_the_network_for_the_page() {
    let manifest = fs::read_to_string(format!("{}/Cargo.toml", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let plugins: BTreeSet<_> = manifest
        .lines()
        .filter_map(|line| line.strip_prefix("tauri-plugin-"))
        .map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '-').next().unwrap_or_default())
        .collect();
    // Both are called by our own commands; neither is given to the page.
    assert_eq!(plugins, ["dialog", "opener"].into());
    let window = include_str!("window.rs");
    assert!(window.contains("tauri_plugin_dialog::init()") && !window.contains("tauri_plugin_opener::init"));
}
