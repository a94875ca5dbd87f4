//! A store of zones: copy-on-write filesystem trees with contracts, over one write-ahead log.

pub mod chunks;
pub mod contract;
pub mod device;
pub mod id;
pub mod log;
pub mod segment;
pub mod store;
pub mod superblock;
pub mod tree;
pub mod zone;
