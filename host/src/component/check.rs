//! Looks through a component for what cannot be captured.

use std::collections::HashSet;

use wasmparser::{
    CanonicalFunction, CanonicalOption, ComponentTypeRef, CompositeInnerType, ElementItems, GlobalType,
    MemoryType, Payload, TableType, TypeBounds, TypeRef, ValType,
};

use super::code::CodeUse;
use super::exceptions;
use super::limits;
use super::refuse::{Place, Reason, Refusal};
use super::rewrite::names;

/// Collects refusals, each reason once for each core module and each component.
#[derive(Default)]
pub struct Checker {
    refusals: Vec<Refusal>,
    seen: HashSet<(Vec<u32>, Option<u32>, Reason)>,
}

type Outcome = Result<(), wasmparser::Error>;

impl Checker {
    pub fn finish(self) -> Vec<Refusal> {
        self.refusals
    }

    pub fn refuse(&mut self, reason: Reason, place: Place) {
        let key = (place.components.clone(), place.module, reason.clone());
        if self.refusals.len() < limits::MAX_REFUSALS && self.seen.insert(key) {
            self.refusals.push(Refusal { reason, place });
        }
    }

    /// Checks one section of a component itself.
    pub fn component(&mut self, payload: &Payload<'_>, place: &Place) -> Outcome {
        let at = |offset: usize| Place { offset: offset as u64, ..place.clone() };
        match payload {
            Payload::ComponentCanonicalSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, function) = item?;
                    if let Some(reason) = canonical(&function) {
                        self.refuse(reason, at(offset));
                    }
                }
            }
            Payload::ComponentImportSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, import) = item?;
                    self.reserved(import.name.name, names::RESERVED_COMPONENT_PREFIX, || at(offset));
                    self.reserved(import.name.name, names::RESERVED_INTERFACE_PREFIX, || at(offset));
                    let is_resource = matches!(import.ty, ComponentTypeRef::Type(TypeBounds::SubResource));
                    if is_resource && place.components.is_empty() {
                        self.refuse(Reason::LooseResource, at(offset));
                    }
                }
            }
            Payload::ComponentExportSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, export) = item?;
                    self.reserved(export.name.name, names::RESERVED_COMPONENT_PREFIX, || at(offset));
                }
            }
            Payload::ComponentStartSection { range, .. } => self.refuse(Reason::Values, at(range.start)),
            _ => {}
        }
        Ok(())
    }

    /// Checks one section of a core module.
    pub fn module(&mut self, payload: &Payload<'_>, place: &Place, code: &mut CodeUse) -> Outcome {
        let at = |offset: usize| Place { offset: offset as u64, ..place.clone() };
        match payload {
            Payload::TypeSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, group) = item?;
                    let is_function = |ty: &wasmparser::SubType| {
                        matches!(ty.composite_type.inner, CompositeInnerType::Func(_))
                    };
                    if !group.types().all(is_function) {
                        self.refuse(Reason::GarbageCollection, at(offset));
                    }
                    if group.types().any(names_external) {
                        self.refuse(Reason::ExternalReference, at(offset));
                    }
                }
            }
            Payload::ImportSection(section) => {
                for item in section.clone().into_imports_with_offsets() {
                    let (offset, import) = item?;
                    if import.module == names::REFERENCES {
                        self.refuse(Reason::ReservedName(import.module.to_owned()), at(offset));
                    }
                    match import.ty {
                        // a tag is no state
                        TypeRef::Func(_) | TypeRef::FuncExact(_) | TypeRef::Tag(_) => {}
                        TypeRef::Memory(ty) => self.memory(&ty, &at(offset)),
                        TypeRef::Table(ty) => self.table(&ty, &at(offset)),
                        TypeRef::Global(ty) => self.global(&ty, &at(offset), code),
                    }
                }
            }
            Payload::MemorySection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, ty) = item?;
                    self.memory(&ty, &at(offset));
                }
            }
            Payload::TableSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, table) = item?;
                    self.table(&table.ty, &at(offset));
                }
            }
            Payload::GlobalSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, global) = item?;
                    self.global(&global.ty, &at(offset), code);
                }
            }
            Payload::ExportSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, export) = item?;
                    self.reserved(export.name, names::RESERVED_CORE_PREFIX, || at(offset));
                }
            }
            Payload::ElementSection(section) => {
                for item in section.clone().into_iter_with_offsets() {
                    let (offset, element) = item?;
                    if let ElementItems::Expressions(ty, _) = element.items
                        && exceptions::are_referred_to(ty)
                    {
                        self.refuse(Reason::KeptExceptions("an element segment"), at(offset));
                    }
                }
            }
            Payload::CodeSectionEntry(body) => {
                code.observe(body)?;
                if let Some(offset) = code.legacy_exceptions {
                    self.refuse(Reason::LegacyExceptions, at(offset));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn memory(&mut self, ty: &MemoryType, place: &Place) {
        if ty.shared {
            self.refuse(Reason::SharedMemory, place.clone());
        }
        if ty.memory64 {
            self.refuse(Reason::Memory64, place.clone());
        }
        if ty.page_size_log2.is_some() {
            self.refuse(Reason::PageSize, place.clone());
        }
    }

    fn table(&mut self, ty: &TableType, place: &Place) {
        if ty.element_type.is_extern_ref() {
            self.refuse(Reason::ExternalReference, place.clone());
        }
        if ty.table64 {
            self.refuse(Reason::Memory64, place.clone());
        }
        if ty.shared {
            self.refuse(Reason::Threads("shared table".to_owned()), place.clone());
        }
        if exceptions::are_referred_to(ty.element_type) {
            self.refuse(Reason::KeptExceptions("a table"), place.clone());
        }
    }

    fn global(&mut self, ty: &GlobalType, place: &Place, code: &mut CodeUse) {
        code.moves_references |= ty.mutable && exceptions::is_function_reference(ty.content_type);
        if is_external(ty.content_type) {
            self.refuse(Reason::ExternalReference, place.clone());
        }
        if let ValType::Ref(ty) = ty.content_type
            && exceptions::are_referred_to(ty)
        {
            self.refuse(Reason::KeptExceptions("a global"), place.clone());
        }
        if ty.shared {
            self.refuse(Reason::Threads("shared global".to_owned()), place.clone());
        }
    }

    fn reserved(&mut self, name: &str, prefix: &str, place: impl FnOnce() -> Place) {
        if name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix)) {
            self.refuse(Reason::ReservedName(name.to_owned()), place());
        }
    }
}

