//! The interface by which rewritten components reach the handles of their own resources in the host's table.
//!
//! A component that needs it imports it, and hands it down to all that are nested in it. Its functions are in
//! `crate::wasi::guest`.

use wasm_encoder::{ComponentTypeEncoder, ComponentTypeRef, InstanceType, PrimitiveValType, ValType};

/// Its name.
pub const INTERFACE: &str = "dormouse:rewrite/resources";

/// A function of the interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Function {
    /// Puts the representation of a resource of a type behind a new handle.
    New,
    /// What is behind a handle to a resource of a type.
    Rep,
    /// The same, and the handle is gone.
    Take,
    /// A function is called that handles are lent to.
    Begin,
    /// This handle is lent to it.
    Lend,
    /// It has returned, and must have given back all.
    End,
    /// Gives back a handle; says whether it was lent.
    GiveBack,
}

impl Function {
    /// All, in their order in the interface.
    pub const ALL: [Self; 7] =
        [Self::New, Self::Rep, Self::Take, Self::Begin, Self::Lend, Self::End, Self::GiveBack];

    /// The function's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Rep => "rep",
            Self::Take => "take",
            Self::Begin => "begin",
            Self::Lend => "lend",
            Self::End => "end",
            Self::GiveBack => "give-back",
        }
    }

    fn params(self) -> &'static [&'static str] {
        match self {
            Self::New => &["kind", "rep"],
            Self::Rep | Self::Take => &["kind", "handle"],
            Self::Begin | Self::End => &[],
            Self::Lend | Self::GiveBack => &["handle"],
        }
    }

    fn result(self) -> Option<PrimitiveValType> {
        match self {
            Self::New | Self::Rep | Self::Take => Some(PrimitiveValType::U32),
            Self::Begin | Self::Lend | Self::End => None,
            Self::GiveBack => Some(PrimitiveValType::Bool),
        }
    }

    /// What it takes and gives once it has been lowered.
    pub fn core(self) -> (&'static [ValType], &'static [ValType]) {
        const WORDS: [ValType; 2] = [ValType::I32; 2];
        (&WORDS[..self.params().len()], &WORDS[..usize::from(self.result().is_some())])
    }
}

/// Defines the type of the interface.
pub fn define(ty: ComponentTypeEncoder<'_>) {
    let mut interface = InstanceType::new();
    for (index, function) in (0..).zip(Function::ALL) {
        let params = function.params().iter().map(|name| (*name, PrimitiveValType::U32));
        let result = function.result().map(Into::into);
        interface.ty().function().params(params.collect::<Vec<_>>()).result(result);
        interface.export(function.name(), ComponentTypeRef::Func(index));
    }
    ty.instance(&interface);
}
