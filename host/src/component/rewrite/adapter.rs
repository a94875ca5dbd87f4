//! The core modules that stand between a component's own code and the handles in the host's table.
//!
//! Each imports everything from the one instance [`FROM`]: functions of [`super::host`], and what it stands in front
//! of. None has state.

use wasm_encoder::{
    BlockType, CodeSection, EntityType, ExportKind, ExportSection, Function, FunctionSection, ImportSection,
    Instruction, MemArg, MemoryType, Module, TypeSection, ValType,
};

use super::borrows::{Borrows, Lender, Part, Shape};
use super::host;

/// What all imports come from.
pub const FROM: &str = "";
/// What the functions in front of others have behind them.
pub const BEHIND: &str = "behind";
/// The memory of parameters.
pub const MEMORY: &str = "memory";

/// The core type of a function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// What it takes.
    pub params: Vec<ValType>,
    /// What it gives.
    pub results: Vec<ValType>,
}

/// A module that is being written.
#[derive(Default)]
struct Writer {
    types: TypeSection,
    imports: ImportSection,
    functions: FunctionSection,
    exports: ExportSection,
    code: CodeSection,
    imported: u32,
}

impl Writer {
    fn ty(&mut self, params: &[ValType], results: &[ValType]) -> u32 {
        self.types.ty().function(params.iter().copied(), results.iter().copied());
        self.types.len() - 1
    }

    fn import(&mut self, name: &str, params: &[ValType], results: &[ValType]) -> u32 {
        let ty = self.ty(params, results);
        self.imports.import(FROM, name, EntityType::Function(ty));
        self.imported += 1;
        self.imported - 1
    }

    /// A function of the host's.
    fn host(&mut self, function: host::Function) -> u32 {
        let (params, results) = function.core();
        self.import(function.name(), params, results)
    }

    /// All imports come before the first of these.
    fn export(&mut self, name: &str, params: &[ValType], results: &[ValType], body: &Function) {
        let ty = self.ty(params, results);
        self.exports.export(name, ExportKind::Func, self.imported + self.functions.len());
        self.functions.function(ty);
        self.code.function(body);
    }

    fn finish(self) -> Module {
        let mut module = Module::new();
        module
            .section(&self.types)
            .section(&self.imports)
            .section(&self.functions)
            .section(&self.exports)
            .section(&self.code);
        module
    }
}

const HANDLE: &[ValType] = &[ValType::I32];

/// `new`, `rep` and `drop` of a resource type with this number. With a destructor, `drop` calls what is
/// [`BEHIND`] it.
pub fn of_resource(number: u32, has_destructor: bool) -> Module {
    let mut writer = Writer::default();
    let made = [host::Function::New, host::Function::Rep, host::Function::Take].map(|it| writer.host(it));
    let destructor = has_destructor.then(|| writer.import(BEHIND, HANDLE, &[]));
    for (name, function) in ["new", "rep"].into_iter().zip(made) {
        let mut body = Function::new([]);
        body.instructions().i32_const(number.cast_signed()).local_get(0).call(function).end();
        writer.export(name, HANDLE, HANDLE, &body);
    }
    let mut body = Function::new([]);
    body.instructions().i32_const(number.cast_signed()).local_get(0).call(made[2]);
    match destructor {
        Some(destructor) => body.instructions().call(destructor),
        None => body.instructions().drop(),
    };
    body.instructions().end();
    writer.export("drop", HANDLE, &[], &body);
    writer.finish()
}

/// `drop` where a handle may be lent: what is lent is given back, and anything else is dropped by what is [`BEHIND`].
pub fn of_drop() -> Module {
    let mut writer = Writer::default();
    let give_back = writer.host(host::Function::GiveBack);
    let behind = writer.import(BEHIND, HANDLE, &[]);
    let mut body = Function::new([]);
    body.instructions()
        .local_get(0)
        .call(give_back)
        .i32_eqz()
        .if_(BlockType::Empty)
        .local_get(0)
        .call(behind)
        .end()
        .end();
    writer.export("drop", HANDLE, &[], &body);
    writer.finish()
}

/// `lifted`, in front of the function that is lifted: it notes the handles that are lent to it, gives it the
/// representations of its own resources, and has what was lent settled at the end.
pub fn of_lift(signature: &Signature, borrows: &Borrows) -> Module {
    let mut writer = Writer::default();
    let (lends, represents) = (lenders(&borrows.shape, Lender::Other), has_own(&borrows.shape));
    let mut calls = Calls::default();
    if represents {
        calls.rep = writer.host(host::Function::Rep);
    }
    let mut settle = None;
    if lends {
        calls.lend = writer.host(host::Function::Lend);
        settle = Some([host::Function::Begin, host::Function::End].map(|it| writer.host(it)));
    }
    let behind = writer.import(BEHIND, &signature.params, &signature.results);
    if needs_memory(borrows) {
        let ty =
            MemoryType { minimum: 0, maximum: None, memory64: false, shared: false, page_size_log2: None };
        writer.imports.import(FROM, MEMORY, EntityType::Memory(ty));
    }
    let mut visit = Visit { params: &signature.params, locals: 0, calls, body: Vec::new() };
    if let Some([begin, _]) = settle {
        visit.body.push(Instruction::Call(begin));
    }
    let at = if borrows.in_memory { At::Memory { base: 0, offset: 0 } } else { At::Flat(0) };
    visit.shape(&borrows.shape, at);
    let mut body = Function::new([(visit.locals, ValType::I32)]);
    for instruction in &visit.body {
        body.instruction(instruction);
    }
    for param in 0..signature.params.len() {
        body.instruction(&Instruction::LocalGet(param as u32));
    }
    body.instruction(&Instruction::Call(behind));
    if let Some([_, end]) = settle {
        body.instruction(&Instruction::Call(end));
    }
    body.instruction(&Instruction::End);
    writer.export("lifted", &signature.params, &signature.results, &body);
    writer.finish()
}

