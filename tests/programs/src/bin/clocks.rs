//! Clocks and pollables.

use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use test_programs::{Checks, holds, same};
use wasip2::clocks::{monotonic_clock, wall_clock};
use wasip2::io::poll::{Pollable, poll};

const MILLISECOND: u64 = 1_000_000;
/// How long a busy machine may let a sleeper wait, in nanoseconds.
const PATIENCE: u64 = 5_000 * MILLISECOND;

fn main() -> ExitCode {
    let mut checks = Checks::new();
    reading(&mut checks);
    waiting(&mut checks);
    polling(&mut checks);
    checks.finish()
}

/// How long something took, in nanoseconds.
fn took(what: impl FnOnce()) -> u64 {
    let before = monotonic_clock::now();
    what();
    monotonic_clock::now() - before
}

fn reading(checks: &mut Checks) {
    checks.check("the monotonic clock never goes back", || {
        let mut last = monotonic_clock::now();
        for _ in 0..10_000 {
            let now = monotonic_clock::now();
            holds(now >= last, "it went back")?;
            last = now;
        }
        Ok(())
    });
    checks.check("clocks have a resolution", || {
        let resolution = monotonic_clock::resolution();
        holds((1..=1_000 * MILLISECOND).contains(&resolution), "no sane monotonic resolution")?;
        let wall = wall_clock::resolution();
        holds(wall.seconds > 0 || wall.nanoseconds > 0, "a wall clock resolution of zero")
    });
    checks.check("the wall clock is of this century", || {
        let now = wall_clock::now();
        holds(now.nanoseconds < 1_000_000_000, "a nanosecond part of a second or more")?;
        holds((1_700_000_000..4_000_000_000).contains(&now.seconds), "not of this century")
    });
    checks.check("std reads the same clocks", || {
        let std = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs();
        holds(std.abs_diff(wall_clock::now().seconds) <= 60, "the wall clocks differ")?;
        let started = Instant::now();
        holds(started.elapsed() < Duration::from_mins(1), "an instant takes a minute")
    });
}

fn waiting(checks: &mut Checks) {
    checks.check("std sleeps at least as long as asked", || {
        let slept = took(|| thread::sleep(Duration::from_millis(20)));
        holds((20 * MILLISECOND..PATIENCE).contains(&slept), &format!("slept {slept} ns"))
    });
    checks.check("subscribe-duration waits", || {
        let waited = took(|| monotonic_clock::subscribe_duration(10 * MILLISECOND).block());
        holds((10 * MILLISECOND..PATIENCE).contains(&waited), &format!("waited {waited} ns"))
    });
    checks.check("subscribe-instant waits until then", || {
        let then = monotonic_clock::now() + 10 * MILLISECOND;
        monotonic_clock::subscribe_instant(then).block();
        holds(monotonic_clock::now() >= then, "woke too early")
    });
    checks.check("what is past is ready at once", || {
        for past in [monotonic_clock::subscribe_instant(0), monotonic_clock::subscribe_duration(0)] {
            let waited = took(|| past.block());
            holds(waited < PATIENCE, &format!("waited {waited} ns"))?;
            holds(past.ready(), "not ready after block")?;
        }
        Ok(())
    });
    checks.check("what is to come is not ready", || {
        holds(!monotonic_clock::subscribe_duration(3_600_000 * MILLISECOND).ready(), "an hour has passed")?;
        holds(!monotonic_clock::subscribe_duration(u64::MAX).ready(), "five centuries have passed")
    });
}

fn polling(checks: &mut Checks) {
    let hour = 3_600_000 * MILLISECOND;
    checks.check("poll tells which are ready", || {
        let timers: Vec<Pollable> =
            [hour, 0, hour, 0].into_iter().map(monotonic_clock::subscribe_duration).collect();
        let ready = poll(&timers.iter().collect::<Vec<_>>());
        same(&ready, &vec![1, 3])
    });
    checks.check("poll waits for the first of several", || {
        let timers: Vec<Pollable> =
            [hour, 10 * MILLISECOND, hour].into_iter().map(monotonic_clock::subscribe_duration).collect();
        let mut ready = Vec::new();
        let waited = took(|| ready = poll(&timers.iter().collect::<Vec<_>>()));
        same(&ready, &vec![1])?;
        holds((10 * MILLISECOND..PATIENCE).contains(&waited), &format!("waited {waited} ns"))
    });
    checks.check("one pollable may be asked for twice", || {
        let timer = monotonic_clock::subscribe_duration(MILLISECOND);
        same(&poll(&[&timer, &timer]), &vec![0, 1])?;
        same(&poll(&[&timer]), &vec![0])
    });
    checks.check("standard input and a clock can be waited for together", || {
        let input = wasip2::cli::stdin::get_stdin();
        let (readable, timer) = (input.subscribe(), monotonic_clock::subscribe_duration(MILLISECOND));
        timer.block();
        holds(poll(&[&readable, &timer]).contains(&1), "the clock is not among the ready")
    });
}
