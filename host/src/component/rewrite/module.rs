//! A core module with its state exported, and for the restore variant without its initial data.

use wasm_encoder::reencode::{Reencode, RoundtripReencoder};
use wasm_encoder::{DataSection, ExportKind, ExportSection, Module, RawSection};
use wasmparser::{DataKind, ExportSectionReader, Parser, Payload};

use super::{Variant, merge, names};
use crate::component::error::ComponentError;
use crate::component::module::ModuleInfo;

/// Sections that come after the export section: start, elements, code, data, data count.
const AFTER_EXPORTS: [u8; 5] = [8, 9, 10, 11, 12];

/// With more active data segments than this, the boot variant gets fewer and larger ones: the compiler
/// makes code of each, all in one function, and takes more than proportionally long for it.
const MANY_SEGMENTS: usize = 1_000;

/// Copies a module section by section, so that function indices and code offsets stay as they are.
pub fn instrument(wasm: &[u8], info: &ModuleInfo, variant: Variant) -> Result<Module, ComponentError> {
    let mut module = Module::new();
    let mut exported = false;
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(|error| ComponentError::invalid(&error))?;
        let section = payload.as_section();
        if let Some((id, _)) = &section
            && !exported
            && AFTER_EXPORTS.contains(id)
        {
            module.section(&exports(None, info)?);
            exported = true;
        }
        match &payload {
            Payload::ExportSection(reader) => {
                module.section(&exports(Some(reader.clone()), info)?);
                exported = true;
                continue;
            }
            Payload::StartSection { .. } if variant == Variant::Restore => continue,
            Payload::DataSection(reader) if variant == Variant::Restore => {
                module.section(&without_active_data(reader.clone())?);
                continue;
            }
            Payload::DataSection(reader) if info.active_data > MANY_SEGMENTS => {
                match merge::few(reader.clone(), info)? {
                    Some(section) => module.section(&section),
                    None => module.section(&RawSection { id: 11, data: &wasm[reader.range()] }),
                };
                continue;
            }
            // names and line tables make backtraces readable; nothing else is of use at run time
            Payload::CustomSection(reader) if !is_debug_info(reader.name()) => continue,
            _ => {}
        }
        if let Some((id, range)) = section {
            module.section(&RawSection { id, data: &wasm[range] });
        }
    }
    if !exported {
        module.section(&exports(None, info)?);
    }
    Ok(module)
}

fn is_debug_info(name: &str) -> bool {
    name == "name" || name.starts_with(".debug_")
}

fn exports(old: Option<ExportSectionReader<'_>>, info: &ModuleInfo) -> Result<ExportSection, ComponentError> {
    let mut section = ExportSection::new();
    for export in old.into_iter().flatten() {
        let export = export.map_err(|error| ComponentError::invalid(&error))?;
        RoundtripReencoder
            .parse_export(&mut section, export)
            .map_err(|error| ComponentError::Rewriter(error.to_string()))?;
    }
    for (index, _) in &info.globals {
        section.export(&names::global(*index), ExportKind::Global, *index);
    }
    for (index, _) in &info.memories {
        section.export(&names::memory(*index), ExportKind::Memory, *index);
    }
    Ok(section)
}

/// Active segments become empty passive ones: indices stay, and nothing is copied to memory. To code
/// they look the same, since an active segment counts as dropped once it has been copied.
fn without_active_data(reader: wasmparser::DataSectionReader<'_>) -> Result<DataSection, ComponentError> {
    let mut section = DataSection::new();
    for data in reader {
        let data = data.map_err(|error| ComponentError::invalid(&error))?;
        match data.kind {
            DataKind::Active { .. } => section.passive([]),
            DataKind::Passive => section.passive(data.data.iter().copied()),
        };
    }
    Ok(section)
}
