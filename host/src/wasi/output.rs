//! Standard output and error on their way out.
//!
//! A reader that does not read must hold up the guest alone: neither the thread that runs it, nor the end of its
//! time. So a thread of its own writes, and guests wait for that, unless it is known that nobody has to wait.

use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FileType, fstat};
use tokio::sync::Notify;

use super::streams::WRITE_PERMIT;

/// Bytes that wait to be written, at most.
const WAITING: usize = WRITE_PERMIT as usize;

/// Bytes that a pipe takes at once where it takes any: `PIPE_BUF`.
const PIPE_BUF: usize = 4096;

/// Whether what is written can have to wait for somebody to read.
#[derive(Debug, Default)]
enum Waits {
    /// A file, or a device that is no terminal.
    Never,
    /// Unless the pipe has room.
    ForRoom(OwnedFd),
    #[default]
    Perhaps,
}

impl Waits {
    fn of(to: &impl AsFd) -> Self {
        let Ok(stat) = fstat(to) else { return Self::Perhaps };
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::Never,
            FileType::CharacterDevice if !to.as_fd().is_terminal() => Self::Never,
            FileType::Fifo => to.as_fd().try_clone_to_owned().map_or(Self::Perhaps, Self::ForRoom),
            _ => Self::Perhaps,
        }
    }

    /// Whether so many bytes can be written without waiting.
    fn takes(&self, len: usize) -> bool {
        match self {
            Self::Never => true,
            Self::ForRoom(pipe) => {
                // a pipe without readers takes nothing, and says so at once
                let mut asked = [PollFd::new(pipe, PollFlags::OUT)];
                len <= PIPE_BUF && poll(&mut asked, Some(&rustix::time::Timespec::default())) == Ok(1)
            }
            Self::Perhaps => false,
        }
    }
}

/// Why writing failed. Nothing is written after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputError {
    /// What sort of error it is.
    pub kind: ErrorKind,
    /// In words.
    pub message: String,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Bytes that the thread has taken and not yet written.
    writing: usize,
    error: Option<OutputError>,
    /// The guest knows of the error.
    is_told: bool,
    /// Nobody writes any more.
    closed: bool,
    /// Where it goes; whoever writes has it.
    to: Option<Box<dyn Write + Send>>,
    waits: Waits,
    /// There is a thread.
    started: bool,
}

/// Writes and flushes.
fn write(to: &mut dyn Write, bytes: &[u8]) -> Result<(), OutputError> {
    let written = catch_unwind(AssertUnwindSafe(|| to.write_all(bytes).and_then(|()| to.flush())));
    let written = written.unwrap_or_else(|_| Err(std::io::Error::other("its writer panicked")));
    written.map_err(|e| OutputError { kind: e.kind(), message: e.to_string() })
}

impl State {
    fn room(&self) -> usize {
        WAITING - self.waiting.len() - self.writing
    }

    fn is_written(&self) -> bool {
        self.waiting.is_empty() && self.writing == 0
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// For the thread: there is more to write, or never will be.
    more: Condvar,
    /// For guests: something was written, or failed.
    moved: Notify,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what comes until nobody writes any more, or writing fails.
    fn serve(&self) {
        let mut state = self.lock();
        loop {
            let idle = |state: &mut State| state.waiting.is_empty() && !state.closed;
            state = self.more.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
            let Some(mut to) = state.to.take().filter(|_| !state.waiting.is_empty()) else { return };
            let piece = std::mem::take(&mut state.waiting);
            state.writing = piece.len();
            drop(state);
            let written = write(&mut *to, &piece);
            state = self.lock();
            state.to = Some(to);
            state.writing = 0;
            if let Err(e) = written {
                state.error = Some(e);
                state.waiting.clear();
            }
            self.moved.notify_waiters();
            if state.error.is_some() {
                return;
            }
        }
    }
}

/// Ends the thread once all is written.
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.more.notify_one();
    }
}

/// Where standard output or error goes. Cheap to clone; what was written is still on its way when the last clone goes,
/// unless [`written`](Self::written) was awaited.
#[derive(Clone)]
pub struct Output(Arc<Handle>);

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Output")
    }
}

impl Output {
    /// Writes to `to`, in a thread that begins with the first write.
    pub fn writing(to: impl Write + Send + 'static) -> Self {
        Self::with(to, Waits::Perhaps)
    }

    /// As [`writing`](Self::writing), to what has a descriptor: what never has to wait for a reader, or has room for
    /// what is written, takes it at once, without the thread.
    pub fn writing_to(to: impl Write + AsFd + Send + 'static) -> Self {
        let waits = Waits::of(&to);
        Self::with(to, waits)
    }

    fn with(to: impl Write + Send + 'static, waits: Waits) -> Self {
        let state = State { to: Some(Box::new(to)), waits, ..State::default() };
        Self(Arc::new(Handle(Arc::new(Shared { state: Mutex::new(state), ..Shared::default() }))))
    }

    fn shared(&self) -> &Arc<Shared> {
        &self.0.0
    }

    /// Bytes that [`push`](Self::push) takes now.
    ///
    /// # Errors
    ///
    /// Why an earlier write failed.
    pub fn room(&self) -> Result<usize, OutputError> {
        let mut state = self.shared().lock();
        match state.error.clone() {
            None => Ok(state.room()),
            Some(e) => {
                state.is_told = true;
                Err(e)
            }
        }
    }

