//! Where in a file an offset lies.

use wasmparser::{Encoding, Parser, Payload, TypeRef};

use super::refuse::Place;

/// One module or component around the offset.
#[derive(Default)]
struct Level {
    place: Place,
    components: u32,
    modules: u32,
    functions: u32,
}

/// The core module or component, and the function, that an offset lies in. A file that cannot be read so far gives the
/// outermost component.
pub fn at(wasm: &[u8], offset: usize) -> Place {
    let outermost = Place { offset: offset as u64, ..Place::default() };
    let mut levels: Vec<Level> = Vec::new();
    let mut next = outermost.clone();
    for payload in Parser::new(0).parse_all(wasm).map_while(Result::ok) {
        if let Payload::Version { encoding: Encoding::Module | Encoding::Component, .. } = payload {
            levels.push(Level { place: next.clone(), ..Level::default() });
            continue;
        }
        let Some(level) = levels.last_mut() else { break };
        match &payload {
            Payload::ModuleSection { .. } => {
                next = Place { module: Some(level.modules), ..level.place.clone() };
                level.modules += 1;
            }
            Payload::ComponentSection { .. } => {
                next = level.place.clone();
                next.components.push(level.components);
                level.components += 1;
            }
            Payload::CodeSectionStart { .. } => {}
            Payload::CodeSectionEntry(body) => {
                if body.range().contains(&offset) {
                    return Place { function: Some(level.functions), ..level.place.clone() };
                }
                level.functions += 1;
            }
            Payload::End(_) => {
                levels.pop();
            }
            other => {
                if let Payload::ImportSection(section) = other {
                    let imports = section.clone().into_imports().map_while(Result::ok);
                    let functions =
                        imports.filter(|it| matches!(it.ty, TypeRef::Func(_) | TypeRef::FuncExact(_)));
                    level.functions += functions.count() as u32;
                }
                if other.as_section().is_some_and(|(_, range)| range.contains(&offset)) {
                    return level.place.clone();
                }
            }
        }
    }
    outermost
}
