//! A terminal for the program.

use std::fs::File;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::process::{Command, Stdio};

/// Runs a command whose three streams are a terminal, and gives everything that appeared on it.
pub fn on_terminal(command: &mut Command) -> String {
    let (mut ours, theirs) = open();
    let stream = || Stdio::from(theirs.try_clone().expect("a copy of the terminal"));
    let mut child = command.stdin(stream()).stdout(stream()).stderr(stream()).spawn().expect("the program");
    // a `Command` keeps the streams that it was given
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    drop(theirs);
    let mut shown = Vec::new();
    let mut piece = [0; 4096];
    // when the last process has closed its side, Linux answers with an error and macOS with nothing
    while let Ok(read @ 1..) = ours.read(&mut piece) {
        shown.extend_from_slice(&piece[..read]);
    }
    child.wait().expect("the program's end");
    String::from_utf8_lossy(&shown).into_owned()
}

/// Our side of a new terminal, and the program's.
fn open() -> (File, OwnedFd) {
    let (mut ours, mut theirs) = (-1, -1);
    let none = std::ptr::null_mut();
    // SAFETY: the two numbers are written to, the other three pointers may be null.
    let opened = unsafe { libc::openpty(&raw mut ours, &raw mut theirs, none, none.cast(), none.cast()) };
    assert_eq!(opened, 0, "a terminal: {}", std::io::Error::last_os_error());
    // SAFETY: both have just been opened and belong to nobody else.
    unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) }
}
