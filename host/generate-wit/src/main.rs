//! Derives the host's WASI bindings from the WIT that `wasmtime-wasi-http` ships.
//!
//! The host rewrites components so that every resource handle is a plain `u32` (see
//! `host/src/component`). Its own bindings must follow the same rule, and 202 functions are too
//! many to rewrite by hand. This program writes, relative to the repository:
//!
//! - `host/wit-derived/`: the derived WIT, for `wasmtime::component::bindgen!`;
//! - `host/src/wasi/delegate_generated.rs`: glue that serves the sockets and HTTP interfaces from
//!   the implementations in `wasmtime-wasi` and `wasmtime-wasi-http`.
//!
//! Run it after an update of wasmtime: `cargo run -p dormouse-generate-wit`. An argument names
//! another folder than the repository to write to.

mod derive;
mod glue;
mod gone;
mod names;
mod source;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

fn main() -> Result<()> {
    let root = match std::env::args_os().nth(1) {
        Some(dir) => PathBuf::from(dir),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."),
    };
    let mut resolve = source::load()?;

    let glue = source::format_rust(&glue::delegate(&resolve)?)?;
    write(&root.join("host/src/wasi/delegate_generated.rs"), &glue)?;

    let functions = derive::virtualise(&mut resolve)?;
    let derived = root.join("host/wit-derived");
    for (package, text) in derive::print_packages(&mut resolve)? {
        write(&derived.join(format!("deps/{package}.wit")), &text)?;
    }
    write(&derived.join("world.wit"), &derive::host_world(&resolve)?)?;

    println!("{functions} functions derived; {} lines of glue", glue.lines().count());
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    let parent = path.parent().context("an output path has a parent")?;
    fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))?;
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))
}
