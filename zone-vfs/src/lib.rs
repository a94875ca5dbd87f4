//! A store of zones: copy-on-write filesystem trees with contracts, over one write-ahead log.

pub mod chunks;
pub mod device;
pub mod id;
pub mod log;
pub mod segment;
pub mod superblock;
