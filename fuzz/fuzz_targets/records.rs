//! Log files and the records in them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zone_vfs::fuzzing::records(bytes));
