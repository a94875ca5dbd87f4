//! What the code of a core module does that a snapshot has to know of.

use std::collections::BTreeSet;

use wasmparser::{FunctionBody, Operator};

/// What code does to the segments of one kind: data, or elements.
#[derive(Debug, Clone, Default)]
pub struct SegmentUse {
    /// Those that are copied from (`memory.init`, `table.init`).
    pub copied: BTreeSet<u32>,
    /// Those that are dropped (`data.drop`, `elem.drop`).
    pub dropped: BTreeSet<u32>,
}

impl SegmentUse {
    /// Whether code can tell if the segment has been dropped. Where nothing is copied of it, it cannot.
    pub fn shows_drop(&self, segment: u32) -> bool {
        self.copied.contains(&segment) && self.dropped.contains(&segment)
    }
}

/// What a module's code does, all its functions together.
#[derive(Debug, Clone, Default)]
pub struct CodeUse {
    /// To data segments.
    pub data: SegmentUse,
    /// To element segments.
    pub elements: SegmentUse,
    /// Functions that it makes references of (`ref.func`).
    pub referenced: BTreeSet<u32>,
    /// The types that it calls by way of tables with.
    pub called: BTreeSet<u32>,
    /// References change place while it runs: it changes a table, or the module has a global for them that can be set.
    pub moves_references: bool,
    /// It asks of references whether they are null (`ref.is_null`).
    pub tests_null: bool,
    /// Where it first uses exceptions in their old form. Byte offset in the file.
    pub legacy_exceptions: Option<usize>,
}

impl CodeUse {
    /// Takes in one function.
    pub fn observe(&mut self, body: &FunctionBody<'_>) -> Result<(), wasmparser::Error> {
        let mut reader = body.get_operators_reader()?;
        while !reader.eof() {
            let (operator, offset) = reader.read_with_offset()?;
            match operator {
                Operator::TableSet { .. }
                | Operator::TableGrow { .. }
                | Operator::TableFill { .. }
                | Operator::TableCopy { .. } => self.moves_references = true,
                Operator::TableInit { elem_index, .. } => {
                    self.moves_references = true;
                    self.elements.copied.insert(elem_index);
                }
                Operator::ElemDrop { elem_index } => {
                    self.elements.dropped.insert(elem_index);
                }
                Operator::MemoryInit { data_index, .. } => {
                    self.data.copied.insert(data_index);
                }
                Operator::DataDrop { data_index } => {
                    self.data.dropped.insert(data_index);
                }
                Operator::CallIndirect { type_index, .. }
                | Operator::ReturnCallIndirect { type_index, .. } => {
                    self.called.insert(type_index);
                }
                Operator::RefFunc { function_index } => {
                    self.referenced.insert(function_index);
                }
                Operator::RefIsNull => self.tests_null = true,
                Operator::Try { .. }
                | Operator::Catch { .. }
                | Operator::CatchAll
                | Operator::Rethrow { .. }
                | Operator::Delegate { .. } => {
                    self.legacy_exceptions.get_or_insert(offset);
                }
                _ => {}
            }
        }
        Ok(())
    }
}
