//! The handle table: the numbers that a guest holds, and what stands behind them.
//!
//! A rewritten component holds plain `u32` numbers where it held resources. Here is the table that
//! gives them meaning. It is one per instance, it is the host's own, and it can be written out with
//! a generation and read back in another process; see [`Object`] for what survives that.
//!
//! A number is `generation << 20 | slot`, never 0 and below 2^31: a slot that is used again hands out
//! another number, so that a handle used after its drop is an error and not somebody else's object.

use serde::{Deserialize, Serialize};
use wasmtime::component::Resource;
use zone_vfs::id::Inode;
use zone_vfs::zone::OpenedFor;

use super::delegate_generated::Kind;
use super::object::Object;

const SLOT_BITS: u32 = 20;
const GENERATION_MASK: u16 = 0x7ff;

/// Handles that one instance may hold at once.
pub const MAX_HANDLES: usize = 1 << 16;

/// A handle as the guest holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Handle(pub u32);

/// Why a handle was refused. The guest's call traps: a component that holds a wrong handle is broken,
/// as it would be under any host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandleError {
    /// Nothing is behind this number (forged, dropped, or another store's).
    #[error("unknown handle {0:#x}")]
    Unknown(u32),
    /// What is behind it is of another type.
    #[error("handle {handle:#x} is not {expected}, it is {found}")]
    WrongType {
        /// The number.
        handle: u32,
        /// What the call takes.
        expected: &'static str,
        /// What the number stands for.
        found: &'static str,
    },
    /// The instance holds as many handles as it may.
    #[error("an instance holds at most {MAX_HANDLES} handles")]
    Full,
    /// It was a connection or a body in flight when the agent was paused.
    #[error("handle {0:#x} was closed when the agent was paused")]
    Gone(u32),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Slot {
    generation: u16,
    object: Option<Object>,
}

/// The handles of one instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HandleTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

impl Default for HandleTable {
    fn default() -> Self {
        // slot 0 is never handed out, so that 0 is never a handle
        Self { slots: vec![Slot::default()], free: Vec::new() }
    }
}

impl HandleTable {
    /// Puts `object` behind a new number.
    pub fn push(&mut self, object: Object) -> Result<u32, HandleError> {
        let slot = if let Some(slot) = self.free.pop() {
            slot
        } else {
            if self.slots.len() > MAX_HANDLES {
                return Err(HandleError::Full);
            }
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        };
        let entry = &mut self.slots[slot as usize];
        entry.object = Some(object);
        Ok(u32::from(entry.generation & GENERATION_MASK) << SLOT_BITS | slot)
    }

    #[inline]
    fn slot(&self, handle: u32) -> Result<usize, HandleError> {
        let slot = (handle & ((1 << SLOT_BITS) - 1)) as usize;
        match self.slots.get(slot) {
            Some(entry) if u32::from(entry.generation & GENERATION_MASK) == handle >> SLOT_BITS => Ok(slot),
            _ => Err(HandleError::Unknown(handle)),
        }
    }

    /// What is behind `handle`.
    #[inline]
    pub fn get(&self, handle: u32) -> Result<&Object, HandleError> {
        self.slots[self.slot(handle)?].object.as_ref().ok_or(HandleError::Unknown(handle))
    }

    /// What is behind `handle`, to be changed.
    #[inline]
    pub fn get_mut(&mut self, handle: u32) -> Result<&mut Object, HandleError> {
        let slot = self.slot(handle)?;
        self.slots[slot].object.as_mut().ok_or(HandleError::Unknown(handle))
    }

    /// Takes the object away; the number is never valid again.
    pub fn take(&mut self, handle: u32) -> Result<Object, HandleError> {
        let slot = self.slot(handle)?;
        let entry = &mut self.slots[slot];
        let object = entry.object.take().ok_or(HandleError::Unknown(handle))?;
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(slot as u32);
        Ok(object)
    }

    /// Takes the object away if it is of this type.
    pub fn take_as(&mut self, handle: u32, kind: Kind) -> Result<Object, HandleError> {
        let found = self.get(handle)?;
        if found.kind() != Some(kind) {
            return Err(HandleError::WrongType { handle, expected: kind.name(), found: found.type_name() });
        }
        self.take(handle)
    }

