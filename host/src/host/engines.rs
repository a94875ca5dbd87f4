//! The engines of a host, one for each variant of a component.

use std::sync::Arc;

use wasmtime::component::Linker;

use crate::agent::{AgentError, Budget, link_lifecycle};
use crate::code::{Fair, SlotEngine, Ticker};
use crate::component::Variant;
use crate::wasi::GuestState;

pub(crate) struct Engines {
    pub boot: SlotEngine,
    pub restore: SlotEngine,
    pub boot_linker: Arc<Linker<GuestState>>,
    pub restore_linker: Arc<Linker<GuestState>>,
    /// Instances of the restore variants that are made ahead.
    pub budget: Arc<Budget>,
    _ticker: Ticker,
}

pub(super) fn engines(warm_slots: usize) -> Result<Engines, AgentError> {
    let made = |e: wasmtime::Error| AgentError::Instantiate(format!("{e:#}"));
    let fair = Arc::new(Fair::default());
    let boot = SlotEngine::new(Variant::Boot, fair.clone()).map_err(made)?;
    let restore = SlotEngine::new(Variant::Restore, fair.clone()).map_err(made)?;
    let linker = |engine: &SlotEngine| {
        let mut linker = Linker::new(&engine.engine);
        crate::wasi::link(&mut linker)?;
        link_lifecycle(&mut linker)?;
        crate::wit::link(&mut linker)?;
        Ok::<_, wasmtime::Error>(Arc::new(linker))
    };
    let ticker = Ticker::start(vec![boot.engine.weak(), restore.engine.weak()], fair)
        .map_err(|source| AgentError::Io { what: "starting the epoch thread".into(), source })?;
    Ok(Engines {
        boot_linker: linker(&boot).map_err(made)?,
        restore_linker: linker(&restore).map_err(made)?,
        boot,
        restore,
        budget: Arc::new(Budget::new(warm_slots)),
        _ticker: ticker,
    })
}
