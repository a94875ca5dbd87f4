//! The naming rule shared with the component rewriter, and WIT names as Rust names.

use anyhow::{Context, Result};
use wit_parser::{InterfaceId, Resolve, TypeDefKind, TypeId};

/// The name of a function once its resource is a number: `[method]r.f` becomes `method-r-f`, and a name that looks as
/// if it were made so gets a word in front.
///
/// Must agree with `host/src/component/rewrite/names.rs`.
pub fn flat(name: &str) -> String {
    for kind in ["method", "static", "constructor"] {
        if let Some(rest) = name.strip_prefix(&format!("[{kind}]")) {
            return format!("{kind}-{}", rest.replace('.', "-"));
        }
    }
    match name.split_once('-') {
        Some(("drop" | "method" | "static" | "constructor" | "plain", _)) => format!("plain-{name}"),
        _ => name.to_owned(),
    }
}

/// `tcp-socket` as `tcp_socket`.
pub fn snake(name: &str) -> String {
    name.replace('-', "_")
}

/// `tcp-socket` as `TcpSocket`.
pub fn camel(name: &str) -> String {
    let mut out = String::new();
    for word in name.split('-') {
        let mut chars = word.chars();
        if let Some(first) = chars.next() {
            out.extend(first.to_uppercase());
            out.push_str(chars.as_str());
        }
    }
    out
}

/// `wasi:io/poll@0.2.12`.
pub fn versioned(resolve: &Resolve, interface: InterfaceId) -> Result<String> {
    resolve.id_of(interface).context("an interface without a name")
}

/// `wasi:io/poll`.
pub fn interface(resolve: &Resolve, interface: InterfaceId) -> Result<String> {
    let full = versioned(resolve, interface)?;
    Ok(full.split_once('@').map_or(full.clone(), |(name, _)| name.to_owned()))
}

/// Follows `use` and `type a = b` to where a type is defined.
pub fn definition(resolve: &Resolve, mut id: TypeId) -> TypeId {
    while let TypeDefKind::Type(wit_parser::Type::Id(next)) = resolve.types[id].kind {
        id = next;
    }
    id
}

/// The name of a type where it is defined.
pub fn type_name(resolve: &Resolve, id: TypeId) -> Result<&str> {
    resolve.types[definition(resolve, id)].name.as_deref().context("a type without a name")
}

/// `wasi:io/poll.pollable`.
pub fn full_type(resolve: &Resolve, id: TypeId) -> Result<String> {
    let id = definition(resolve, id);
    let wit_parser::TypeOwner::Interface(owner) = resolve.types[id].owner else {
        anyhow::bail!("a type outside an interface");
    };
    Ok(format!("{}.{}", interface(resolve, owner)?, type_name(resolve, id)?))
}
