//! A table as a memory of numbers, and the functions that do what table instructions do.
//!
//! Such a memory begins with the table's size and the size up to which it may grow, in entries, of four bytes each;
//! the entries follow, of four bytes each, too. All that lies behind the size is zero, which is null.

use wasm_encoder::{BlockType, Function, InstructionSink, MemArg, ValType};

use crate::component::limits;

/// Bytes of a table's memory in front of the entries.
pub const HEADER: u64 = 8;
/// Bytes of an entry.
pub const ENTRY: u64 = 4;

const SIZE: u64 = 0;
const MAX: u64 = 4;
const PAGE: i32 = 65_536;

/// What lies in front of the entries at first.
pub fn header(table: &wasmparser::TableType) -> [u8; HEADER as usize] {
    let limit = limits::MAX_TABLE_ENTRIES as u64;
    let max = table.maximum.map_or(limit, |max| max.min(limit)).max(table.initial);
    let mut header = [0; HEADER as usize];
    // both are within the limit
    header[..4].copy_from_slice(&(table.initial as u32).to_le_bytes());
    header[4..].copy_from_slice(&(max as u32).to_le_bytes());
    header
}

/// An access of four bytes.
fn word(memory: u32, offset: u64) -> MemArg {
    MemArg { offset, align: 2, memory_index: memory }
}

/// Puts the size of a table on the stack.
pub fn size(to: &mut InstructionSink<'_>, memory: u32) {
    to.i32_const(0).i32_load(word(memory, SIZE));
}

/// Traps as an access outside a table does: by one.
fn trap(to: &mut InstructionSink<'_>) {
    to.i32_const(-1).table_get(super::level::FUNCTIONS).drop();
}

