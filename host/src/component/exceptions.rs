//! Exceptions, and what a snapshot has to know of them.
//!
//! An exception is an object on a heap of the engine's own, and an `exnref` refers to it. A call that has come to its
//! end leaves none behind in locals or on the stack, so that there is nothing to capture between turns, unless a table or
//! a global keeps one: those are refused. Tags are no state: an instance has the same ones from its beginning.

use std::collections::HashSet;

use wasmparser::{
    AbstractHeapType, FuncValidatorAllocations, HeapType, Operator, OperatorsReader, Parser, RefType,
    ValType, ValidPayload, Validator,
};

use super::features;

/// Whether what it refers to are exceptions.
pub fn are_referred_to(ty: RefType) -> bool {
    is_heap_type(ty.heap_type())
}

/// The same of what `ref.null` has no reference to.
pub fn is_heap_type(ty: HeapType) -> bool {
    matches!(ty, HeapType::Abstract { ty: AbstractHeapType::Exn | AbstractHeapType::NoExn, .. })
}

/// Whether it is a reference to a function. Of what is supported, all that refer to no exception are.
pub fn is_function_reference(ty: ValType) -> bool {
    matches!(ty, ValType::Ref(ty) if !are_referred_to(ty))
}

/// Offsets of the instructions `ref.is_null` of a valid module that look at a reference to an exception. The instruction
/// says nothing of that: what is on the stack does.
pub fn null_tests(wasm: &[u8]) -> Result<HashSet<usize>, wasmparser::Error> {
    let mut found = HashSet::new();
    let mut validator = Validator::new_with_features(features::supported());
    let mut allocations = FuncValidatorAllocations::default();
    for payload in Parser::new(0).parse_all(wasm) {
        let ValidPayload::Func(function, body) = validator.payload(&payload?)? else { continue };
        let mut function = function.into_validator(allocations);
        let mut reader = body.get_binary_reader();
        function.read_locals(&mut reader)?;
        let mut operators = OperatorsReader::new(reader);
        while !operators.eof() {
            let (operator, offset) = operators.read_with_offset()?;
            if let (Operator::RefIsNull, Some(Some(ValType::Ref(ty)))) =
                (&operator, function.get_operand_type(0))
                && are_referred_to(ty)
            {
                found.insert(offset);
            }
            function.op(offset, &operator)?;
        }
        allocations = function.into_allocations();
    }
    Ok(found)
}
