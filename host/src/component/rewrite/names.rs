//! The names that the rewriter makes.

use std::borrow::Cow;

/// Exports of a component that begin so belong to the rewriter. Labels compare without case.
pub const RESERVED_COMPONENT_PREFIX: &str = "dormouse-";

/// Interfaces that begin so belong to the rewriter.
pub const RESERVED_INTERFACE_PREFIX: &str = "dormouse:rewrite/";

/// Exports of a core module that begin so belong to the rewriter.
pub const RESERVED_CORE_PREFIX: &str = "dormouse:";

/// What an instance gets its references by, where these are numbers.
pub const REFERENCES: &str = "dormouse:references";

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

/// The first words of the names that [`drop`] and [`flat`] make.
const MADE: [&str; 5] = ["drop", "method", "static", "constructor", PLAIN];

/// The first word of a name that looks as if it were made here.
const PLAIN: &str = "plain";

/// The name of something once resources are numbers: `[method]r.f` becomes `method-r-f`. A name of the component's own
/// that begins as a made one does gets a word in front, so that it is never taken for one: `drop-r` becomes
/// `plain-drop-r`. It depends on the name alone, since a part knows an interface under the names that it uses of it.
/// Nothing in WASI or in Dormouse's own interfaces is called so.
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
    match name.split_once('-') {
        Some((first, _)) if is_made(first) && !name.contains(':') => Cow::Owned(format!("{PLAIN}-{name}")),
        _ => Cow::Borrowed(name),
    }
}

/// Whether a made name begins with this word. Labels compare without case.
fn is_made(word: &str) -> bool {
    MADE.iter().any(|made| made.eq_ignore_ascii_case(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_ones_own_are_never_those_that_are_made() {
        assert_eq!(flat("[method]r.drop-it"), "method-r-drop-it");
        assert_eq!(flat("[constructor]r"), "constructor-r");
        for (own, new) in [
            ("drop-r", "plain-drop-r"),
            ("DROP-r", "plain-DROP-r"),
            ("method-r-f", "plain-method-r-f"),
            ("plain-drop-r", "plain-plain-drop-r"),
            ("drop", "drop"),
            ("dropped-r", "dropped-r"),
            ("a-drop-r", "a-drop-r"),
            ("drop-in:shop/static-r", "drop-in:shop/static-r"),
        ] {
            assert_eq!(flat(own), new);
        }
    }

    /// The host's interfaces have the names that their WIT has.
    #[test]
    fn no_interface_of_the_hosts_has_a_name_that_changes() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../wit");
        let folders = [root.clone(), root.join("deps/dormouse-zones")];
        let files =
            folders.iter().flat_map(|folder| folder.read_dir().unwrap()).map(|entry| entry.unwrap().path());
        let mut seen = 0;
        for file in files.filter(|path| path.extension().is_some_and(|ending| ending == "wit")) {
            let text = std::fs::read_to_string(&file).unwrap();
            for (name, _) in text.lines().filter_map(|line| line.split_once(": func(")) {
                let name = name.trim().trim_start_matches("export ");
                assert_eq!(flat(name), name, "{}", file.display());
                seen += 1;
            }
        }
        assert!(seen > 10, "only {seen} functions");
    }
}
