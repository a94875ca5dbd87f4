//! What a component can import.

use crate::component::{BinaryKind, Item, ItemKind, without_version};

/// The interfaces of WASI that are linked, in any version 0.2.
const WASI: [&str; 29] = [
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stderr",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stderr",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:clocks/monotonic-clock",
    "wasi:clocks/wall-clock",
    "wasi:filesystem/preopens",
    "wasi:filesystem/types",
    "wasi:http/outgoing-handler",
    "wasi:http/types",
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:random/random",
    "wasi:sockets/instance-network",
    "wasi:sockets/ip-name-lookup",
    "wasi:sockets/network",
    "wasi:sockets/tcp",
    "wasi:sockets/tcp-create-socket",
    "wasi:sockets/udp",
    "wasi:sockets/udp-create-socket",
];

/// What is an agent's beside WASI, in any version 0.1.
const OWN: [&str; 5] = [
    "dormouse:agent/lifecycle",
    "dormouse:session/events",
    "dormouse:zones/changes",
    "dormouse:zones/history",
    "dormouse:zones/locks",
];

/// The imports of a file that there is nothing behind. Those of a core module are judged once it has
/// been made a component.
pub fn not_provided(kind: BinaryKind, imports: &[Item]) -> Vec<String> {
    if kind == BinaryKind::CoreModule {
        return Vec::new();
    }
    imports.iter().filter(|item| !is_provided(item)).map(|item| item.name.clone()).collect()
}

fn is_provided(item: &Item) -> bool {
    match item.kind {
        // types alone need nobody behind them
        ItemKind::Type => true,
        ItemKind::Instance if item.functions.is_empty() => true,
        ItemKind::Instance => {
            let name = without_version(&item.name);
            let version = item.name.strip_prefix(name).unwrap_or_default();
            (WASI.contains(&name) && version.starts_with("@0.2."))
                || (OWN.contains(&name) && version.starts_with("@0.1."))
        }
        ItemKind::Function | ItemKind::Component | ItemKind::Module | ItemKind::Other => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(name: &str, kind: ItemKind) -> Item {
        Item { name: name.into(), kind, functions: vec!["f".into()] }
    }

    #[test]
    fn versions_and_names_count() {
        let imports = [
            item("wasi:cli/exit@0.2.3", ItemKind::Instance),
            item("wasi:cli/exit@0.3.0", ItemKind::Instance),
            item("wasi:cli/exit", ItemKind::Instance),
            item("dormouse:agent/lifecycle@0.1.0", ItemKind::Instance),
            item("acme:rockets/launch@1.0.0", ItemKind::Instance),
            item("host", ItemKind::Function),
            Item { functions: Vec::new(), ..item("acme:rockets/types@1.0.0", ItemKind::Instance) },
        ];
        let missing = not_provided(BinaryKind::Component, &imports);
        let wanted = ["wasi:cli/exit@0.3.0", "wasi:cli/exit", "acme:rockets/launch@1.0.0", "host"];
        assert_eq!(missing, wanted);
        assert!(not_provided(BinaryKind::CoreModule, &imports).is_empty());
    }

    /// The list is that of the linker: every interface that is linked is in it, and no other.
    #[test]
    fn the_list_is_what_is_linked() {
        let world = include_str!("../../wit-derived/world.wit");
        let imported = world.lines().filter_map(|line| line.trim().strip_prefix("import "));
        let glue = include_str!("delegate_generated.rs");
        let delegated =
            glue.lines().filter_map(|line| line.split_once("linker.instance(\"")).map(|(_, rest)| rest);
        let mut linked: Vec<&str> = imported.chain(delegated).map(without_version).collect();
        linked.sort_unstable();
        assert_eq!(linked, WASI);
    }
}
