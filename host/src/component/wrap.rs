//! Makes a component of a core module for WASI preview 1.

use wit_component::ComponentEncoder;

use super::error::ComponentError;
use super::scan::{BinaryKind, Scan, scan};

const PREVIEW1: &str = "wasi_snapshot_preview1";

/// The export that makes a core module a command.
const START: &str = "_start";

/// Wraps a core module that imports `wasi_snapshot_preview1` with the adapter: as a command if it
/// exports `_start`, as a reactor otherwise. Other imports and the exports must be described by WIT
/// that its toolchain has embedded.
///
/// # Errors
/// What [`scan`] says of the module, and [`ComponentError::Wrap`].
pub fn wrap_core_module(wasm: &[u8]) -> Result<Vec<u8>, ComponentError> {
    let module = scan(wasm)?;
    if module.kind != BinaryKind::CoreModule {
        return Err(ComponentError::Wrap("it is a component already".to_owned()));
    }
    module.capturable.clone().map_err(ComponentError::Refused)?;
    unknown_wasi(&module)?;

    let is_command = module.exports.iter().any(|export| export.name == START);
    let adapter = if is_command {
        wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER
    } else {
        wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER
    };
    let wrap = |error| ComponentError::Wrap(format!("{error:#}"));
    let mut encoder = ComponentEncoder::default().validate(true).module(wasm).map_err(wrap)?;
    if imports_preview1(&module) {
        encoder = encoder.adapter(PREVIEW1, adapter).map_err(wrap)?;
    }
    encoder.encode().map_err(wrap)
}

fn imports_preview1(module: &Scan) -> bool {
    module.imports.iter().any(|import| is_from(&import.name, PREVIEW1))
}

fn is_from(import: &str, module: &str) -> bool {
    import.strip_prefix(module).is_some_and(|rest| rest.starts_with('.'))
}

/// Older WASI has no adapter, and deserves a plain word rather than wit-component's.
fn unknown_wasi(module: &Scan) -> Result<(), ComponentError> {
    match module.imports.iter().find(|import| is_from(&import.name, "wasi_unstable")) {
        Some(import) => {
            let name = &import.name;
            Err(ComponentError::Wrap(format!(
                "it imports `{name}`, of a WASI before preview 1; build it anew"
            )))
        }
        None => Ok(()),
    }
}