/// Traps where local `from` and local `count` together are more than what `limit` puts on the stack.
fn check_range(
    to: &mut InstructionSink<'_>,
    from: u32,
    count: u32,
    limit: impl FnOnce(&mut InstructionSink<'_>),
) {
    to.local_get(from).i64_extend_i32_u().local_get(count).i64_extend_i32_u().i64_add();
    limit(to);
    to.i64_extend_i32_u().i64_gt_u().if_(BlockType::Empty);
    trap(to);
    to.end();
}

/// Puts the offset of the entry in local `index` on the stack, without the header.
fn offset(to: &mut InstructionSink<'_>, index: u32) {
    to.local_get(index).i32_const(2).i32_shl();
}

fn offset_in_memory(to: &mut InstructionSink<'_>, index: u32) {
    offset(to, index);
    to.i32_const(HEADER as i32).i32_add();
}

fn check_index(to: &mut InstructionSink<'_>, memory: u32) {
    to.local_get(0);
    size(to, memory);
    to.i32_ge_u().if_(BlockType::Empty);
    trap(to);
    to.end();
}

/// `table.get`: index to reference.
pub fn get(memory: u32) -> Function {
    let mut function = Function::new([]);
    let mut to = function.instructions();
    check_index(&mut to, memory);
    offset(&mut to, 0);
    to.i32_load(word(memory, HEADER)).end();
    function
}

/// `table.set`: index and reference.
pub fn set(memory: u32) -> Function {
    let mut function = Function::new([]);
    let mut to = function.instructions();
    check_index(&mut to, memory);
    offset(&mut to, 0);
    to.local_get(1).i32_store(word(memory, HEADER)).end();
    function
}

/// Stores the reference in local `reference` in the entries from local `from` to local `end`; changes `from`.
fn store_all(to: &mut InstructionSink<'_>, memory: u32, from: u32, end: u32, reference: u32) {
    to.block(BlockType::Empty).loop_(BlockType::Empty);
    to.local_get(from).local_get(end).i32_ge_u().br_if(1);
    offset(to, from);
    to.local_get(reference).i32_store(word(memory, HEADER));
    to.local_get(from).i32_const(1).i32_add().local_set(from).br(0).end().end();
}

/// `table.grow`: reference and number of entries to the size before, or -1.
pub fn grow(memory: u32) -> Function {
    let (reference, count, old, from, end, pages) = (0, 1, 2, 3, 4, 5);
    let mut function = Function::new([(4, ValType::I32)]);
    let mut to = function.instructions();
    size(&mut to, memory);
    to.local_tee(old).local_set(from);
    // the size is never more than what it may grow to
    to.local_get(count).i32_const(0).i32_load(word(memory, MAX)).local_get(old).i32_sub();
    to.i32_gt_u().if_(BlockType::Empty).i32_const(-1).return_().end();
    to.local_get(old).local_get(count).i32_add().local_set(end);
    offset_in_memory(&mut to, end);
    to.i32_const(PAGE - 1).i32_add().i32_const(16).i32_shr_u().memory_size(memory).i32_sub().local_tee(pages);
    to.i32_const(0).i32_gt_s().if_(BlockType::Empty);
    to.local_get(pages).memory_grow(memory).i32_const(-1).i32_eq();
    to.if_(BlockType::Empty).i32_const(-1).return_().end().end();
    to.i32_const(0).local_get(end).i32_store(word(memory, SIZE));
    store_all(&mut to, memory, from, end, reference);
    to.local_get(old).end();
    function
}

/// `table.fill`: index, reference, and number of entries.
pub fn fill(memory: u32) -> Function {
    let (from, reference, count) = (0, 1, 2);
    let mut function = Function::new([]);
    let mut to = function.instructions();
    check_range(&mut to, from, count, |to| size(to, memory));
    to.local_get(from).local_get(count).i32_add().local_set(count);
    store_all(&mut to, memory, from, count, reference);
    to.end();
    function
}

/// `table.copy`: index in one table, index in the other, and number of entries.
pub fn copy(to_memory: u32, from_memory: u32) -> Function {
    let (destination, source, count) = (0, 1, 2);
    let mut function = Function::new([]);
    let mut to = function.instructions();
    check_range(&mut to, source, count, |to| size(to, from_memory));
    check_range(&mut to, destination, count, |to| size(to, to_memory));
    offset_in_memory(&mut to, destination);
    offset_in_memory(&mut to, source);
    offset(&mut to, count);
    to.memory_copy(to_memory, from_memory).end();
    function
}

/// What entries of an element segment are copied from.
pub struct Source {
    /// The data segment with a word for each.
    pub data: u32,
    pub length: u32,
    /// The global that says whether the segment has been dropped, where that can be.
    pub dropped: Option<u32>,
    /// The function that makes a reference of a word.
    pub resolve: u32,
}

/// `table.init`: index in the table, index in the segment, and number of entries. Without a source the segment is empty.
pub fn init(memory: u32, source: Option<&Source>) -> Function {
    let (destination, from, count, end) = (0, 1, 2, 3);
    let mut function = Function::new([(1, ValType::I32)]);
    let mut to = function.instructions();
    check_range(&mut to, from, count, |to| {
        to.i32_const(source.map_or(0, |source| source.length.cast_signed()));
        if let Some(dropped) = source.and_then(|source| source.dropped) {
            to.i32_const(0).global_get(dropped).i32_eqz().select();
        }
    });
    check_range(&mut to, destination, count, |to| size(to, memory));
    if let Some(source) = source {
        offset_in_memory(&mut to, destination);
        offset(&mut to, from);
        offset(&mut to, count);
        to.memory_init(memory, source.data);
        to.local_get(destination).local_get(count).i32_add().local_set(end);
        to.block(BlockType::Empty).loop_(BlockType::Empty);
        to.local_get(destination).local_get(end).i32_ge_u().br_if(1);
        offset(&mut to, destination);
        offset(&mut to, destination);
        to.i32_load(word(memory, HEADER)).call(source.resolve).i32_store(word(memory, HEADER));
        to.local_get(destination).i32_const(1).i32_add().local_set(destination).br(0).end().end();
    }
    to.end();
    function
}
