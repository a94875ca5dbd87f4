//! An agent that is composed of two components, of which one has a resource type of its own and the other holds
//! resources of it.

use std::path::{Path, PathBuf};

use wasm_compose::graph::{Component, CompositionGraph, EncodeOptions};

use crate::bed::{Bed, guest, run};
use crate::differential::assert_agent_is_the_same;

/// What passes between the two.
const INTERFACE: &str = "test:ledger/accounts";

/// A store, and the agent's component beside it.
fn bed() -> (Bed, PathBuf) {
    let bed = Bed::new(&[]);
    let mut validator = wasmparser::Validator::new();
    let mut graph = CompositionGraph::new();
    let mut add = |name: &str| {
        let part = Component::from_file(&mut validator, name, guest(name)).expect("a component");
        let id = graph.add_component(part).expect("a component of its own name");
        (id, graph.instantiate(id).expect("an instance"))
    };
    let [(keeper, kept), (agent, holds)] = ["ledger-accounts", "ledger-agent"].map(&mut add);
    let part = |id| graph.get_component(id).expect("a component that was added");
    let (export, ..) = part(keeper).export_by_name(INTERFACE).expect("an export");
    let (import, _) = part(agent).import_by_name(INTERFACE).expect("an import");
    graph.connect(kept, Some(export), holds, import).expect("two that fit");
    let options = EncodeOptions { define_components: true, export: Some(holds), validate: true };
    let path = bed.file("ledger.wasm", graph.encode(options).expect("a composed component"));
    (bed, path)
}

fn create(bed: &Bed, name: &str, component: &Path) {
    bed.ok(["new".as_ref(), name.as_ref(), component.as_os_str()]);
}

#[test]
fn a_composed_agent_answers_what_it_answers_on_plain_wasmtime() {
    let (bed, component) = bed();
    let events = [
        "open ann 5",
        "open bob 7",
        "open cy 1",
        "balance ann",
        "deposit ann 10",
        "transfer ann bob 4",
        "transfer ann bob 400",
        "total",
        "print ann",
        "print",
        "printer",
        "through bob",
        "no-printer",
        "through bob",
        "print nobody",
        "merge ann bob",
        "balance ann",
        "state",
        "close cy",
        "state",
        "open ann 3",
        "state",
        "close ann",
        "close ann",
        "state",
        "total",
        "no such command",
    ];
    assert_agent_is_the_same(&bed, &component, &events);
}

#[test]
fn resources_of_an_agents_own_go_on_after_pause_fork_and_rewind() {
    let (bed, component) = bed();
    create(&bed, "a", &component);
    bed.send("a", "open ann 5");
    bed.send("a", "open bob 7");
    bed.send("a", "printer");
    let paused = bed.json(["pause", "a"])["generation"].to_string();
    assert_eq!(bed.send("a", "transfer bob ann 2"), "5");
    bed.ok(["fork", "a", "b"]);

    // each drops what it has by itself, once
    assert_eq!(bed.send("a", "close ann"), "1 held");
    assert_eq!(bed.send("a", "state"), "1 open, closed: ann");
    assert_eq!(bed.send("b", "state"), "2 open, closed: ");
    assert_eq!(bed.send("b", "deposit ann 1"), "8");
    assert_eq!(bed.send("b", "close bob"), "1 held");
    assert_eq!(bed.send("b", "state"), "1 open, closed: bob");
    assert_eq!(bed.send("a", "balance bob"), "5");

    // a resource of the one part that wraps one of the host's
    for agent in ["a", "b"] {
        bed.send(agent, "open cy 9");
        bed.send(agent, "through cy");
        bed.send(agent, "no-printer");
        assert_eq!(bed.ok(["zone", "cat", &format!("{agent}:/logs/stdout")]), "cy has 9\n");
        assert_eq!(bed.run(["send", agent, "through cy"]).status, Some(1));
    }

    // what was dropped since is there again, and can be dropped again
    bed.ok(["rewind", "a", &paused]);
    assert_eq!(bed.send("a", "state"), "2 open, closed: ");
    assert_eq!(bed.send("a", "balance bob"), "7");
    assert_eq!(bed.send("a", "merge ann bob"), "1 held");
    assert_eq!(bed.send("a", "state"), "1 open, closed: bob ann");
    assert_eq!(bed.send("a", "balance ann"), "12");
    bed.send("a", "through ann");
    assert_eq!(bed.ok(["zone", "cat", "a:/logs/stdout"]), "cy has 9\nann+bob has 12\n");
}

#[test]
fn resources_of_an_agents_own_count_among_its_handles() {
    let (bed, component) = bed();
    create(&bed, "a", &component);
    assert_eq!(bed.send("a", "many 60000"), "60000 held");
    assert_eq!(bed.send("a", "state"), "60000 open, closed: ");
    let ran = run(&mut bed.command(["send", "a", "many 6000"]), b"");
    assert_eq!(ran.status, Some(134), "{ran}");
    ran.assert_one_message(&["65536 handles"]);
    assert_eq!(bed.send("a", "state"), "60000 open, closed: ");
}
