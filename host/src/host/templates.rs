//! Components become templates: compiled, kept in the store, and made ready.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Host, HostShared, lock};
use crate::agent::{Agent, AgentError, Template, UpgradeOptions, Upgraded};
use crate::code::{self, CodeCache, CodeError, Compiler};
use crate::component::{self, ComponentError, MemoryLimits};
use crate::journal::{self, World};
use crate::threads;

/// Sets a flag when it goes: whoever works for somebody then sees that he has gone.
#[derive(Default)]
struct StopWhenDropped(Arc<AtomicBool>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Does blocking work on a thread of its own. The flag tells it that nobody waits for it any more.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> Result<T, AgentError> + Send + 'static,
) -> Result<T, AgentError> {
    let waiting = StopWhenDropped::default();
    let stop = waiting.0.clone();
    threads::run(move || work(&stop)).await?
}

impl Host {
    /// Whether the component's code is compiled already.
    pub fn is_compiled(&self, component: &[u8]) -> bool {
        self.is_ready(blake3::hash(component).as_bytes())
    }

    /// Whether the code of the component with this hash is compiled already.
    pub fn is_ready(&self, hash: &[u8; 32]) -> bool {
        self.shared.code.has(&self.shared.code_key(hash))
    }

    /// Whether the component's agents can share one genesis image: it asks about nothing while it is
    /// instantiated. Compiles it if need be.
    pub async fn shares_genesis(&self, component: &[u8]) -> Result<bool, AgentError> {
        let (hash, template) = self.shared.admit_off_thread(component).await?;
        let shares = !template.genesis(&self.shared.images).await?.touched.any();
        self.shared.forget_unused(&hash)?;
        Ok(shares)
    }

    /// Gives a command's agent another component, for the runs to come. Its zones stay.
    pub async fn replace_command(
        &self,
        agent: &Agent,
        component: &[u8],
        name: &str,
    ) -> Result<(), AgentError> {
        let _alone = agent.enter().await?;
        let (hash, template) = self.shared.admit_off_thread(component).await?;
        let mut about = agent.about()?;
        if about.world != World::Command || template.world != World::Command {
            return Err(AgentError::World {
                agent: agent.info()?.name,
                found: about.world.name(),
                wanted: "only a command can be run with another component under the same name",
            });
        }
        about.component = hash;
        about.component_name = name.into();
        let bytes = journal::encode(&about)?;
        crate::agent::await_done(&agent.disk, |done| agent.disk.set_about(&bytes, done)).await?;
        Ok(())
    }

    /// Gives an agent another component, which takes its memory's place; see [`Agent`] for what stays. A command's is
    /// the program of the runs to come. None where it has the component already. When `cancel` comes first, it stands
    /// as it stood.
    pub async fn upgrade(
        &self,
        agent: &Agent,
        component: &[u8],
        name: &str,
        options: UpgradeOptions,
        cancel: impl Future<Output = ()>,
    ) -> Result<Option<Upgraded>, AgentError> {
        agent.expect_here()?;
        let (hash, template) = self.shared.admit_off_thread(component).await?;
        let upgraded = agent.upgrade_to(hash, &template, name, options, cancel).await;
        if upgraded.is_err() {
            self.shared.forget_unused(&hash)?;
        }
        upgraded
    }

    /// Makes `count` instances of the agent's component stand ready for a resume of this agent or of one
    /// that has as much memory, such as its forks. With none, its code is compiled and loaded, if that
    /// has not been done. Dropped in the middle, it ends the compiler.
    pub async fn prepare(&self, agent: &Agent, count: usize) -> Result<(), AgentError> {
        agent.expect_here()?;
        let about = agent.about()?;
        let template = self.shared.template_off_thread(&about.component).await?;
        if count == 0 {
            return Ok(());
        }
        if about.world == World::Command {
            return template.prepare(&template.genesis(&self.shared.images).await?.image, count).await;
        }
        if agent.lacks_genesis()? {
            // there is no image before it is resumed, and nothing to get ready for
            return Ok(());
        }
        let (_, image) = agent.standing().await?;
        template.prepare(&image, count).await
    }

    /// Compiles a component and takes its genesis image, if that has not been done, so that
    /// [`Host::create`] is quick; says what the component is. Dropped in the middle, it ends the compiler.
    pub async fn warm_up(&self, component: &[u8]) -> Result<World, AgentError> {
        let (shared, component) = (self.shared.clone(), component.to_vec());
        let bytes = component.clone();
        let template = off_thread(move |stop| Ok(shared.load(&component, stop)?.1)).await?;
        match template.genesis(&self.shared.images).await {
            Ok(_) => Ok(template.world),
            Err(e) => Err(self.shared.memory_needed(bytes, e).await),
        }
    }
}

