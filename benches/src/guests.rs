//! The components that are measured. `scripts/build-guests.sh --python` makes them.

use std::path::Path;

use anyhow::Context;

/// Reads a guest that is built from Rust, and has to be there.
pub fn read(target: &Path, name: &str) -> anyhow::Result<Vec<u8>> {
    let path = target.join("guests").join(name).with_extension("wasm");
    std::fs::read(&path)
        .with_context(|| format!("{} cannot be read: `make guests` builds it", path.display()))
}

/// Reads a guest whose toolchain not everybody has; none where it was not built.
pub fn read_if_built(target: &Path, name: &str) -> Option<Vec<u8>> {
    read(target, name).ok()
}
