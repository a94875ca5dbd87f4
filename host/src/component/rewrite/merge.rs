//! Makes few data segments of many.
//!
//! A memory that a module defines is zero before its segments are copied to it, one after the other.
//! So segments that lie close together, do not overlap and fit into the memory can be copied as one,
//! with zeros between them.

use wasm_encoder::{ConstExpr, DataSection};
use wasmparser::{DataKind, DataSectionReader, Operator};

use crate::component::error::ComponentError;
use crate::component::module::ModuleInfo;

/// Segments that lie further apart stay separate. Bytes.
const MAX_GAP: u64 = 4096;

/// Zeros that are added, at most. Bytes.
const MAX_FILL: u64 = 64 << 20;

const PAGE: u64 = 65_536;

/// An active segment, with its index.
struct Segment<'a> {
    index: usize,
    memory: u32,
    offset: u64,
    data: &'a [u8],
}

impl Segment<'_> {
    fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }
}

/// The section with the same effect and as many segments, most of which are passive and empty. To code
/// they look the same, since an active segment counts as dropped once it has been copied. None where
/// what the segments do depends on more than their bytes.
pub fn few(reader: DataSectionReader<'_>, info: &ModuleInfo) -> Result<Option<DataSection>, ComponentError> {
    let invalid = |error: wasmparser::Error| ComponentError::invalid(&error);
    let mut passive = Vec::new();
    let mut active = Vec::new();
    for (index, data) in reader.into_iter().enumerate() {
        let data = data.map_err(invalid)?;
        let DataKind::Active { memory_index, offset_expr } = data.kind else {
            passive.push((index, data.data));
            continue;
        };
        let mut operators = offset_expr.get_operators_reader();
        let offset = match operators.read().map_err(invalid)? {
            Operator::I32Const { value } => u64::from(value.cast_unsigned()),
            _ => return Ok(None),
        };
        // a sum of constants is an expression, too
        if !matches!(operators.read().map_err(invalid)?, Operator::End) {
            return Ok(None);
        }
        let segment = Segment { index, memory: memory_index, offset, data: data.data };
        let own = info.memories.iter().find(|(memory, _)| *memory == memory_index);
        // a memory that comes from elsewhere may hold something; a segment that does not fit traps
        if own.is_none_or(|(_, ty)| segment.end() > ty.initial.saturating_mul(PAGE)) {
            return Ok(None);
        }
        active.push(segment);
    }
    let count = passive.len() + active.len();
    active.sort_by_key(|segment| (segment.memory, segment.offset));
    let overlap = |pair: &[Segment<'_>]| pair[0].memory == pair[1].memory && pair[0].end() > pair[1].offset;
    if active.windows(2).any(overlap) {
        return Ok(None);
    }
    let mut places: Vec<Option<Place>> = Vec::new();
    places.resize_with(count, || None);
    for (index, data) in passive {
        places[index] = Some(Place::Passive(data.to_vec()));
    }
    let mut fill = 0;
    let mut run: Option<(usize, u32, u64, Vec<u8>)> = None;
    for segment in active {
        if let Some((_, memory, offset, bytes)) = &mut run {
            let gap = segment.offset - (*offset + bytes.len() as u64).min(segment.offset);
            if *memory == segment.memory && gap <= MAX_GAP && fill + gap <= MAX_FILL {
                fill += gap;
                bytes.resize(bytes.len() + gap as usize, 0);
                bytes.extend_from_slice(segment.data);
                continue;
            }
        }
        let next = (segment.index, segment.memory, segment.offset, segment.data.to_vec());
        if let Some((index, memory, offset, bytes)) = run.replace(next) {
            places[index] = Some(Place::Active(memory, offset, bytes));
        }
    }
    if let Some((index, memory, offset, bytes)) = run {
        places[index] = Some(Place::Active(memory, offset, bytes));
    }
    let mut section = DataSection::new();
    for place in places {
        match place {
            Some(Place::Passive(bytes)) => section.passive(bytes),
            Some(Place::Active(memory, offset, bytes)) => {
                // it was read from 32 bits
                section.active(memory, &ConstExpr::i32_const((offset as u32).cast_signed()), bytes)
            }
            None => section.passive([]),
        };
    }
    Ok(Some(section))
}

/// What stands at an index of the new section.
enum Place {
    Passive(Vec<u8>),
    Active(u32, u64, Vec<u8>),
}

#[cfg(test)]
mod tests {
    use wasmparser::{Parser, Payload};

    use super::*;

    /// The memory after instantiation, and how many active segments made it.
    fn image(module: &[u8], pages: usize) -> (Vec<u8>, usize) {
        let mut memory = vec![0; pages * PAGE as usize];
        let mut active = 0;
        for payload in Parser::new(0).parse_all(module) {
            let Payload::DataSection(reader) = payload.unwrap() else { continue };
            for data in reader {
                let data = data.unwrap();
                if let DataKind::Active { offset_expr, .. } = data.kind {
                    let mut operators = offset_expr.get_operators_reader();
                    let Operator::I32Const { value } = operators.read().unwrap() else { panic!() };
                    memory[value as usize..][..data.data.len()].copy_from_slice(data.data);
                    active += 1;
                }
            }
        }
        (memory, active)
    }

    fn module(segments: impl Iterator<Item = String>) -> Vec<u8> {
        let segments: String = segments.collect();
        wat::parse_str(format!("(module (memory 20) {segments} (data \"passive\"))")).unwrap()
    }

    fn merged(module: &[u8]) -> Option<Vec<u8>> {
        let info = ModuleInfo::read(module).unwrap();
        let reader = Parser::new(0).parse_all(module).find_map(|payload| match payload.unwrap() {
            Payload::DataSection(reader) => Some(reader),
            _ => None,
        });
        let section = few(reader.unwrap(), &info).unwrap()?;
        let mut out = wasm_encoder::Module::new();
        Some({
            out.section(&section);
            out.finish()
        })
    }

    #[test]
    fn many_segments_become_few_with_the_same_bytes() {
        // in an order of their own, close together in two heaps far apart
        let place = |n: usize| (n * 7919 % 3000) * 16 + if n.is_multiple_of(2) { 0 } else { 900_000 };
        let before = module((0..3000).map(|n| format!("(data (i32.const {}) \"{n:04}\")", place(n))));
        let after = merged(&before).unwrap();
        let ((bytes, segments), (same, few)) = (image(&before, 20), image(&after, 20));
        assert!(bytes == same);
        assert_eq!((segments, few), (3000, 2));
        // indices stay what they were: the passive one is the last
        let reader = Parser::new(0).parse_all(&after).find_map(|payload| match payload.unwrap() {
            Payload::DataSection(reader) => Some(reader),
            _ => None,
        });
        let all: Vec<_> = reader.unwrap().into_iter().map(Result::unwrap).collect();
        assert_eq!((all.len(), all[3000].data), (3001, &b"passive"[..]));
    }

    #[test]
    fn what_depends_on_the_order_stays() {
        let overlapping =
            module(["(data (i32.const 8) \"aaaa\") (data (i32.const 10) \"bbbb\")".into()].into_iter());
        assert_eq!(merged(&overlapping), None);
        let outside = module(["(data (i32.const 2000000) \"aaaa\")".into()].into_iter());
        assert_eq!(merged(&outside), None);
        let imported =
            wat::parse_str(r#"(module (import "m" "m" (memory 1)) (data (i32.const 8) "a"))"#).unwrap();
        assert_eq!(merged(&imported), None);
        let apart = module(["(data (i32.const 0) \"a\") (data (i32.const 9000) \"b\")".into()].into_iter());
        assert_eq!(image(&merged(&apart).unwrap(), 20).1, 2);
    }
}
