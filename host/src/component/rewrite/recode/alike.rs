//! Function types that would become the same.
//!
//! A call by way of a table compares the type that it is made with to that of the function that it finds, and traps
//! where they differ. Types that differ must still do so where references are numbers.

use std::collections::{HashMap, HashSet};

use wasmparser::{CompositeInnerType, FuncType, Parser, Payload, SectionLimited, TypeRef, ValType};

use crate::component::code::CodeUse;
use crate::component::error::ComponentError;
use crate::component::exceptions::is_function_reference;
use crate::component::refuse::{Place, Reason, Refusal};

/// The function types of a component that matter to calls by way of tables.
#[derive(Default)]
pub struct Types {
    /// Those of the functions that references are made of, by what they become.
    referenced: HashMap<FuncType, HashSet<FuncType>>,
    /// Those that calls are made with, at the first place each.
    called: HashMap<FuncType, Place>,
}

impl Types {
    /// Takes in a module, of whose functions `referenced` are those that references are made of.
    pub fn observe(
        &mut self,
        wasm: &[u8],
        place: &Place,
        code: &CodeUse,
        referenced: &[u32],
    ) -> Result<(), ComponentError> {
        let invalid = |error: wasmparser::Error| ComponentError::invalid(&error);
        let (mut types, mut functions) = (None, Vec::new());
        for payload in Parser::new(0).parse_all(wasm) {
            match payload.map_err(invalid)? {
                Payload::TypeSection(section) => types = Some(section),
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        if let TypeRef::Func(ty) | TypeRef::FuncExact(ty) = import.map_err(invalid)?.ty {
                            functions.push(ty);
                        }
                    }
                }
                Payload::FunctionSection(section) => {
                    for ty in section {
                        functions.push(ty.map_err(invalid)?);
                    }
                    break;
                }
                _ => {}
            }
        }
        let found: HashSet<u32> =
            referenced.iter().filter_map(|function| functions.get(*function as usize)).copied().collect();
        let mut index = 0;
        for group in types.into_iter().flat_map(SectionLimited::into_iter_with_offsets) {
            let (offset, group) = group.map_err(invalid)?;
            for ty in group.into_types() {
                if let CompositeInnerType::Func(ty) = ty.composite_type.inner {
                    if found.contains(&index) {
                        self.referenced.entry(becomes(&ty)).or_default().insert(ty.clone());
                    }
                    if code.called.contains(&index) {
                        let place = || Place { offset: place.offset + offset as u64, ..place.clone() };
                        self.called.entry(ty).or_insert_with(place);
                    }
                }
                index += 1;
            }
        }
        Ok(())
    }

    /// Refuses a call that would find a function of another type.
    pub fn check(self) -> Result<(), ComponentError> {
        let alike = |ty: &FuncType| {
            let found = self.referenced.get(&becomes(ty));
            found.is_some_and(|found| found.len() > usize::from(found.contains(ty)))
        };
        let refused = self.called.iter().filter(|(ty, _)| alike(ty)).map(|(_, place)| place);
        match refused.min_by_key(|place| place.offset) {
            Some(place) => {
                let refusal = Refusal { reason: Reason::AlikeTypes, place: place.clone() };
                Err(ComponentError::Refused(vec![refusal]))
            }
            None => Ok(()),
        }
    }
}

fn becomes(ty: &FuncType) -> FuncType {
    let number = |ty: &ValType| if is_function_reference(*ty) { ValType::I32 } else { *ty };
    FuncType::new(ty.params().iter().map(number), ty.results().iter().map(number))
}
