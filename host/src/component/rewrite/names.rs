//! The names that the rewriter makes.

use std::borrow::Cow;

/// Exports of a component that begin so belong to the rewriter. Labels compare without case.
pub const RESERVED_COMPONENT_PREFIX: &str = "dormouse-";

/// Exports of a core module that begin so belong to the rewriter.
pub const RESERVED_CORE_PREFIX: &str = "dormouse:";

/// Export of a component: `dormouse-save` and a suffix copies the globals of one level to memory.
pub const SAVE: &str = "dormouse-save";

/// Export of a component: `dormouse-load` and a suffix copies them back.
pub const LOAD: &str = "dormouse-load";

/// The core export of a global for the accessor.
pub fn global(index: u32) -> String {
    format!("{RESERVED_CORE_PREFIX}global:{index}")
}

/// The core export of a memory for the accessor.
pub fn memory(index: u32) -> String {
    format!("{RESERVED_CORE_PREFIX}memory:{index}")
}

/// The function that an interface gains for dropping a handle.
pub fn drop(resource: &str) -> String {
    format!("drop-{resource}")
}

/// The name of a function once its resource is a number: `[method]r.f` becomes `method-r-f`.
///
/// Must agree with `host/generate-wit/src/names.rs`.
pub fn flat(name: &str) -> Cow<'_, str> {
    for kind in ["method", "static", "constructor"] {
        let rest = name
            .strip_prefix('[')
            .and_then(|rest| rest.strip_prefix(kind))
            .and_then(|rest| rest.strip_prefix(']'));
        if let Some(rest) = rest {
            return Cow::Owned(format!("{kind}-{}", rest.replace('.', "-")));
        }
    }
    Cow::Borrowed(name)
}