fn is_external(ty: ValType) -> bool {
    matches!(ty, ValType::Ref(reference) if reference.is_extern_ref())
}

/// Whether a function type takes or gives `externref`.
fn names_external(ty: &wasmparser::SubType) -> bool {
    match &ty.composite_type.inner {
        CompositeInnerType::Func(function) => {
            function.params().iter().chain(function.results()).any(|ty| is_external(*ty))
        }
        _ => false,
    }
}

/// Why a canonical function is refused; none for those that leave nothing behind.
fn canonical(function: &CanonicalFunction) -> Option<Reason> {
    match function {
        CanonicalFunction::Lift { options, .. } | CanonicalFunction::Lower { options, .. } => options
            .iter()
            .find(|option| matches!(option, CanonicalOption::Async | CanonicalOption::Callback(_)))
            .map(|_| Reason::Async("async lift or lower".to_owned())),
        CanonicalFunction::ResourceNew { .. }
        | CanonicalFunction::ResourceRep { .. }
        | CanonicalFunction::ResourceDrop { .. } => None,
        other => {
            let text = format!("{other:?}");
            let name = text.split([' ', '{']).next().unwrap_or_default().to_owned();
            Some(if name.starts_with("Thread") { Reason::Threads(name) } else { Reason::Async(name) })
        }
    }
}
