//! `fork-peer BYTES COUNT`: a process that has written to so much memory, and forks itself as often. Prints how many
//! nanoseconds each call of `fork` took, a line for each.

use std::time::Instant;

use anyhow::{Context, ensure};

fn main() -> anyhow::Result<()> {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let [bytes, count] = numbers[..] else { anyhow::bail!("usage: fork-peer BYTES COUNT") };
    let memory = vec![1u8; bytes];
    for _ in 0..count {
        let begun = Instant::now();
        // SAFETY: the process has one thread, and the child ends at once.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: always.
            unsafe { libc::_exit(0) }
        }
        let took = begun.elapsed();
        ensure!(child > 0, "fork: {}", std::io::Error::last_os_error());
        println!("{}", took.as_nanos());
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        ensure!(waited == child, "waitpid: {}", std::io::Error::last_os_error());
    }
    memory.last().context("no memory")?;
    std::hint::black_box(&memory);
    Ok(())
}
