//! Trees beside plain maps, and nodes of any bytes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zone_vfs::fuzzing::trees(bytes));
