//! Instructions, types and indices of a module that is written anew.

use std::collections::HashSet;

use wasm_encoder::reencode::{Error, Reencode, utils};
use wasm_encoder::{
    ConstExpr, EntityType, ExportKind, ExportSection, Function, HeapType, Instruction, MemArg, ValType,
};
use wasmparser::Operator;

use super::added::{Added, Task};
use super::level::FUNCTIONS;
use super::shape::{Shape, memory_of};
use crate::component::exceptions;

type Outcome<T = ()> = Result<T, Error>;

/// Translates what a module consists of.
pub struct Recoder<'a> {
    pub shape: &'a Shape<'a>,
    pub added: Added<'a>,
    /// Offsets of the instructions that ask whether a reference to an exception is null.
    pub exception_tests: HashSet<usize>,
}

impl Recoder<'_> {
    /// Translates a function.
    pub fn body(&mut self, body: &wasmparser::FunctionBody<'_>) -> Outcome<Function> {
        let mut function = self.new_function_with_parsed_locals(body)?;
        let mut reader = body.get_operators_reader()?;
        while !reader.eof() {
            let (operator, offset) = reader.read_with_offset()?;
            if self.exception_tests.contains(&offset) {
                function.instruction(&Instruction::RefIsNull);
                continue;
            }
            self.operator(operator, &mut |instruction| {
                function.instruction(&instruction);
            })?;
        }
        Ok(function)
    }

    /// Translates one instruction to those that do the same.
    pub fn operator<'b>(&mut self, operator: Operator<'b>, to: &mut dyn FnMut(Instruction<'b>)) -> Outcome {
        match operator {
            Operator::MemoryInit { data_index: data, mem: memory }
                if self.added.data_flag(data).is_some() =>
            {
                let memory = self.memory_index(memory)?;
                to(Instruction::Call(self.added.task(Task::CopyData { data, memory })));
            }
            Operator::DataDrop { data_index } => match self.added.data_flag(data_index) {
                Some(flag) => {
                    to(Instruction::I32Const(1));
                    to(Instruction::GlobalSet(flag));
                }
                None => to(Instruction::DataDrop(data_index)),
            },
            other if self.added.has_references() => return self.reference(other, to),
            other => to(self.instruction(other)?),
        }
        Ok(())
    }

    /// The same where references to functions are numbers.
    fn reference<'b>(&mut self, operator: Operator<'b>, to: &mut dyn FnMut(Instruction<'b>)) -> Outcome {
        match operator {
            Operator::RefNull { hty } if !exceptions::is_heap_type(hty) => to(Instruction::I32Const(0)),
            Operator::RefIsNull => to(Instruction::I32Eqz),
            Operator::RefFunc { function_index } => {
                let word = self.added.word(function_index);
                to(Instruction::GlobalGet(self.added.base()));
                to(Instruction::I32Const(word.cast_signed()));
                to(Instruction::I32Add);
            }
            Operator::TableGet { table } => to(self.call(Task::Get(table))),
            Operator::TableSet { table } => to(self.call(Task::Set(table))),
            Operator::TableGrow { table } => to(self.call(Task::Grow(table))),
            Operator::TableFill { table } => to(self.call(Task::Fill(table))),
            Operator::TableCopy { dst_table, src_table } => {
                to(self.call(Task::Copy { to: dst_table, from: src_table }));
            }
            Operator::TableInit { elem_index, table } => {
                to(self.call(Task::Init { elements: elem_index, table }));
            }
            Operator::TableSize { table } => {
                let memory_index = self.added.table_memory(table);
                to(Instruction::I32Const(0));
                to(Instruction::I32Load(MemArg { offset: 0, align: 2, memory_index }));
            }
            Operator::ElemDrop { elem_index } => {
                if let Some(flag) = self.added.element_flag(elem_index) {
                    to(Instruction::I32Const(1));
                    to(Instruction::GlobalSet(flag));
                }
            }
            Operator::CallIndirect { type_index, table_index } => {
                to(self.call(Task::Get(table_index)));
                to(Instruction::CallIndirect { type_index, table_index: FUNCTIONS });
            }
            Operator::ReturnCallIndirect { type_index, table_index } => {
                to(self.call(Task::Get(table_index)));
                to(Instruction::ReturnCallIndirect { type_index, table_index: FUNCTIONS });
            }
            other => to(self.instruction(other)?),
        }
        Ok(())
    }

    fn call(&mut self, task: Task) -> Instruction<'static> {
        Instruction::Call(self.added.task(task))
    }
}

impl Reencode for Recoder<'_> {
    type Error = std::convert::Infallible;

    fn global_index(&mut self, global: u32) -> Outcome<u32> {
        Ok(self.added.global(global))
    }

    fn memory_index(&mut self, memory: u32) -> Outcome<u32> {
        if !self.added.has_references() {
            return Ok(memory);
        }
        Ok(self.shape.memories.get(memory as usize).copied().unwrap_or(u32::MAX))
    }

    fn val_type(&mut self, ty: wasmparser::ValType) -> Outcome<ValType> {
        if self.added.has_references() && exceptions::is_function_reference(ty) {
            return Ok(Added::TYPE);
        }
        utils::val_type(self, ty)
    }

    fn heap_type(&mut self, ty: wasmparser::HeapType) -> Outcome<HeapType> {
        utils::heap_type(self, ty)
    }

    fn entity_type(&mut self, ty: wasmparser::TypeRef) -> Outcome<EntityType> {
        match ty {
            wasmparser::TypeRef::Table(table) if self.added.has_references() => {
                Ok(EntityType::Memory(self.memory_type(memory_of(&table))?))
            }
            other => utils::entity_type(self, other),
        }
    }

    fn parse_export(&mut self, exports: &mut ExportSection, export: wasmparser::Export<'_>) -> Outcome {
        if export.kind == wasmparser::ExternalKind::Table && self.added.has_references() {
            exports.export(export.name, ExportKind::Memory, self.added.table_memory(export.index));
            return Ok(());
        }
        utils::parse_export(self, exports, export)
    }

    fn const_expr(&mut self, expression: wasmparser::ConstExpr<'_>) -> Outcome<ConstExpr> {
        use wasm_encoder::Encode;
        let mut reader = expression.get_operators_reader();
        let mut bytes = Vec::new();
        while !reader.is_end_then_eof() {
            self.operator(reader.read()?, &mut |instruction| instruction.encode(&mut bytes))?;
        }
        Ok(ConstExpr::raw(bytes))
    }
}
