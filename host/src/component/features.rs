//! The features of WebAssembly whose state a snapshot covers.

use wasmparser::types::Types;
use wasmparser::{Validator, WasmFeatures};

use super::error::ComponentError;
use super::place;
use super::refuse::{Reason, Refusal};

/// What the engine runs and a snapshot covers. A list of what is allowed rather than of what is not:
/// a proposal that is not known here is refused.
pub fn supported() -> WasmFeatures {
    WasmFeatures::MUTABLE_GLOBAL
        | WasmFeatures::SATURATING_FLOAT_TO_INT
        | WasmFeatures::SIGN_EXTENSION
        | WasmFeatures::REFERENCE_TYPES
        | WasmFeatures::MULTI_VALUE
        | WasmFeatures::BULK_MEMORY
        | WasmFeatures::SIMD
        | WasmFeatures::RELAXED_SIMD
        | WasmFeatures::TAIL_CALL
        | WasmFeatures::FLOATS
        | WasmFeatures::MULTI_MEMORY
        | WasmFeatures::EXTENDED_CONST
        | WasmFeatures::EXCEPTIONS
        | WasmFeatures::COMPONENT_MODEL
}

/// Validates a whole file, function bodies included.
///
/// A file that is valid only with features that are not supported is refused; one that is not valid
/// at all is invalid. The types are those of the outermost level.
pub fn validate(wasm: &[u8]) -> Result<Types, ComponentError> {
    let error = match with(wasm, supported()) {
        Ok(types) => return Ok(types),
        Err(error) => error,
    };
    with(wasm, WasmFeatures::all()).map_err(|error| ComponentError::invalid(&error))?;
    let place = place::at(wasm, error.offset());
    Err(ComponentError::Refused(vec![Refusal {
        reason: Reason::Unsupported(error.message().to_owned()),
        place,
    }]))
}

fn with(wasm: &[u8], features: WasmFeatures) -> Result<Types, wasmparser::Error> {
    Validator::new_with_features(features).validate_all(wasm)
}
