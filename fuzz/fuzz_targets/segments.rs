//! Segment files: what is got under an address has that address.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zone_vfs::fuzzing::segments(bytes));
