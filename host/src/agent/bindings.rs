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

    fn cause(&mut self) -> wasmtime::Result<lifecycle::StartCause> {
        self.touched.environment = true;
        Ok(match self.lifecycle.start {
            Start::Created => lifecycle::StartCause::Created,
            Start::Resumed => lifecycle::StartCause::Resumed,
            Start::Forked => lifecycle::StartCause::Forked,
            Start::Rewound => lifecycle::StartCause::Rewound,
        })
    }
}

/// Adds `dormouse:agent/lifecycle` to a linker.
pub(crate) fn link_lifecycle(linker: &mut Linker<GuestState>) -> wasmtime::Result<()> {
    lifecycle::add_to_linker::<GuestState, HasSelf<GuestState>>(linker, |state| state)
}
