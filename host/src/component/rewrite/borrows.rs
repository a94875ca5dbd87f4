//! Finds exported functions that take borrowed handles.
//!
//! A guest that is lent a handle drops it at the end of the call, which ends the loan. Once handles
//! are numbers, the drop would end the resource itself, under whoever lent it.

use std::collections::HashSet;

use wasmparser::component_types::{
    ComponentAnyTypeId, ComponentDefinedType, ComponentDefinedTypeId, ComponentValType,
};
use wasmparser::types::TypesRef;

/// Whether a function of the component type at this index takes a borrowed handle.
pub fn takes_borrow(types: TypesRef<'_>, function: u32) -> bool {
    let ComponentAnyTypeId::Func(function) = types.component_any_type_at(function) else { return false };
    let mut seen = HashSet::new();
    let mut queue: Vec<ComponentDefinedTypeId> = Vec::new();
    let push = |queue: &mut Vec<_>, ty: &ComponentValType| {
        if let ComponentValType::Type(id) = ty {
            queue.push(*id);
        }
    };
    types[function].params.iter().for_each(|(_, ty)| push(&mut queue, ty));
    while let Some(id) = queue.pop() {
        if !seen.insert(id) {
            continue;
        }
        let mut push = |ty: &ComponentValType| push(&mut queue, ty);
        match &types[id] {
            ComponentDefinedType::Borrow(_) => return true,
            ComponentDefinedType::Record(record) => record.fields.values().for_each(push),
            ComponentDefinedType::Variant(variant) => {
                variant.cases.values().filter_map(|case| case.ty.as_ref()).for_each(push);
            }
            ComponentDefinedType::List { element, .. }
            | ComponentDefinedType::FixedLengthList { element, .. } => {
                push(element);
            }
            ComponentDefinedType::Map { key, value, .. } => {
                push(key);
                push(value);
            }
            ComponentDefinedType::Tuple(tuple) => tuple.types.iter().for_each(push),
            ComponentDefinedType::Option { ty, .. } => push(ty),
            ComponentDefinedType::Result { ok, err, .. } => ok.iter().chain(err).for_each(push),
            // a stream or future cannot carry one
            ComponentDefinedType::Primitive(_)
            | ComponentDefinedType::Flags(_)
            | ComponentDefinedType::Enum(_)
            | ComponentDefinedType::Own(_)
            | ComponentDefinedType::Future { .. }
            | ComponentDefinedType::Stream { .. } => {}
        }
    }
    false
}
