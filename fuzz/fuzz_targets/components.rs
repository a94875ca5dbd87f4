//! Components: what is accepted is rewritten, validates, and is in proportion to the file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| drop(dormouse::component::fuzzing::components(bytes)));
