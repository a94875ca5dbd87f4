//! Agents that are looked at, and stay out of memory.

use super::*;

fn everything_of(
    store: &Store,
    id: AgentId,
) -> (String, GenerationNumber, Vec<(GenerationNumber, Cause, Timestamp)>) {
    let found = store.look(id).unwrap();
    let generations = found.generations.iter().map(|it| (it.number, it.cause.clone(), it.at)).collect();
    (found.name, found.head, generations)
}

#[test]
fn who_is_looked_at_stays_out_of_memory_and_is_seen_as_it_will_be() {
    let device = Simulated::new(1);
    let store = start(&device);
    for name in ["a", "b"] {
        let agent = create(&store, name);
        agent.begin(TurnStyle::Transaction, b"event").unwrap();
        write(&agent, WORKSPACE, "file", name.as_bytes());
        end(&agent, b"reply").unwrap();
        attachments::attach(&agent, GenerationNumber(1), &attachments::sparse(1, 2)).unwrap();
        // a turn that is cut off: what it left is a generation
        agent.begin(TurnStyle::Transaction, b"never ended").unwrap();
        write(&agent, WORKSPACE, "file", b"lost");
        sync(&agent).unwrap();
    }
    create(&store, "last");
    store.checkpoint().unwrap();
    drop(store);
    let store = start(&device);
    let agents = store.agents().unwrap();
    let before = store.agents_in_memory().unwrap();
    let seen: Vec<_> = agents.iter().map(|(_, id)| everything_of(&store, *id)).collect();
    let a = store.look(agents[0].1).unwrap();
    assert_eq!(a.zones.len(), KINDS.len());
    assert_eq!(&*store.payload(&a.about).unwrap(), new_agent("a").about);
    assert_eq!(&*store.payload(&a.generations[1].about).unwrap(), b"turn");
    let attached = store.attached(&a.generations[1]).unwrap().expect("it was attached");
    assert!(attached.bytes() > 0 && store.attached(&a.generations[0]).unwrap().is_none());
    assert_eq!(store.agents_in_memory().unwrap(), before, "nobody was brought in");
    let names: Vec<_> = seen.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(names, ["a", "b", "last"]);
    assert!(matches!(&seen[0].2[..], [_, _, (_, Cause::Side(_), _)]), "{:?}", seen[0]);
    for (id, seen) in agents.iter().map(|(_, id)| *id).zip(seen) {
        let disk = store.disk(id).unwrap();
        let all = disk.generations().into_iter().map(|it| (it.number, it.cause, it.at)).collect::<Vec<_>>();
        assert_eq!((disk.head(), all), (seen.1, seen.2.clone()));
        assert_eq!(everything_of(&store, id), seen, "and so it is told of one in memory");
    }
    assert_eq!(store.agents_in_memory().unwrap(), 3);
    let gone = agents[0].1;
    store.remove(gone).unwrap();
    assert!(matches!(store.look(gone), Err(StoreError::NoAgent(id)) if id == gone));
}
