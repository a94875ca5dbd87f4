//! The checked-in output is what the generator writes now.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const OUTPUTS: [&str; 2] = ["host/wit-derived", "host/src/wasi/delegate_generated.rs"];

#[test]
fn regenerating_changes_nothing() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let fresh = tempfile::tempdir().unwrap();
    let status =
        Command::new(env!("CARGO_BIN_EXE_dormouse-generate-wit")).arg(fresh.path()).status().unwrap();
    assert!(status.success());

    let (expected, found) = (files(fresh.path()), files(&root));
    assert!(expected.len() > 5, "too little was generated: {:?}", expected.keys());
    assert_eq!(
        expected.keys().collect::<Vec<_>>(),
        found.keys().collect::<Vec<_>>(),
        "run `cargo run -p dormouse-generate-wit`"
    );
    for (path, text) in expected {
        let differs = found[&path] != text;
        assert!(!differs, "{} differs: run `cargo run -p dormouse-generate-wit`", path.display());
    }
}

/// The generated files below a root, by path relative to it.
fn files(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut out = BTreeMap::new();
    let mut queue: Vec<PathBuf> = OUTPUTS.iter().map(|output| root.join(output)).collect();
    while let Some(path) = queue.pop() {
        if path.is_dir() {
            queue.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            out.insert(path.strip_prefix(root).unwrap().to_owned(), fs::read_to_string(&path).unwrap());
        }
    }
    out
}