/// Whether the parameters are looked for in memory.
pub fn needs_memory(borrows: &Borrows) -> bool {
    borrows.in_memory || any(&borrows.shape, &mut |shape| matches!(shape, Shape::Elements { .. }))
}

fn lenders(shape: &Shape, lender: Lender) -> bool {
    any(shape, &mut |shape| *shape == Shape::Handle(lender))
}

fn has_own(shape: &Shape) -> bool {
    any(shape, &mut |shape| matches!(shape, Shape::Handle(Lender::Own(_))))
}

/// Whether something holds for a shape or one in it.
pub fn any(shape: &Shape, holds: &mut impl FnMut(&Shape) -> bool) -> bool {
    holds(shape)
        || match shape {
            Shape::Handle(_) => false,
            Shape::Parts(parts) => parts.iter().any(|part| any(&part.shape, holds)),
            Shape::Cases { cases, .. } => cases.iter().any(|(_, part)| any(&part.shape, holds)),
            Shape::Elements { element, .. } => any(element, holds),
        }
}

/// Functions that are called for each handle, where they are needed.
#[derive(Default)]
struct Calls {
    rep: u32,
    lend: u32,
}

/// Where a value is.
#[derive(Clone, Copy)]
enum At {
    /// In parameters, from this one on.
    Flat(u32),
    /// In memory, so many bytes after the address in a local.
    Memory { base: u32, offset: u32 },
}

impl At {
    fn part(self, part: &Part) -> Self {
        match self {
            Self::Flat(first) => Self::Flat(first + part.flat),
            Self::Memory { base, offset } => Self::Memory { base, offset: offset + part.offset },
        }
    }
}

/// Writes the code that goes to every handle.
struct Visit<'a> {
    params: &'a [ValType],
    /// Locals beside the parameters, each an `i32`.
    locals: u32,
    calls: Calls,
    body: Vec<Instruction<'static>>,
}

impl Visit<'_> {
    fn shape(&mut self, shape: &Shape, at: At) {
        match shape {
            Shape::Handle(lender) => self.handle(*lender, at),
            Shape::Parts(parts) => parts.iter().for_each(|part| self.shape(&part.shape, at.part(part))),
            Shape::Cases { number, cases } => {
                for (case, part) in cases {
                    self.load(at, *number);
                    self.body.extend([
                        Instruction::I32Const(case.cast_signed()),
                        Instruction::I32Eq,
                        Instruction::If(BlockType::Empty),
                    ]);
                    self.shape(&part.shape, at.part(part));
                    self.body.push(Instruction::End);
                }
            }
            Shape::Elements { stride, element } => self.elements(*stride, element, at),
        }
    }

    fn handle(&mut self, lender: Lender, at: At) {
        let Lender::Own(number) = lender else {
            self.load(at, 4);
            self.body.push(Instruction::Call(self.calls.lend));
            return;
        };
        if let At::Memory { base, .. } = at {
            self.body.push(Instruction::LocalGet(base));
        }
        self.body.push(Instruction::I32Const(number.cast_signed()));
        self.load(at, 4);
        self.body.push(Instruction::Call(self.calls.rep));
        match at {
            At::Memory { offset, .. } => self.body.push(Instruction::I32Store(word(offset))),
            At::Flat(param) => {
                if self.params[param as usize] == ValType::I64 {
                    self.body.push(Instruction::I64ExtendI32U);
                }
                self.body.push(Instruction::LocalSet(param));
            }
        }
    }

    /// Puts a number of so many bytes on the stack.
    fn load(&mut self, at: At, bytes: u32) {
        match at {
            At::Flat(param) => {
                self.body.push(Instruction::LocalGet(param));
                // where another case of a variant has a larger number in the same place
                if self.params[param as usize] == ValType::I64 {
                    self.body.push(Instruction::I32WrapI64);
                }
            }
            At::Memory { base, offset } => {
                self.body.push(Instruction::LocalGet(base));
                self.body.push(match bytes {
                    1 => Instruction::I32Load8U(MemArg { align: 0, ..word(offset) }),
                    2 => Instruction::I32Load16U(MemArg { align: 1, ..word(offset) }),
                    _ => Instruction::I32Load(word(offset)),
                });
            }
        }
    }

    fn elements(&mut self, stride: u32, element: &Shape, at: At) {
        let base = self.params.len() as u32 + self.locals;
        let left = base + 1;
        self.locals += 2;
        self.load(at, 4);
        self.body.push(Instruction::LocalSet(base));
        self.load(
            match at {
                At::Flat(first) => At::Flat(first + 1),
                At::Memory { base, offset } => At::Memory { base, offset: offset + 4 },
            },
            4,
        );
        self.body.extend([
            Instruction::LocalSet(left),
            Instruction::Block(BlockType::Empty),
            Instruction::Loop(BlockType::Empty),
            Instruction::LocalGet(left),
            Instruction::I32Eqz,
            Instruction::BrIf(1),
        ]);
        self.shape(element, At::Memory { base, offset: 0 });
        self.body.extend([
            Instruction::LocalGet(base),
            Instruction::I32Const(stride.cast_signed()),
            Instruction::I32Add,
            Instruction::LocalSet(base),
            Instruction::LocalGet(left),
            Instruction::I32Const(1),
            Instruction::I32Sub,
            Instruction::LocalSet(left),
            Instruction::Br(0),
            Instruction::End,
            Instruction::End,
        ]);
    }
}

fn word(offset: u32) -> MemArg {
    MemArg { offset: u64::from(offset), align: 2, memory_index: 0 }
}
