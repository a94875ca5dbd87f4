//! Byte strings for serde: written as a length and the bytes, copied in one piece.

use std::fmt;
use std::sync::Arc;

use serde::de::{Error, Visitor};
use serde::{Deserializer, Serializer};

struct Bytes;

impl Visitor<'_> for Bytes {
    type Value = Vec<u8>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a byte string")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
        Ok(bytes.to_vec())
    }

    fn visit_byte_buf<E: Error>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
        Ok(bytes)
    }
}

pub(crate) fn deserialize_vec<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    from.deserialize_bytes(Bytes)
}

/// For `#[serde(with = "bytes::vec")]`.
pub(crate) mod vec {
    use super::{Deserializer, Serializer, deserialize_vec};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        deserialize_vec(from)
    }
}

/// For `#[serde(with = "bytes::shared")]`.
pub(crate) mod shared {
    use super::{Arc, Deserializer, Serializer, deserialize_vec};

    pub(crate) fn serialize<S: Serializer>(bytes: &Arc<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Vec<u8>>, D::Error> {
        deserialize_vec(from).map(Arc::new)
    }
}

/// For `#[serde(with = "bytes::optional")]`: a byte, 0 or 1, and then the byte string.
pub(crate) mod optional {
    use serde::{Deserialize, Serialize};

    use super::{Deserializer, Serializer};

    #[derive(Serialize)]
    struct Borrowed<'a>(#[serde(with = "super::vec")] &'a [u8]);

    #[derive(Deserialize)]
    struct Owned(#[serde(with = "super::vec")] Vec<u8>);

    #[expect(clippy::ref_option, reason = "as serde calls it")]
    pub(crate) fn serialize<S: Serializer>(bytes: &Option<Vec<u8>>, to: S) -> Result<S::Ok, S::Error> {
        bytes.as_deref().map(Borrowed).serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<u8>>, D::Error> {
        Ok(Option::<Owned>::deserialize(from)?.map(|owned| owned.0))
    }
}
