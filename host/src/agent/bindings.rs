//! The bindings of `wit/`: the agent world, and what it imports.

use wasmtime::component::{HasSelf, Linker};

use crate::wasi::{GuestState, Start};

#[allow(missing_docs, clippy::pedantic, unused_qualifications, reason = "generated from WIT")]
mod generated {
    wasmtime::component::bindgen!({
        path: "../wit",
        world: "dormouse:agent/agent",
        imports: { default: trappable },
        exports: { default: async },
        require_store_data_send: true,
    });
}

pub(crate) use self::generated::Agent as AgentWorld;
use self::generated::dormouse::agent::lifecycle;
pub(crate) use self::generated::dormouse::agent::lifecycle::StartCause;
pub(crate) use self::generated::dormouse::agent::types::Event as WitEvent;

impl lifecycle::Host for GuestState {
    fn identity(&mut self) -> wasmtime::Result<lifecycle::AgentIdentity> {
        self.touched.environment = true;
        Ok(lifecycle::AgentIdentity { id: self.lifecycle.id.clone(), name: self.lifecycle.name.clone() })
    }

    fn generation(&mut self) -> wasmtime::Result<u64> {
        self.touched.environment = true;
        Ok(self.lifecycle.generation)
    }

    fn parent(&mut self) -> wasmtime::Result<Option<String>> {
        self.touched.environment = true;
        Ok(self.lifecycle.parent.clone())
    }

    fn cause(&mut self) -> wasmtime::Result<StartCause> {
        self.touched.environment = true;
        Ok(self.lifecycle.start.into())
    }
}

impl From<Start> for StartCause {
    fn from(start: Start) -> Self {
        match start {
            Start::Created => StartCause::Created,
            Start::Resumed => StartCause::Resumed,
            Start::Forked => StartCause::Forked,
            Start::Rewound => StartCause::Rewound,
            Start::Upgraded => StartCause::Upgraded,
        }
    }
}

/// Adds `dormouse:agent/lifecycle` to a linker.
pub(crate) fn link_lifecycle(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    lifecycle::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, |state| state)
}
