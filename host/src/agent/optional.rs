//! What an agent may export besides `handle`, and how it is called.

use wasmtime::component::types::{ComponentItem, Type};
use wasmtime::component::{ComponentNamedList, InstancePre, Lift, Lower};

use super::bindings::StartCause;
use super::turn::failed;
use super::{AgentError, Live};
use crate::wasi::GuestState;

/// The export that is told that the memory has come to life.
const RESUMED: &str = "resumed";
/// The export that gives what the next component is to know.
const SAVE: &str = "save";
/// The export that takes it.
const LOAD: &str = "load";

/// The cases of `start-cause`.
const CAUSES: [&str; 5] = ["created", "resumed", "forked", "rewound", "upgraded"];

/// Which of the optional exports a component has; they have the types of `dormouse:agent/upgradable-agent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Optional {
    pub resumed: bool,
    pub save: bool,
    pub load: bool,
}

impl Optional {
    /// Looks at what the component exports.
    ///
    /// # Errors
    ///
    /// An export of one of the names is refused that has another type.
    pub fn of(pre: &InstancePre<GuestState>) -> Result<Self, AgentError> {
        Ok(Self {
            resumed: has(pre, RESUMED, "func(cause: start-cause, generation: u64)", |params, results| {
                matches!(params, [Type::Enum(cause), Type::U64] if cause.names().eq(CAUSES))
                    && results.is_empty()
            })?,
            save: has(pre, SAVE, "func() -> result<list<u8>, string>", |params, results| {
                params.is_empty() && matches!(results, [result] if is_result(result, true))
            })?,
            load: has(pre, LOAD, "func(state: list<u8>) -> result<_, string>", |params, results| {
                matches!(params, [state] if is_bytes(state))
                    && matches!(results, [result] if is_result(result, false))
            })?,
        })
    }
}

fn is_bytes(ty: &Type) -> bool {
    matches!(ty, Type::List(list) if list.ty() == Type::U8)
}

fn is_result(ty: &Type, of_bytes: bool) -> bool {
    let Type::Result(result) = ty else { return false };
    let is_ok = match result.ok() {
        Some(ok) => of_bytes && is_bytes(&ok),
        None => !of_bytes,
    };
    is_ok && result.err() == Some(Type::String)
}

fn has(
    pre: &InstancePre<GuestState>,
    name: &str,
    wanted: &str,
    fits: impl FnOnce(&[Type], &[Type]) -> bool,
) -> Result<bool, AgentError> {
    let component = pre.component();
    let ty = component.component_type();
    let Some(export) = ty.get_export(component.engine(), name) else { return Ok(false) };
    if let ComponentItem::ComponentFunc(function) = export.ty {
        let params: Vec<_> = function.params().map(|(_, ty)| ty).collect();
        let results: Vec<_> = function.results().collect();
        if fits(&params, &results) {
            return Ok(true);
        }
    }
    Err(AgentError::Instantiate(format!(
        "its export `{name}` is not that of dormouse:agent, which is `{wanted}`"
    )))
}

impl Live {
    /// Tells the agent that its memory has come to life.
    pub async fn call_resumed(&mut self) -> Result<(), AgentError> {
        let lifecycle = &self.store.data().lifecycle;
        let (cause, generation) = (StartCause::from(lifecycle.start), lifecycle.generation);
        self.call(RESUMED, (cause, generation)).await
    }

    /// Asks for what the next component is to know: an error is the agent's own.
    pub async fn call_save(&mut self) -> Result<Result<Vec<u8>, String>, AgentError> {
        let (saved,) = self.call(SAVE, ()).await?;
        Ok(saved)
    }

    /// Hands over what the component before has saved.
    pub async fn call_load(&mut self, state: Vec<u8>) -> Result<Result<(), String>, AgentError> {
        let (loaded,) = self.call(LOAD, (state,)).await?;
        Ok(loaded)
    }

    async fn call<P, R>(&mut self, name: &str, params: P) -> Result<R, AgentError>
    where
        P: ComponentNamedList + Lower + Send + Sync,
        R: ComponentNamedList + Lift + Send + Sync + 'static,
    {
        let instantiate = |e: wasmtime::Error| AgentError::Instantiate(format!("its `{name}`: {e:#}"));
        self.store.set_epoch_deadline(1);
        let function = self.instance.get_typed_func::<P, R>(&mut self.store, name).map_err(instantiate)?;
        let called = function.call_async(&mut self.store, params).await;
        called.map_err(|e| failed(&e))
    }
}
