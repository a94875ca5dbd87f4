//! Where the parameters of a function hold borrowed handles, by the rules of the canonical ABI.
//!
//! A core function that is lifted gets its parameters flat, as numbers, or, where these are more than
//! [`MAX_FLAT`], in memory. A [`Shape`] leads to every borrowed handle in both.

use std::collections::HashMap;
use std::rc::Rc;

use wasmparser::PrimitiveValType as Primitive;
use wasmparser::component_types::{
    ComponentDefinedType, ComponentDefinedTypeId, ComponentFuncTypeId, ComponentValType, ResourceId,
};
use wasmparser::types::TypesRef;

/// With more flat parameters than this, all are in memory.
const MAX_FLAT: u32 = 16;

/// Bytes of an address, a length, or a handle.
const WORD: u32 = 4;

/// Whose resource a borrowed handle is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lender {
    /// That of the component which gets it, which gets the representation instead. The number of the type.
    Own(u32),
    /// That of somebody else.
    Other,
}

/// A value that holds borrowed handles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shape {
    /// It is one.
    Handle(Lender),
    /// A record, tuple or list of parameters: those of its parts that hold any.
    Parts(Vec<Part>),
    /// A variant, option or result: those of its cases that hold any, by their numbers.
    Cases {
        /// Bytes of the case's number in memory.
        number: u32,
        /// What they hold.
        cases: Vec<(u32, Part)>,
    },
    /// A list.
    Elements {
        /// Bytes from one to the next.
        stride: u32,
        /// What each holds.
        element: Rc<Shape>,
    },
}

/// A part of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Which of the value's flat numbers is its first.
    pub flat: u32,
    /// Where it lies in the value. Bytes.
    pub offset: u32,
    /// What it holds.
    pub shape: Rc<Shape>,
}

/// The borrowed handles in a function's parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Borrows {
    /// Where they are. Shapes that are the same are shared: only where there are few places are they gone through.
    pub shape: Rc<Shape>,
    /// The parameters are in memory, and the only one that the core function has says where.
    pub in_memory: bool,
    /// How many places there are.
    pub places: usize,
}

/// How much room a type takes.
#[derive(Debug, Clone, Copy)]
struct Layout {
    size: u32,
    align: u32,
    flat: u32,
}

impl Layout {
    const fn of(size: u32) -> Self {
        Self { size, align: size, flat: 1 }
    }

    /// An address and a length.
    const SPAN: Self = Self { size: 2 * WORD, align: WORD, flat: 2 };
}

/// Sizes are those of a valid type: what passes 32 bits is never in memory.
fn align_to(offset: u32, align: u32) -> u32 {
    offset.checked_next_multiple_of(align.max(1)).unwrap_or(u32::MAX)
}

