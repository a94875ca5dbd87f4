//! Where the WIT comes from, and how generated Rust is formatted.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use wit_parser::Resolve;

const SOURCE_PACKAGE: &str = "wasmtime-wasi-http";

/// Parses the WIT of the very `wasmtime-wasi-http` that the workspace is locked to.
pub fn load() -> Result<Resolve> {
    let dir = wit_dir()?;
    let mut resolve = Resolve::default();
    resolve.push_dir(&dir).with_context(|| format!("parsing {}", dir.display()))?;
    Ok(resolve)
}

fn wit_dir() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform"])
        .arg(host_target()?) // packages of other platforms are not on this machine
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"))
        .stderr(Stdio::inherit())
        .output()
        .context("running cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", output.status);
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let manifest = metadata["packages"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|package| package["name"] == SOURCE_PACKAGE)
        .and_then(|package| package["manifest_path"].as_str())
        .with_context(|| format!("{SOURCE_PACKAGE} is not a dependency of the workspace"))?;
    Ok(PathBuf::from(manifest).with_file_name("wit"))
}

/// The target triple of this machine.
fn host_target() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("-vV").output().context("running rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("rustc does not name its host")?.to_owned())
}

/// Runs rustfmt with the repository's settings.
pub fn format_rust(code: &str) -> Result<String> {
    let mut child = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../rustfmt.toml"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("starting rustfmt")?;
    let mut stdin = child.stdin.take().context("rustfmt has no input")?;
    let input = code.to_owned();
    // rustfmt may fill its output before it has read all input
    let feeder = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output()?;
    feeder.join().map_err(|_| anyhow::anyhow!("feeding rustfmt panicked"))??;
    ensure!(output.status.success(), "rustfmt failed: {}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}