impl HostShared {
    /// Why a component did not start: that it begins with more memory than is allowed, where that is so.
    async fn memory_needed(&self, component: Vec<u8>, e: AgentError) -> AgentError {
        if !matches!(e, AgentError::Instantiate(_) | AgentError::MemoryLimit { .. }) {
            return e;
        }
        let limit = self.options.memory.memory as u64;
        let needs = threads::run(move || {
            let scan = component::scan(&code::as_component(&component).ok()?).ok()?;
            Some(scan.instance_memories.iter().fold(0u64, |all, memory| all.saturating_add(memory.min)))
        });
        match needs.await {
            Ok(Some(needed)) if needed > limit => AgentError::MemoryLimit { needed, limit },
            _ => e,
        }
    }

    /// The keys of the components whose templates are in memory.
    pub fn template_keys(&self) -> Vec<code::CodeKey> {
        lock(&self.templates).values().map(|template| template.key).collect()
    }

    /// Removes all compiled code but that of these keys. Gives its bytes; with `dry_run` it only counts them.
    pub fn retain_code(&self, keep: &HashSet<code::CodeKey>, dry_run: bool) -> Result<u64, AgentError> {
        Ok(self.code.retain(keep, dry_run)?)
    }

    /// The key of a component's code, by the hash of its bytes.
    pub fn code_key(&self, component: &[u8; 32]) -> code::CodeKey {
        CodeCache::key(component, &self.engines.boot.engine, &self.engines.restore.engine)
    }

    /// The template of a component, compiled if need be, unless it is refused.
    fn load(&self, component: &[u8], stop: &AtomicBool) -> Result<([u8; 32], Arc<Template>), AgentError> {
        let hash = *blake3::hash(component).as_bytes();
        let template = self.template(&hash, || Ok(component.into()), stop)?;
        Ok((hash, template))
    }

    /// Compiles a component, unless it is refused, and only then keeps it.
    pub(super) async fn admit_off_thread(
        self: &Arc<Self>,
        component: &[u8],
    ) -> Result<([u8; 32], Arc<Template>), AgentError> {
        let (shared, component) = (self.clone(), component.to_vec());
        off_thread(move |stop| {
            let admitted = shared.load(&component, stop)?;
            shared.components.keep(&component)?;
            Ok(admitted)
        })
        .await
    }

    /// The template of the store's component with this hash. Dropped in the middle, it ends the
    /// compiler.
    pub async fn template_off_thread(self: &Arc<Self>, hash: &[u8; 32]) -> Result<Arc<Template>, AgentError> {
        if let Some(template) = lock(&self.templates).get(hash) {
            return Ok(template.clone());
        }
        let (shared, hash) = (self.clone(), *hash);
        off_thread(move |stop| shared.template(&hash, || shared.components.read(&hash), stop)).await
    }

    /// The template of the component with this hash and these bytes, compiled if need be.
    fn template(
        &self,
        hash: &[u8; 32],
        component: impl FnOnce() -> Result<Vec<u8>, CodeError>,
        stop: &AtomicBool,
    ) -> Result<Arc<Template>, AgentError> {
        if let Some(template) = lock(&self.templates).get(hash) {
            return Ok(template.clone());
        }
        let key = self.code_key(hash);
        let restore = &self.engines.restore.engine;
        let code = if let Some(code) = self.code.load(&key, restore)? {
            code
        } else {
            self.compile(&component()?, &key, stop)?;
            let missing = || CodeError::Cache("what was compiled a moment ago cannot be read".into());
            self.code.load(&key, restore)?.ok_or_else(missing)?
        };
        let template = Arc::new(Template::new(key, code, &self.code, &self.engines, &self.options)?);
        Ok(lock(&self.templates).entry(*hash).or_insert(template).clone())
    }

    /// Compiles a component, unless it is refused.
    fn compile(&self, component: &[u8], key: &code::CodeKey, stop: &AtomicBool) -> Result<(), AgentError> {
        let component = code::as_component(component)?;
        admit(&component)?;
        let compiler = match &self.options.compiler {
            Some(compiler) => compiler.clone(),
            None => Compiler::find()?,
        };
        Ok(self.code.make(key, &component, &compiler, stop)?)
    }
}

/// What is known of a component that agents can be of, without compiling it.
pub(crate) struct Admitted {
    pub world: World,
    /// The memories of a running instance, in the order in which they are made.
    pub memories: Vec<MemoryLimits>,
}

/// Refuses a component that no agent can be of.
pub(crate) fn admit(component: &[u8]) -> Result<Admitted, AgentError> {
    let scan = component::scan(component)?;
    if let Err(refusals) = &scan.capturable {
        return Err(ComponentError::Refused(refusals.clone()).into());
    }
    let missing = crate::wasi::not_provided(scan.kind, &scan.imports);
    if !missing.is_empty() {
        return Err(AgentError::Imports(missing));
    }
    Ok(Admitted { world: crate::agent::world_of(scan.world())?, memories: scan.instance_memories })
}