/// Bytes of the number of a case.
fn discriminant(cases: usize) -> u32 {
    match cases {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

/// A shape, and how many places it has.
type Found = Option<(Rc<Shape>, usize)>;

/// Reads the types of one level.
#[derive(Default)]
pub struct Reader {
    layouts: HashMap<ComponentDefinedTypeId, Layout>,
    shapes: HashMap<ComponentDefinedTypeId, Found>,
    /// The level's own resource types, with their numbers.
    pub own: HashMap<ResourceId, u32>,
}

impl Reader {
    /// What a function gets lent; none where that is nothing.
    pub fn read(&mut self, types: TypesRef<'_>, function: ComponentFuncTypeId) -> Option<Borrows> {
        let params: Vec<_> = types[function].params.iter().map(|(_, ty)| *ty).collect();
        let (shape, places) = self.parts(types, &params)?;
        let flat = params.iter().fold(0, |flat: u32, ty| flat.saturating_add(self.layout(types, ty).flat));
        Some(Borrows { shape, in_memory: flat > MAX_FLAT, places })
    }

    fn parts(&mut self, types: TypesRef<'_>, of: &[ComponentValType]) -> Found {
        let (mut parts, mut places, mut flat, mut offset) = (Vec::new(), 0_usize, 0_u32, 0);
        for ty in of {
            let layout = self.layout(types, ty);
            offset = align_to(offset, layout.align);
            if let Some((shape, more)) = self.shape(types, ty) {
                parts.push(Part { flat, offset, shape });
                places = places.saturating_add(more);
            }
            flat = flat.saturating_add(layout.flat);
            offset = offset.saturating_add(layout.size);
        }
        if parts.is_empty() { None } else { Some((Rc::new(Shape::Parts(parts)), places)) }
    }

    fn cases(&mut self, types: TypesRef<'_>, of: &[Option<ComponentValType>]) -> Found {
        let number = discriminant(of.len());
        let align = of.iter().flatten().map(|ty| self.layout(types, ty).align).max().unwrap_or(1);
        let (mut cases, mut places) = (Vec::new(), 0_usize);
        for (case, ty) in (0..).zip(of) {
            if let Some((shape, more)) = ty.and_then(|ty| self.shape(types, &ty)) {
                cases.push((case, Part { flat: 1, offset: align_to(number, align), shape }));
                places = places.saturating_add(more);
            }
        }
        if cases.is_empty() { None } else { Some((Rc::new(Shape::Cases { number, cases }), places)) }
    }

    /// The way to the borrowed handles of a type. How deep types are is limited by the validator.
    fn shape(&mut self, types: TypesRef<'_>, ty: &ComponentValType) -> Found {
        let ComponentValType::Type(id) = ty else { return None };
        if let Some(known) = self.shapes.get(id) {
            return known.clone();
        }
        let found = match &types[*id] {
            ComponentDefinedType::Borrow(resource) => {
                let own = self.own.get(&resource.resource());
                Some((Rc::new(Shape::Handle(own.map_or(Lender::Other, |number| Lender::Own(*number)))), 1))
            }
            ComponentDefinedType::List { element, .. } => {
                let layout = self.layout(types, element);
                self.shape(types, element).map(|(element, places)| {
                    (
                        Rc::new(Shape::Elements { stride: align_to(layout.size, layout.align), element }),
                        places,
                    )
                })
            }
            // their features are not supported
            ComponentDefinedType::Map { key, value, .. } => {
                let found = self.shape(types, key).or_else(|| self.shape(types, value));
                found.map(|(shape, _)| (shape, usize::MAX))
            }
            ComponentDefinedType::FixedLengthList { element, .. } => {
                self.shape(types, element).map(|(shape, _)| (shape, usize::MAX))
            }
            other => match (parts_of(other), cases_of(other)) {
                (Some(parts), _) => self.parts(types, &parts),
                (_, Some(cases)) => self.cases(types, &cases),
                _ => None,
            },
        };
        self.shapes.insert(*id, found.clone());
        found
    }

    fn layout(&mut self, types: TypesRef<'_>, ty: &ComponentValType) -> Layout {
        match ty {
            ComponentValType::Primitive(primitive) => primitive_layout(*primitive),
            ComponentValType::Type(id) => {
                if let Some(known) = self.layouts.get(id) {
                    return *known;
                }
                let layout = self.defined_layout(types, *id);
                self.layouts.insert(*id, layout);
                layout
            }
        }
    }

    fn defined_layout(&mut self, types: TypesRef<'_>, id: ComponentDefinedTypeId) -> Layout {
        match &types[id] {
            ComponentDefinedType::Primitive(primitive) => primitive_layout(*primitive),
            ComponentDefinedType::List { .. } | ComponentDefinedType::Map { .. } => Layout::SPAN,
            ComponentDefinedType::FixedLengthList { element, length, .. } => {
                let element = self.layout(types, element);
                let size = element.size.saturating_mul(*length);
                Layout { size, align: element.align, flat: element.flat.saturating_mul(*length) }
            }
            ComponentDefinedType::Flags(names) => match names.len() {
                0..=8 => Layout::of(1),
                9..=16 => Layout::of(2),
                more => {
                    let words = u32::try_from(more.div_ceil(32)).unwrap_or(u32::MAX);
                    Layout { size: words.saturating_mul(WORD), align: WORD, flat: words }
                }
            },
            ComponentDefinedType::Enum(names) => Layout::of(discriminant(names.len())),
            ComponentDefinedType::Own(_)
            | ComponentDefinedType::Borrow(_)
            | ComponentDefinedType::Future { .. }
            | ComponentDefinedType::Stream { .. } => Layout::of(WORD),
            other => {
                let mut layout = Layout { size: 0, align: 1, flat: 0 };
                for part in parts_of(other).unwrap_or_default() {
                    let part = self.layout(types, &part);
                    layout.size = align_to(layout.size, part.align).saturating_add(part.size);
                    layout.align = layout.align.max(part.align);
                    layout.flat = layout.flat.saturating_add(part.flat);
                }
                if let Some(cases) = cases_of(other) {
                    let number = discriminant(cases.len());
                    let mut payload = Layout { size: 0, align: 1, flat: 0 };
                    for case in cases.iter().flatten() {
                        let case = self.layout(types, case);
                        payload.size = payload.size.max(case.size);
                        payload.align = payload.align.max(case.align);
                        payload.flat = payload.flat.max(case.flat);
                    }
                    layout.size = align_to(number, payload.align).saturating_add(payload.size);
                    layout.align = payload.align.max(number);
                    layout.flat = payload.flat.saturating_add(1);
                }
                Layout { size: align_to(layout.size, layout.align), ..layout }
            }
        }
    }
}

fn primitive_layout(primitive: Primitive) -> Layout {
    match primitive {
        Primitive::Bool | Primitive::S8 | Primitive::U8 => Layout::of(1),
        Primitive::S16 | Primitive::U16 => Layout::of(2),
        Primitive::S32 | Primitive::U32 | Primitive::F32 | Primitive::Char | Primitive::ErrorContext => {
            Layout::of(WORD)
        }
        Primitive::S64 | Primitive::U64 | Primitive::F64 => Layout::of(8),
        Primitive::String => Layout::SPAN,
    }
}

/// The parts of a value that lie one after the other, where it has such.
fn parts_of(ty: &ComponentDefinedType) -> Option<Vec<ComponentValType>> {
    match ty {
        ComponentDefinedType::Record(record) => Some(record.fields.values().copied().collect()),
        ComponentDefinedType::Tuple(tuple) => Some(tuple.types.to_vec()),
        _ => None,
    }
}

/// What a value holds in each of its cases, where it has such.
fn cases_of(ty: &ComponentDefinedType) -> Option<Vec<Option<ComponentValType>>> {
    match ty {
        ComponentDefinedType::Variant(variant) => Some(variant.cases.values().map(|case| case.ty).collect()),
        ComponentDefinedType::Option { ty, .. } => Some(vec![None, Some(*ty)]),
        ComponentDefinedType::Result { ok, err, .. } => Some(vec![*ok, *err]),
        _ => None,
    }
}
