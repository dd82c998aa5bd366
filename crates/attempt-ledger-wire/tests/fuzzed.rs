//! Inputs that a fuzz target once failed on stay sound, and every wire has its target.

#![allow(clippy::expect_used, reason = "a test may panic, its helpers too")]
#![allow(clippy::panic, dead_code, reason = "shared with programs that use more of it")]
#![allow(unreachable_pub, missing_docs, reason = "the same")]

#[path = "../fuzz/src/lib.rs"]
mod fuzz;

use std::path::Path;

use attempt_ledger_wire::Wire;

#[test]
fn inputs_that_failed_once_do_not_again() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/regressions");
    for folder in std::fs::read_dir(root).expect("the folder of regressions") {
        let folder = folder.expect("a readable folder").path();
        let Some(target) = folder.file_name().and_then(|name| name.to_str()) else { continue };
        if !folder.is_dir() {
            continue;
        }
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable folder").path();
            let input = std::fs::read(&path).expect("a readable file");
            eprintln!("{}", path.display());
            match target {
                "request" => fuzz::request(&input),
                "encoding" => fuzz::encoding(&input),
                wire => fuzz::response(wire, &input),
            }
        }
    }
}

#[test]
fn every_wire_has_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz");
    let manifest = std::fs::read_to_string(root.join("Cargo.toml")).expect("a manifest");
    let names = Wire::ALL.iter().map(|wire| wire.as_str()).chain(["request", "encoding"]);
    for name in names {
        let target = std::fs::read_to_string(root.join(format!("targets/{name}.rs")));
        assert!(target.is_ok_and(|target| target.contains(name)), "no target for {name}");
        assert!(manifest.contains(&format!("path = \"targets/{name}.rs\"")), "{name} is not built");
    }
}
