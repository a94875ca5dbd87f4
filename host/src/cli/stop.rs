//! What ends a command early.

use std::future::Future;
use std::time::Duration;

/// Why a command ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// A signal, after which a command ends with this status.
    Signal(u8),
    /// Its time is up.
    Late,
}

/// The status after Ctrl-C.
const INTERRUPTED: u8 = 130;
/// The status after a request to terminate (SIGTERM).
const TERMINATED: u8 = 143;

/// Comes with the status to end with when a signal asks for the end.
pub async fn signalled() -> u8 {
    tokio::select! {
        // an error means that there are no signals: then none comes
        Ok(()) = tokio::signal::ctrl_c() => INTERRUPTED,
        () = terminated() => TERMINATED,
    }
}

/// Comes when a command is to end. The time counts from now.
pub fn stopped(timeout: Option<Duration>) -> impl Future<Output = Why> {
    // a time that cannot be reached is none
    let end = timeout.and_then(|time| tokio::time::Instant::now().checked_add(time));
    async move {
        let late = async {
            match end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            status = signalled() => Why::Signal(status),
            () = late => Why::Late,
        }
    }
}

async fn terminated() {
    match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => std::future::pending().await,
    }
}

/// Waits for `work`, unless `stop` comes first: then the work is dropped.
pub async fn unless<T, W>(stop: impl Future<Output = W>, work: impl Future<Output = T>) -> Result<T, W> {
    tokio::select! {
        biased;
        done = work => Ok(done),
        why = stop => Err(why),
    }
}
