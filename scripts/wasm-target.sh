#!/usr/bin/env bash
# Adds the target wasm32-wasip2, for which the guests are built, to the active Rust toolchain.
# Does nothing where it is there already.
set -euo pipefail

target=wasm32-wasip2

if ! command -v rustc >/dev/null; then
  echo "wasm-target: there is no Rust here; install it as https://rustup.rs says" >&2
  exit 1
fi
libraries=$(rustc --print sysroot)/lib/rustlib/$target/lib
if compgen -G "$libraries/libstd-*.rlib" >/dev/null; then
  exit 0
fi
if ! command -v rustup >/dev/null; then
  echo "wasm-target: this Rust has no standard library for $target, and no rustup to add it with;" >&2
  echo "  install the package of your system that has it, or Rust as https://rustup.rs says" >&2
  exit 1
fi
echo "adding the target $target to $(rustup show active-toolchain | head -n 1)"
if ! rustup target add "$target"; then
  echo "wasm-target: rustup could not add $target (see above); without it no guest can be built" >&2
  exit 1
fi
