//! Handles that the guest was not given, or has given back.
//!
//! A handle is a number. The safe bindings keep it right; here they are told a lie.

use test_programs::preopen;
use wasip2::filesystem::types::Descriptor;

/// The most handles `many` asks for.
const MOST_HANDLES: usize = 10_000_000;

/// Uses a number as if it were a descriptor.
pub fn forged(number: u32) {
    // SAFETY: the number is not a handle of ours, which `from_handle` asks for. A host has to
    // check every handle; the guest's own memory is not touched.
    let descriptor = unsafe { Descriptor::from_handle(number) };
    println!("forged: {:?}", descriptor.get_flags());
    std::mem::forget(descriptor);
}

/// Uses a descriptor after it was dropped.
pub fn dropped() {
    let Ok(descriptor) = preopen("/workspace") else { return println!("no /workspace") };
    let number = descriptor.take_handle();
    // SAFETY: it is ours, once.
    drop(unsafe { Descriptor::from_handle(number) });
    forged(number);
}

/// Drops a descriptor twice.
pub fn double_drop() {
    let Ok(descriptor) = preopen("/workspace") else { return println!("no /workspace") };
    let number = descriptor.take_handle();
    for _ in 0..2 {
        // SAFETY: it is ours the first time only; the host has to notice the second.
        drop(unsafe { Descriptor::from_handle(number) });
    }
    println!("dropped twice");
}

/// Asks for descriptors and never gives one back; says how many there were.
pub fn many() -> usize {
    let mut kept = Vec::new();
    while kept.len() < MOST_HANDLES {
        let folders = wasip2::filesystem::preopens::get_directories();
        if folders.is_empty() {
            break;
        }
        kept.extend(folders.into_iter().map(|(folder, _)| folder));
    }
    kept.len()
}