    /// What a resource of the component's own is to it, if it is of this type.
    pub fn guest(&self, ty: u32, handle: u32) -> Result<u32, HandleError> {
        match self.get(handle)? {
            Object::Guest { ty: found, rep } if *found == ty => Ok(*rep),
            _ => Err(self.wrong(handle, "a resource of the component's own, of the type that is asked for")),
        }
    }

    /// The error for a handle of the wrong type.
    #[cold]
    pub fn wrong(&self, handle: u32, expected: &'static str) -> HandleError {
        match self.get(handle) {
            Ok(Object::Gone(_)) => HandleError::Gone(handle),
            Ok(object) => HandleError::WrongType { handle, expected, found: object.type_name() },
            Err(e) => e,
        }
    }

    /// Every object, with its handle.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Object)> {
        self.slots.iter().enumerate().filter_map(|(slot, entry)| {
            let object = entry.object.as_ref()?;
            Some((u32::from(entry.generation & GENERATION_MASK) << SLOT_BITS | slot as u32, object))
        })
    }

    /// What is open in the zones: the zone's index, the inode and what for, once for each handle.
    pub fn open_files(&self) -> impl Iterator<Item = (u16, Inode, OpenedFor)> {
        self.slots.iter().filter_map(|slot| {
            let object = slot.object.as_ref()?;
            let (zone, inode) = object.keeps_open()?;
            Some((zone, inode, object.opened_for()))
        })
    }

    /// How many handles are held.
    pub fn len(&self) -> usize {
        self.slots.iter().filter(|s| s.object.is_some()).count()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether any handle stands for a resource of wasmtime's.
    pub fn has_foreign(&self) -> bool {
        self.slots.iter().any(|slot| matches!(slot.object, Some(Object::Foreign(..))))
    }

    /// The table as a generation keeps it: what lives in wasmtime's own table, and dies with the
    /// process, is marked as gone.
    #[must_use]
    pub fn detached(&self) -> Self {
        let mut table = self.clone();
        for slot in &mut table.slots {
            if let Some(Object::Foreign(kind, _)) = slot.object {
                slot.object = Some(Object::Gone(kind));
            }
        }
        table
    }

    /// Closes what is open in these zones, except their roots: for a fork, whose logs begin anew.
    pub fn close_files_in(&mut self, zones: &[u16]) {
        self.close_files(|(zone, inode)| zones.contains(&zone) && inode != Inode::ROOT);
    }

    /// Closes what is open of these files.
    pub fn close_files(&mut self, closes: impl Fn((u16, Inode)) -> bool) {
        for slot in &mut self.slots {
            let open = slot.object.as_ref().and_then(Object::keeps_open);
            if open.is_some_and(&closes) {
                let kind = match slot.object {
                    Some(Object::DirectoryStream { .. }) => Kind::DirectoryEntryStream,
                    Some(Object::FileInput { .. }) => Kind::InputStream,
                    Some(Object::FileOutput { .. }) => Kind::OutputStream,
                    _ => Kind::Descriptor,
                };
                slot.object = Some(Object::Gone(kind));
            }
        }
    }

    /// Checks a table that was read from a record: numbers within limits, free slots free.
    pub fn check(&self) -> Result<(), String> {
        if self.slots.is_empty() || self.slots.len() > MAX_HANDLES + 1 {
            return Err("a handle table of impossible size".into());
        }
        let mut free = self.free.clone();
        free.sort_unstable();
        free.dedup();
        let valid = free.len() == self.free.len()
            && free
                .iter()
                .all(|s| *s != 0 && self.slots.get(*s as usize).is_some_and(|s| s.object.is_none()));
        if valid { Ok(()) } else { Err("a handle table whose free list is wrong".into()) }
    }

    // What the generated glue for delegated interfaces uses.

    /// Puts a resource of wasmtime's table behind a new number.
    pub fn put<R: 'static>(&mut self, kind: Kind, resource: Resource<R>) -> Result<u32, HandleError> {
        self.push(Object::Foreign(kind, resource.rep()))
    }

    /// Borrows a resource of wasmtime's table.
    pub fn borrow<R: 'static>(&self, kind: Kind, handle: u32) -> Result<Resource<R>, HandleError> {
        match self.get(handle)? {
            Object::Foreign(found, rep) if *found == kind => Ok(Resource::new_borrow(*rep)),
            _ => Err(self.wrong(handle, "a live resource of the type that is asked for")),
        }
    }

    /// Takes a resource of wasmtime's table.
    pub fn own<R: 'static>(&mut self, kind: Kind, handle: u32) -> Result<Resource<R>, HandleError> {
        let rep = self.borrow::<R>(kind, handle)?.rep();
        self.take(handle)?;
        Ok(Resource::new_own(rep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_never_good_twice() {
        let mut table = HandleTable::default();
        let first = table.push(Object::Stdout).unwrap();
        assert_ne!(first, 0);
        table.take(first).unwrap();
        let second = table.push(Object::Stderr).unwrap();
        assert_ne!(first, second);
        assert_eq!(table.get(first).unwrap_err(), HandleError::Unknown(first));
        assert_eq!(table.take(first).unwrap_err(), HandleError::Unknown(first));
        assert!(matches!(table.get(second), Ok(Object::Stderr)));
    }

    #[test]
    fn forged_numbers_are_unknown() {
        let mut table = HandleTable::default();
        table.push(Object::Stdout).unwrap();
        for forged in [0, 2, 17, 1 << 20, u32::MAX, 1 << 31] {
            assert_eq!(table.get(forged).unwrap_err(), HandleError::Unknown(forged));
        }
    }

    #[test]
    fn a_handle_is_dropped_as_what_it_is() {
        let mut table = HandleTable::default();
        let handle = table.push(Object::Stdout).unwrap();
        assert!(matches!(table.take_as(handle, Kind::Descriptor), Err(HandleError::WrongType { .. })));
        assert!(matches!(table.take_as(handle, Kind::OutputStream), Ok(Object::Stdout)));
    }

    #[test]
    fn a_resource_of_a_components_own_is_of_its_type() {
        let mut table = HandleTable::default();
        let handle = table.push(Object::Guest { ty: 3, rep: 42 }).unwrap();
        let other = table.push(Object::Stdout).unwrap();
        assert_eq!(table.guest(3, handle), Ok(42));
        assert!(matches!(table.guest(4, handle), Err(HandleError::WrongType { .. })));
        assert!(matches!(table.guest(3, other), Err(HandleError::WrongType { .. })));
        assert!(matches!(table.take_as(handle, Kind::OutputStream), Err(HandleError::WrongType { .. })));
        let bytes = postcard::to_stdvec(&table.detached()).unwrap();
        let back: HandleTable = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(back.guest(3, handle), Ok(42));
    }

    /// What records hold. It changes with the journal's version alone, and what is added comes last.
    #[test]
    fn the_form_of_a_table_is_fixed() {
        let mut table = HandleTable::default();
        table.push(Object::Stdin).unwrap();
        table.push(Object::Guest { ty: 3, rep: 42 }).unwrap();
        let bytes = postcard::to_stdvec(&table).unwrap();
        assert_eq!(bytes, [3, 0, 0, 0, 1, 4, 0, 1, 13, 3, 42, 0]);
    }

    #[test]
    fn handles_are_limited() {
        let mut table = HandleTable::default();
        let all: Vec<_> = (0..MAX_HANDLES).map(|_| table.push(Object::Stdout).unwrap()).collect();
        assert_eq!(table.push(Object::Stdout).unwrap_err(), HandleError::Full);
        table.take(all[7]).unwrap();
        table.push(Object::Stdout).unwrap();
    }

    #[test]
    fn a_table_survives_being_written_out() {
        let mut table = HandleTable::default();
        let kept = table.push(Object::Stdin).unwrap();
        let dropped = table.push(Object::Stdout).unwrap();
        table.take(dropped).unwrap();
        let bytes = postcard::to_stdvec(&table.detached()).unwrap();
        let back: HandleTable = postcard::from_bytes(&bytes).unwrap();
        back.check().unwrap();
        assert!(matches!(back.get(kept), Ok(Object::Stdin)));
        assert!(back.get(dropped).is_err());
        assert_eq!(back.len(), 1);
    }
}
