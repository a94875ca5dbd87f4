//! Exports: what is taken in is sound, and of what is refused nothing is there.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zone_vfs::fuzzing::exports(bytes));
