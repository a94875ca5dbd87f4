//! Operations by path in a zone: what fails does nothing, and links stay sound.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| zone_vfs::fuzzing::paths(bytes));
