//! Waiting for clocks, standard streams, and what is delegated.

use std::time::Duration;

use wasmtime::component::Resource;
use wasmtime_wasi::p2::bindings::io::poll::{Host as _, HostPollable as _};

use super::call::Call;
use super::delegate_generated::Kind;
use super::object::{Object, Pollable};
use super::output::Output;
use super::state::GuestState;

/// Pollables in one call, at most.
pub const MAX_POLLABLES: usize = 4096;
/// One sleep is at most this long; a longer wait sleeps again.
const LONGEST_SLEEP: Duration = Duration::from_hours(1);

enum Readiness {
    Ready,
    At(u64),
    Stdin,
    Output { error: bool },
    Foreign(u32),
}

/// Comes when there is room in an output, or it has failed.
async fn taken(output: Option<Output>) {
    match output {
        // an error is told to whoever writes
        Some(output) => output.ready(1).await.unwrap_or_default(),
        None => std::future::pending().await,
    }
}

impl GuestState {
    fn readiness(&mut self, handle: u32) -> wasmtime::Result<Readiness> {
        Ok(match self.table.get(handle)? {
            Object::Pollable(Pollable::Ready) | Object::Gone(Kind::Pollable) => Readiness::Ready,
            Object::Pollable(Pollable::At(at)) => {
                let at = *at;
                if self.outside.now() >= at { Readiness::Ready } else { Readiness::At(at) }
            }
            Object::Pollable(Pollable::Stdin) => match &self.stdio.stdin {
                Some(input) if !input.is_ready() => Readiness::Stdin,
                _ => Readiness::Ready,
            },
            Object::Pollable(pollable @ (Pollable::Stdout | Pollable::Stderr)) => {
                let error = *pollable == Pollable::Stderr;
                match self.stdio.output(error) {
                    Some(output) if output.room() == Ok(0) => Readiness::Output { error },
                    _ => Readiness::Ready,
                }
            }
            Object::Foreign(Kind::Pollable, rep) => Readiness::Foreign(*rep),
            _ => return Err(self.table.wrong(handle, "a pollable").into()),
        })
    }

    /// Whether it is ready whatever else happens.
    fn is_always_ready(&self, handle: u32) -> bool {
        matches!(self.table.get(handle), Ok(Object::Pollable(Pollable::Ready) | Object::Gone(Kind::Pollable)))
    }

    pub(super) async fn poll_ready(&mut self, handle: u32) -> wasmtime::Result<bool> {
        let now = self.readiness(handle)?;
        if self.is_always_ready(handle) {
            return Ok(true);
        }
        let asked = Call::Ready.plain().with(handle.into());
        if let Some(known) = self.recalled(asked)? {
            return Ok(known);
        }
        let ready = match now {
            Readiness::Ready => true,
            Readiness::At(_) | Readiness::Stdin | Readiness::Output { .. } => false,
            Readiness::Foreign(rep) => self.foreign().ready(Resource::new_borrow(rep)).await?,
        };
        self.recorded(asked, &ready)?;
        Ok(ready)
    }

    /// Waits until at least one is ready, and gives the indices of those that are.
    pub(super) async fn poll_any(&mut self, handles: &[u32]) -> wasmtime::Result<Vec<u32>> {
        if handles.is_empty() {
            return Err(wasmtime::Error::msg("poll of no pollables"));
        }
        if handles.len() > MAX_POLLABLES {
            return Err(wasmtime::Error::msg(format!("poll of more than {MAX_POLLABLES} pollables")));
        }
        for handle in handles {
            self.readiness(*handle)?;
        }
        if handles.iter().all(|handle| self.is_always_ready(*handle)) {
            return Ok((0..handles.len() as u32).collect());
        }
        let asked = handles.iter().fold(Call::Poll.plain(), |asked, handle| asked.with((*handle).into()));
        if let Some(known) = self.recalled(asked)? {
            return Ok(known);
        }
        let ready = self.wait_for_any(handles).await?;
        self.recorded(asked, &ready)?;
        Ok(ready)
    }

    async fn wait_for_any(&mut self, handles: &[u32]) -> wasmtime::Result<Vec<u32>> {
        loop {
            let mut ready = Vec::new();
            let mut first: Option<u64> = None;
            let mut stdin = false;
            let mut outputs = [None, None];
            let mut foreign = Vec::new();
            for (index, handle) in handles.iter().enumerate() {
                match self.readiness(*handle)? {
                    Readiness::Ready => ready.push(index as u32),
                    Readiness::At(at) => first = Some(first.map_or(at, |f| f.min(at))),
                    Readiness::Stdin => stdin = true,
                    Readiness::Output { error } => {
                        outputs[usize::from(error)] = self.stdio.output(error).cloned();
                    }
                    Readiness::Foreign(rep) => foreign.push((index as u32, rep)),
                }
            }
            for (index, rep) in &foreign {
                if self.foreign().ready(Resource::new_borrow(*rep)).await? {
                    ready.push(*index);
                }
            }
            if !ready.is_empty() {
                ready.sort_unstable();
                return Ok(ready);
            }
            let now = self.outside.now();
            let sleep = first.map(|at| Duration::from_nanos(at.saturating_sub(now)).min(LONGEST_SLEEP));
            let input = if stdin { self.stdio.stdin.clone() } else { None };
            let clock = async {
                match sleep {
                    Some(sleep) => tokio::time::sleep(sleep).await,
                    None => std::future::pending().await,
                }
            };
            let typed = async {
                match input {
                    Some(input) => input.ready().await,
                    None => std::future::pending().await,
                }
            };
            let [out, err] = outputs.map(taken);
            if foreign.is_empty() {
                tokio::select! { () = clock => {}, () = typed => {}, () = out => {}, () = err => {} }
            } else {
                let pollables = foreign.iter().map(|(_, rep)| Resource::new_borrow(*rep)).collect();
                tokio::select! {
                    () = clock => {}
                    () = typed => {}
                    () = out => {}
                    () = err => {}
                    ready = self.foreign().poll(pollables) => { ready?; }
                }
            }
        }
    }

    pub(super) fn poll_drop(&mut self, handle: u32) -> wasmtime::Result<()> {
        match self.table.take_as(handle, Kind::Pollable)? {
            Object::Foreign(Kind::Pollable, rep) => {
                wasmtime_wasi::p2::bindings::io::poll::HostPollable::drop(
                    self.foreign(),
                    Resource::new_own(rep),
                )
            }
            _ => Ok(()),
        }
    }
}
