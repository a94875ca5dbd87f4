//! Bytes on their way to a guest: lowered into its memory from where they lie, with no copy between.

use std::hash::{Hash, Hasher};
use std::mem::MaybeUninit;
use std::ops::Deref;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use wasmtime::Result;
use wasmtime::component::__internal::{CanonicalAbiInfo, InstanceType, InterfaceType, LowerContext};
use wasmtime::component::{ComponentType, Lower};
use zone_vfs::zone::Bytes;

/// A `list<u8>` that a call gives.
#[derive(Debug)]
pub(crate) enum Blob {
    /// What a zone holds.
    Zone(Bytes),
    /// What was made for the call.
    Own(Vec<u8>),
}

impl Deref for Blob {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Zone(bytes) => bytes,
            Self::Own(bytes) => bytes,
        }
    }
}

/// By its length alone: what a zone holds follows from what was done to it.
impl Hash for Blob {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_usize(self.len());
    }
}

impl Serialize for Blob {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_bytes(self)
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Self, D::Error> {
        Vec::deserialize(from).map(Self::Own)
    }
}

impl From<Blob> for Vec<u8> {
    fn from(blob: Blob) -> Self {
        match blob {
            Blob::Zone(bytes) => bytes.to_vec(),
            Blob::Own(bytes) => bytes,
        }
    }
}

// SAFETY: it is a slice of bytes in all that these traits ask.
unsafe impl ComponentType for Blob {
    type Lower = <[u8] as ComponentType>::Lower;

    const ABI: CanonicalAbiInfo = <[u8] as ComponentType>::ABI;

    fn typecheck(ty: &InterfaceType, types: &InstanceType<'_>) -> Result<()> {
        <[u8] as ComponentType>::typecheck(ty, types)
    }
}

// SAFETY: the same.
unsafe impl Lower for Blob {
    fn linear_lower_to_flat<T>(
        &self,
        cx: &mut LowerContext<'_, T>,
        ty: InterfaceType,
        to: &mut MaybeUninit<Self::Lower>,
    ) -> Result<()> {
        <[u8] as Lower>::linear_lower_to_flat(self, cx, ty, to)
    }

    fn linear_lower_to_memory<T>(
        &self,
        cx: &mut LowerContext<'_, T>,
        ty: InterfaceType,
        offset: usize,
    ) -> Result<()> {
        <[u8] as Lower>::linear_lower_to_memory(self, cx, ty, offset)
    }
}