    /// Has bytes written. Takes all or, where there is no [`room`](Self::room) for them, nothing; says which.
    ///
    /// # Errors
    ///
    /// Why an earlier write failed.
    pub fn push(&self, bytes: &[u8]) -> Result<bool, OutputError> {
        if self.room()? < bytes.len() {
            return Ok(false);
        }
        let mut state = self.shared().lock();
        let at_once = state.is_written() && state.waits.takes(bytes.len());
        if at_once && let Some(to) = &mut state.to {
            let written = write(&mut **to, bytes);
            return match written {
                Ok(()) => Ok(true),
                Err(e) => {
                    (state.error, state.is_told) = (Some(e.clone()), true);
                    Err(e)
                }
            };
        }
        state.waiting.extend_from_slice(bytes);
        if !std::mem::replace(&mut state.started, true) {
            let shared = self.shared().clone();
            let work = move || shared.serve();
            if let Err(e) = std::thread::Builder::new().name("dormouse-output".into()).spawn(work) {
                let message = format!("starting the thread that writes: {e}");
                let error = OutputError { kind: e.kind(), message };
                (state.error, state.is_told) = (Some(error.clone()), true);
                state.waiting.clear();
                return Err(error);
            }
        }
        drop(state);
        self.shared().more.notify_one();
        Ok(true)
    }

    async fn until(&self, holds: impl Fn(&State) -> bool) -> Result<(), OutputError> {
        loop {
            let mut moved = std::pin::pin!(self.shared().moved.notified());
            moved.as_mut().enable();
            self.room()?;
            if holds(&self.shared().lock()) {
                return Ok(());
            }
            moved.await;
        }
    }

    /// Waits until there is room for so many bytes, or for as many as there ever is.
    ///
    /// # Errors
    ///
    /// Why an earlier write failed.
    pub async fn ready(&self, room: usize) -> Result<(), OutputError> {
        self.until(|state| state.room() >= room.min(WAITING)).await
    }

    /// Waits until everything is written and flushed.
    ///
    /// # Errors
    ///
    /// Why that failed.
    pub async fn written(&self) -> Result<(), OutputError> {
        self.until(State::is_written).await
    }

    /// Whether something still waits for a reader.
    pub fn is_held_up(&self) -> bool {
        let state = self.shared().lock();
        state.error.is_none() && !state.is_written()
    }

    /// Why writing failed, where the guest does not know.
    pub fn untold(&self) -> Option<OutputError> {
        let state = self.shared().lock();
        state.error.clone().filter(|_| !state.is_told)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// Takes a write for each message.
    struct Held(mpsc::Receiver<()>, Arc<Mutex<Vec<u8>>>);

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.recv().map_err(|_| std::io::Error::from(ErrorKind::BrokenPipe))?;
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_pipe_takes_at_once_what_it_has_room_for_and_the_rest_waits() {
        use std::io::Read;
        let (mut reader, writer) = std::io::pipe().unwrap();
        let output = Output::writing_to(writer);
        let line = [b'x'; 1000];
        let mut pushed = 0;
        while !output.is_held_up() {
            assert!(output.push(&line).unwrap());
            pushed += line.len();
        }
        assert!(pushed > 4 * PIPE_BUF, "{pushed} bytes");
        assert!(output.push(b"the end").unwrap(), "it waits behind the others");
        let mut got = vec![0; pushed + 7];
        reader.read_exact(&mut got).unwrap();
        assert!(got.ends_with(b"xthe end"));
        drop(reader);
        while output.push(b"gone").is_ok() {}
        assert_eq!(output.push(b"gone").unwrap_err().kind, ErrorKind::BrokenPipe);
    }

    #[test]
    fn a_file_never_waits() {
        let output = Output::writing_to(tempfile::tempfile().unwrap());
        for _ in 0..100 {
            assert!(output.push(&vec![b'x'; WAITING]).unwrap());
            assert!(!output.is_held_up());
        }
        assert!(!output.shared().lock().started);
    }

    #[tokio::test]
    async fn a_reader_that_does_not_read_holds_up_whoever_waits_and_nobody_else() {
        let (go, held) = mpsc::channel();
        let got = Arc::new(Mutex::new(Vec::new()));
        let output = Output::writing(Held(held, got.clone()));
        assert!(output.push(&vec![b'x'; WAITING]).unwrap());
        assert!(!output.push(b"more").unwrap(), "there is no room");
        assert!(output.is_held_up());
        {
            let mut written = std::pin::pin!(output.written());
            tokio::select! {
                biased;
                _ = &mut written => panic!("nobody has read"),
                () = std::future::ready(()) => {}
            }
            go.send(()).unwrap();
            written.await.unwrap();
        }
        assert_eq!(got.lock().unwrap().len(), WAITING);
        assert!(output.push(b"the rest").unwrap());
        drop(go);
        let gone = output.written().await.unwrap_err();
        assert_eq!(gone.kind, ErrorKind::BrokenPipe);
        assert_eq!(output.push(b"and more"), Err(gone));
    }
}
