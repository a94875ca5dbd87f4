//! The derived WIT: resources become `u32`, and what belonged to them plain functions.

use std::collections::HashMap;
use std::fmt::Write as _;

use anyhow::{Context, Result, bail};
use wit_parser::{
    Docs, Function, FunctionKind, Handle, InterfaceId, PackageId, Param, Resolve, Stability, Type,
    TypeDefKind, TypeId,
};

use crate::names;

/// The namespace whose packages are derived.
const NAMESPACE: &str = "wasi";

/// Interfaces that the host implements itself; the others are delegated by the generated glue.
const OWN_INTERFACES: &[&str] = &[
    "wasi:io/error",
    "wasi:io/poll",
    "wasi:io/streams",
    "wasi:filesystem/types",
    "wasi:filesystem/preopens",
    "wasi:clocks/wall-clock",
    "wasi:clocks/monotonic-clock",
    "wasi:random/random",
    "wasi:random/insecure",
    "wasi:random/insecure-seed",
    "wasi:cli/environment",
    "wasi:cli/exit",
    "wasi:cli/stdin",
    "wasi:cli/stdout",
    "wasi:cli/stderr",
    "wasi:cli/terminal-input",
    "wasi:cli/terminal-output",
    "wasi:cli/terminal-stdin",
    "wasi:cli/terminal-stdout",
    "wasi:cli/terminal-stderr",
];

/// Rewrites every interface in place and returns how many functions they then have.
pub fn virtualise(resolve: &mut Resolve) -> Result<usize> {
    let resources: Vec<(InterfaceId, String, TypeId)> = resolve
        .interfaces
        .iter()
        .flat_map(|(id, interface)| interface.types.iter().map(move |(name, ty)| (id, name.clone(), *ty)))
        .filter(|(_, _, ty)| matches!(resolve.types[*ty].kind, TypeDefKind::Resource))
        .collect();
    let handles: HashMap<TypeId, TypeId> = resolve
        .types
        .iter()
        .filter_map(|(id, ty)| match ty.kind {
            TypeDefKind::Handle(Handle::Own(resource) | Handle::Borrow(resource)) => Some((id, resource)),
            _ => None,
        })
        .collect();

    let types: Vec<TypeId> = resolve.types.iter().map(|(id, _)| id).collect();
    for id in types {
        replace_handles(&mut resolve.types[id].kind, &handles)?;
    }

    let mut count = 0;
    let interfaces: Vec<InterfaceId> = resolve.interfaces.iter().map(|(id, _)| id).collect();
    for id in interfaces {
        for (_, mut function) in std::mem::take(&mut resolve.interfaces[id].functions) {
            function.name = names::flat(&function.name);
            function.kind = FunctionKind::Freestanding;
            function.docs = Docs::default();
            function.params.iter_mut().for_each(|param| replace(&mut param.ty, &handles));
            function.result.iter_mut().for_each(|ty| replace(ty, &handles));
            insert(resolve, id, function)?;
            count += 1;
        }
    }
    for (id, name, ty) in resources {
        let handle = Param { name: "handle".to_owned(), ty: Type::Id(ty), span: wit_parser::Span::default() };
        let function = Function {
            name: format!("drop-{name}"),
            kind: FunctionKind::Freestanding,
            params: vec![handle],
            result: None,
            docs: Docs::default(),
            stability: resolve.types[ty].stability.clone(),
            span: wit_parser::Span::default(),
            external_id: None,
        };
        insert(resolve, id, function)?;
        count += 1;
    }
    Ok(count)
}

fn insert(resolve: &mut Resolve, id: InterfaceId, function: Function) -> Result<()> {
    let name = function.name.clone();
    if resolve.interfaces[id].functions.insert(name.clone(), function).is_some() {
        bail!("two functions of {} become `{name}`", names::versioned(resolve, id)?);
    }
    Ok(())
}

fn replace(ty: &mut Type, handles: &HashMap<TypeId, TypeId>) {
    if let Type::Id(id) = ty
        && let Some(resource) = handles.get(id)
    {
        *id = *resource;
    }
}

fn replace_handles(kind: &mut TypeDefKind, handles: &HashMap<TypeId, TypeId>) -> Result<()> {
    match kind {
        TypeDefKind::Resource => *kind = TypeDefKind::Type(Type::U32),
        TypeDefKind::Record(record) => {
            record.fields.iter_mut().for_each(|field| replace(&mut field.ty, handles));
        }
        TypeDefKind::Tuple(tuple) => tuple.types.iter_mut().for_each(|ty| replace(ty, handles)),
        TypeDefKind::Variant(variant) => {
            for ty in variant.cases.iter_mut().filter_map(|case| case.ty.as_mut()) {
                replace(ty, handles);
            }
        }
        TypeDefKind::Option(ty) | TypeDefKind::List(ty) | TypeDefKind::Type(ty) => replace(ty, handles),
        TypeDefKind::Result(result) => {
            result.ok.iter_mut().chain(&mut result.err).for_each(|ty| replace(ty, handles));
        }
        TypeDefKind::Handle(_) | TypeDefKind::Flags(_) | TypeDefKind::Enum(_) => {}
        other => bail!("the rule does not cover a {} yet", other.as_str()),
    }
    Ok(())
}

/// The text of every derived package, by name, without worlds and documentation.
pub fn print_packages(resolve: &mut Resolve) -> Result<Vec<(String, String)>> {
    let packages: Vec<(PackageId, String)> = resolve
        .packages
        .iter()
        .filter(|(_, package)| package.name.namespace == NAMESPACE)
        .map(|(id, package)| (id, package.name.name.clone()))
        .collect();
    let mut out = Vec::new();
    for (id, name) in packages {
        resolve.packages[id].worlds.clear();
        let mut printer = wit_component::WitPrinter::default();
        printer.emit_docs(false);
        printer.print(resolve, id, &[]).with_context(|| format!("printing {name}"))?;
        let text = printer.output.to_string();
        out.push((name, format!("{}{}\n", HEADER, text.trim_end())));
    }
    Ok(out)
}

/// First line of every derived WIT file.
const HEADER: &str = "// @generated by dormouse-generate-wit; do not edit\n";

/// The world of what the host implements itself, in the versions found.
pub fn host_world(resolve: &Resolve) -> Result<String> {
    let mut text = format!("{HEADER}package dormouse:host;\n\nworld host {{\n");
    for own in OWN_INTERFACES {
        let (id, interface) = find(resolve, own)?;
        if let Stability::Unstable { .. } = interface.stability {
            bail!("{own} is unstable");
        }
        writeln!(text, "  import {};", names::versioned(resolve, id)?)?;
    }
    text.push_str("}\n");
    Ok(text)
}

/// The interface of a name without version.
pub fn find<'a>(resolve: &'a Resolve, name: &str) -> Result<(InterfaceId, &'a wit_parser::Interface)> {
    for (id, interface) in &resolve.interfaces {
        if interface.name.is_some() && names::interface(resolve, id)? == name {
            return Ok((id, interface));
        }
    }
    bail!("{name} is not in the WIT");
}
