//! What is asked of every store that a crash leaves.

use super::*;

/// Opens what a crash has left and compares it with what the timeline allows. Some are looked at
/// more closely: a second crash while it is opened, what the index names, and whether it works.
pub fn after_crash(
    device: &Simulated,
    timeline: &Timeline,
    changes: usize,
    rng: &mut Rng,
) -> Result<(Found, Teams), String> {
    let mut opening = rng.one_in(8).then(|| device.start_trace());
    let store = try_start(device).map_err(|e| format!("it does not open: {e}"))?;
    if let Some(trace) = &mut opening {
        device.end_trace(trace);
    }
    let found = look(&store)?;
    found.check_mounts()?;
    what_was_seen_is_there(&store)?;
    let (model, teams) = timeline.explain(&found, changes)?;
    if rng.one_in(4) {
        let segments = &store.shared().map_err(|e| e.to_string())?.segments;
        let unreadable = segments.unreadable();
        if !unreadable.is_empty() {
            return Err(format!("the index names what does not read: {unreadable:?}"));
        }
    }
    if rng.one_in(8) {
        for (name, agent) in &model {
            let disk = store.disk(agent.id).map_err(|e| e.to_string())?;
            let reads = disk.zone(SEMANTIC, |zone| agent.memory().reads_in(zone));
            reads.unwrap_or(Ok(())).map_err(|what| format!("{name}: {what}"))?;
        }
    }
    if rng.one_in(16) {
        works(&device.killed(), rng)?;
    }
    forgetting_holds(device, &store, timeline, changes, (&model, &teams), rng)?;
    if let Some(reapings) = timeline.reaping_at(changes)
        && rng.one_in(4)
    {
        let device = device.killed();
        let store = try_start(&device).map_err(|e| format!("it does not open after a kill: {e}"))?;
        let after = reapings.again(&store, &model)?;
        let again =
            try_start(&device.crash(rng.bits())).map_err(|e| format!("it does not open again: {e}"))?;
        if look(&again)? != after {
            return Err("what a second reaping has taken comes back".into());
        }
    }
    if let Some(mut trace) = opening {
        for _ in 0..rng.below(8) {
            trace.step().map_err(|e| e.to_string())?;
        }
        let again = trace.crash(rng.bits());
        let store = try_start(&again).map_err(|e| format!("it does not open after a second crash: {e}"))?;
        if look(&store)? != found {
            return Err(format!("a crash after {} changes of opening it changes what is there", trace.at()));
        }
    }
    Ok((model, teams))
}

/// What was erased is in no file, and what was forgotten can be erased.
fn forgetting_holds(
    device: &Simulated,
    store: &Store,
    timeline: &Timeline,
    changes: usize,
    found: (&Found, &Teams),
    rng: &mut Rng,
) -> Result<(), String> {
    let is_due = store.is_purge_due().map_err(|e| e.to_string())?;
    if !timeline.may_be_due(is_due, changes) {
        return Err(format!("that something is to be erased is {is_due}"));
    }
    if let Some(erased) = timeline.erased_at(changes)
        && rng.one_in(8)
    {
        let found = erased.found_on(device);
        if !found.is_empty() {
            return Err(format!("what was erased is in {found:?}"));
        }
    }
    if is_due && rng.one_in(16) {
        let device = device.killed();
        let store = try_start(&device).map_err(|e| format!("it does not open after a kill: {e}"))?;
        forgetting::erases(&device, &store, &timeline.written, found)?;
    }
    Ok(())
}

fn look(store: &Store) -> Result<World, String> {
    World::try_of(store).map_err(|e| format!("it cannot be read: {e}"))
}

/// No generation says that its agent has seen what a shared zone has no record of.
fn what_was_seen_is_there(store: &Store) -> Result<(), String> {
    let text = |e: StoreError| e.to_string();
    let shared = store.shared().map_err(text)?;
    for (name, id) in store.agents().map_err(text)? {
        let disk = store.disk(id).map_err(text)?;
        let zones = disk.zones();
        for generation in disk.generations() {
            for seen in generation.seen.iter() {
                let mount = zones[usize::from(seen.zone)].shared.ok_or("it has seen what is no mount")?;
                // one that was removed has no records any more
                let Ok(flow) = shared.flow(&mut shared.agents(), mount.zone) else { continue };
                let stands = {
                    let inner = flow.disk.lock();
                    (inner.state.epoch, inner.state.sequence)
                };
                if (seen.epoch, seen.sequence) > stands {
                    return Err(format!("{name}@{} has seen {seen:?} of {stands:?}", generation.number));
                }
            }
        }
    }
    Ok(())
}

/// The store takes a turn of every agent, and something in every shared zone, and a crash after that keeps it.
fn works(device: &Simulated, rng: &mut Rng) -> Result<(), String> {
    let store = &try_start(device).map_err(|e| format!("it does not open after a kill: {e}"))?;
    let agents = store.agents().map_err(|e| e.to_string())?;
    for (name, id) in agents {
        let text = |e: StoreError| format!("{name} does not go on: {e}");
        let disk = store.disk(id).map_err(text)?;
        disk.begin(TurnStyle::Transaction, b"again").map_err(text)?;
        for zone in 0..KINDS.len() as u16 {
            let written = disk.zone(zone, |zone| write_zone(zone, "again", &content(rng.below(40), 20_000)));
            written.transpose().map_err(|e| format!("{name} cannot be written to: {e}"))?;
        }
        end(&disk, b"done").map_err(text)?;
    }
    for (name, team) in try_see_teams(store).map_err(|e| e.to_string())? {
        let text = |e: StoreError| format!("{name} does not go on: {e}");
        let zone = store.shared_zone(team.id).map_err(text)?;
        let written = zone.zone(|zone| write_zone(zone, "again", b"again"));
        written.transpose().map_err(|e| format!("{name} cannot be written to: {e}"))?;
        wait(|done| zone.sync(done)).map_err(text)?;
    }
    if rng.one_in(3) {
        let reaped = store.reap(&ReapPolicy::default(), false);
        let damage = reaped.map_err(|e| format!("it cannot be reaped: {e}"))?.damage;
        if !damage.is_empty() {
            return Err(format!("a sound store is damaged: {damage:?}"));
        }
    } else if rng.one_in(2) {
        store.checkpoint().map_err(|e| format!("no checkpoint can be made: {e}"))?;
    }
    let before = look(store)?;
    let again = try_start(&device.crash(rng.bits())).map_err(|e| format!("it does not open again: {e}"))?;
    if look(&again)? == before { Ok(()) } else { Err("what was done after the crash is lost".into()) }
}
