//! Exports that somebody has made up: whatever an importer would have to believe is checked.

use std::collections::BTreeSet;
use std::io::Cursor;

use dormouse::journal::{self, AgentAbout, EventRecord, GenerationAbout, OutcomeRecord};
use serde_json::{Value, json};
use zone_vfs::store::{Exporting, Store, StoreOptions, StreamFile, TurnStyle};
use zone_vfs::zone::Quota;

use crate::bed::{Bed, guest};

/// A store with the agent `a`, of which all images are archived.
fn bed() -> Bed {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    for text in ["note one", "remember sky blue", "note two"] {
        bed.send("a", text);
    }
    bed.ok(["export", "a", "honest"]);
    bed
}

type OfAgent = Box<dyn Fn(&mut AgentAbout)>;
type OfGeneration = Box<dyn Fn(&mut Value)>;

/// An export of the agent with what these make of its records, and with a digest that is right. Generations have the
/// form that a person reads.
fn hostile(bed: &Bed, more: &[&str], agent: &OfAgent, generation: &OfGeneration) -> Vec<u8> {
    let store = Store::open(&bed.store(), &StoreOptions::default()).expect("the store");
    let disk = store.disk(store.find("a").expect("names").expect("the agent")).expect("the agent");
    let mut about: AgentAbout = journal::decode(&disk.info().expect("the agent").about).expect("its record");
    let mut components = BTreeSet::from([guest("notes")]);
    components.extend(more.iter().map(|name| guest(name)));
    agent(&mut about);
    let about = journal::encode(&about).expect("a record");
    let mut to = Vec::new();
    let mut exporting = Exporting {
        begin: &mut |_| {
            let files = components.iter().map(|path| {
                let bytes = std::fs::read(path).expect("a guest");
                let hash = *blake3::hash(&bytes).as_bytes();
                StreamFile {
                    name: blake3::Hash::from_bytes(hash).to_hex().to_string(),
                    len: bytes.len() as u64,
                    hash,
                    open: Box::new(|| Ok(Box::new(Cursor::new(bytes)))),
                }
            });
            Ok((about.clone(), files.collect()))
        },
        generation: &mut |_, bytes| {
            if bytes.is_empty() {
                return Ok(Vec::new());
            }
            let it: GenerationAbout = journal::decode(bytes).expect("a record");
            let mut it = serde_json::to_value(it).expect("a record");
            it["image"]["pages"] = json!([]);
            it["image"]["files"] = json!([]);
            generation(&mut it);
            let it: GenerationAbout = serde_json::from_value(it).expect("a record of the same form");
            Ok(journal::encode(&it).expect("a record"))
        },
        is_move: false,
    };
    store.export(&disk, &mut to, &mut exporting).expect("an export");
    to
}

/// Is refused with these words after the file's name, and leaves nothing.
fn refused(to: &Bed, export: &[u8], words: &[&str]) {
    let file = to.file("made-up", export);
    let told = to.refused(["import".as_ref(), file.as_os_str()], &[&["made-up is refused"], words].concat());
    // it is the file that is wrong, and not what is here
    assert!(!told.contains(".flat") && !told.contains("store"), "{told}");
    assert_eq!(to.json(["ps"]), json!([]));
}

fn as_it_is() -> (OfAgent, OfGeneration) {
    (Box::new(|_| {}), Box::new(|_| {}))
}

/// Changes the object behind a descriptor, where one is held.
fn object(change: impl Fn(&mut Value) + 'static) -> OfGeneration {
    Box::new(move |it| {
        let slots = it["handles"]["slots"].as_array_mut().expect("slots");
        if let Some(slot) = slots.iter_mut().find(|slot| slot["object"]["Descriptor"].is_object()) {
            change(&mut slot["object"]);
        }
    })
}

#[test]
fn a_record_that_says_what_cannot_be_is_refused_by_the_rule() {
    let (from, to) = (bed(), Bed::new(&["notes"]));
    let (agent, generation) = as_it_is();
    let honest = to.file("honest", hostile(&from, &[], &agent, &generation));
    to.ok(["import".as_ref(), honest.as_os_str()]);
    assert_eq!(to.send("a", "list"), "1. one\n2. two");
    to.ok(["rm", "a"]);
    let generations: Vec<(&str, OfGeneration)> = vec![
        ("shows what none can", Box::new(|it| it["monotonic"] = json!(1u64 << 63))),
        ("was started more often than can be", Box::new(|it| it["starts"] = json!(1u64 << 32))),
        ("a zone that there is not", object(|it| it["Descriptor"]["zone"] = json!(5))),
        ("a file that there never was", object(|it| it["Descriptor"]["inode"] = json!(1u64 << 40))),
        (
            "a file that is of another kind",
            object(|it| it["Descriptor"]["directory"] = json!(it["Descriptor"]["directory"] == false)),
        ),
        (
            "a file that is of another kind",
            object(|it| *it = json!({"FileInput": {"zone": 0, "inode": 1, "position": 0}})),
        ),
        ("an error that there is not", object(|it| *it = json!({"Error": {"message": "", "code": 200}}))),
        (
            "a name that none can have",
            object(|it| *it = json!({"DirectoryStream": {"zone": 0, "inode": 1, "after": vec![65; 256]}})),
        ),
        ("what no other process has", object(|it| *it = json!({"Foreign": ["wasi:io/poll.pollable", 1]}))),
        ("free list is wrong", Box::new(|it| it["handles"]["free"] = json!([0]))),
        (
            "other memories than the generation",
            Box::new(|it| {
                it["image"]["memories"][0] = json!(65_536);
            }),
        ),
        ("there is none, and it has come", Box::new(|it| it["image"] = json!(null))),
        (
            "has not come",
            Box::new(|it| it["component"][0] = json!(it["component"][0].as_u64().map(|b| b ^ 1))),
        ),
        ("was captured in layout", Box::new(|it| it["layout"] = json!(1))),
        ("is called is too long", Box::new(|it| it["component_name"] = json!("x".repeat(2000)))),
    ];
    for (rule, generation) in generations {
        refused(&to, &hostile(&from, &[], &agent, &generation), &[rule]);
    }
    let agents: Vec<(&str, OfAgent)> = vec![
        ("no processor time", Box::new(|it| it.max_cpu = Some(std::time::Duration::ZERO))),
        ("are allowed: raise --max-memory", Box::new(|it| it.max_memory = Some(1))),
        ("of another world", Box::new(|it| it.world = journal::World::Command)),
        ("is called is too long", Box::new(|it| it.component_name = "x".repeat(2000))),
    ];
    let (_, generation) = as_it_is();
    for (rule, agent) in agents {
        refused(&to, &hostile(&from, &[], &agent, &generation), &[rule]);
    }
}

#[test]
fn memories_that_are_not_those_of_their_component_are_refused() {
    let (from, to) = (bed(), Bed::new(&["notes"]));
    let (agent, _) = as_it_is();
    for other in ["python-agent", "js-agent"] {
        let hash = *blake3::hash(&std::fs::read(guest(other)).expect("a guest")).as_bytes();
        let another: OfGeneration = Box::new(move |it| it["component"] = json!(hash));
        refused(
            &to,
            &hostile(&from, &[other], &agent, &another),
            &["the memory of generation", "its component"],
        );
    }
}

/// Takes a turn of the agent in another way than a host does.
fn with_turn(event: &[u8], outcome: &[u8]) -> Bed {
    let bed = bed();
    let store = Store::open(&bed.store(), &StoreOptions::default()).expect("the store");
    let disk = store.disk(store.find("a").expect("names").expect("the agent")).expect("the agent");
    disk.begin(TurnStyle::Transaction, event).expect("a turn");
    zone_vfs::store::wait(|done| disk.end(outcome, None, done)).expect("its end");
    drop((disk, store));
    bed
}

#[test]
fn a_turn_that_no_later_turn_could_look_back_on_is_refused() {
    let to = Bed::new(&["notes"]);
    let event = |id: usize| {
        let (id, kind) = ("x".repeat(id), "message".into());
        journal::encode(&EventRecord::Event { id, kind, payload: Vec::new() }).expect("a record")
    };
    let outcome = |it: &OutcomeRecord| journal::encode(it).expect("a record");
    let reply = outcome(&OutcomeRecord::Reply(Vec::new()));
    let (agent, generation) = as_it_is();
    let newer = [&[journal::JOURNAL_VERSION + 1][..], &reply[1..]].concat();
    for (event, outcome, rule) in [
        (b"no record".to_vec(), reply.clone(), "a journal record"),
        (event(1), b"\x01\xff".to_vec(), "a journal record cannot be read"),
        (event(1), newer, "a journal record of version"),
        (event(1025), reply.clone(), "the id of its event is longer"),
        (event(1), outcome(&OutcomeRecord::Exit(0)), "none that such an event can have"),
        (Vec::new(), reply, "it has an outcome, and no event"),
    ] {
        let from = with_turn(&event, &outcome);
        refused(&to, &hostile(&from, &[], &agent, &generation), &["turn 4", rule]);
    }
    let from = with_turn(&[], &[]);
    let forgotten = to.file("forgotten", hostile(&from, &[], &agent, &generation));
    to.ok(["import".as_ref(), forgotten.as_os_str()]);
    assert_eq!(to.send("a", "list"), "1. one\n2. two");
}

#[test]
fn bounds_of_zones_are_such_as_a_new_agent_can_have() {
    let (from, to) = (bed(), Bed::new(&["notes"]));
    {
        let store = Store::open(&from.store(), &StoreOptions::default()).expect("the store");
        let disk = store.disk(store.find("a").expect("names").expect("the agent")).expect("the agent");
        disk.set_quota(3, Quota { inodes: 0, ..Quota::default() }).expect("bounds that nobody is offered");
    }
    let (agent, generation) = as_it_is();
    refused(&to, &hostile(&from, &[], &agent, &generation), &["inodes=0"]);
}

#[test]
fn a_dry_run_tells_what_an_export_holds_and_changes_nothing() {
    let (from, to) = (bed(), Bed::empty());
    let file = from.path("honest");
    let told = to.json(["import".as_ref(), "--dry-run".as_ref(), file.as_os_str()]);
    assert!(!to.store().exists(), "no store is made");
    let agent = from.agent("a");
    assert_eq!(
        (&told["name"], &told["turns"], &told["generation"]),
        (&json!("a"), &json!(3), &agent["generation"])
    );
    assert_eq!((&told["component"], &told["world"]), (&json!("notes.wasm"), &json!("dormouse:agent/agent")));
    let hash = blake3::hash(&std::fs::read(guest("notes")).expect("a guest")).to_hex().to_string();
    assert_eq!(told["component_blake3"], json!(hash));
    assert!(told["age_seconds"].as_u64() < Some(3600) && told["moved"] == false, "{told}");
    let used = |zones: &Value| -> Vec<Value> {
        zones
            .as_array()
            .into_iter()
            .flatten()
            .map(|it| json!([it["mount"], it["kind"], it["bytes"]]))
            .collect()
    };
    assert_eq!(used(&told["zones"]), used(&from.json(["zone", "ls", "a:/"])));
    let number = |it: &Value| json!([it["generation"], it["cause"], it["turn"], it["memory_bytes"]]);
    let numbers = |all: &Value| -> Vec<Value> { all.as_array().into_iter().flatten().map(number).collect() };
    assert_eq!(numbers(&told["generations"]), numbers(&from.json(["generations", "a"])));
    // for people, and through a pipe
    let bytes = std::fs::read(&file).expect("the export");
    let shown = crate::bed::run(&mut to.command(["import", "--dry-run", "-"]), &bytes);
    assert_eq!(shown.status, Some(0), "{shown}");
    assert!(shown.out.contains(&hash) && shown.out.contains("/memory/semantic"), "{shown}");
    // all that an import refuses is refused
    let bad = to.file("bad", &bytes[..bytes.len() - 1]);
    to.refused(["import".as_ref(), "--dry-run".as_ref(), bad.as_os_str()], &["bad is truncated"]);
    to.refused(
        ["--max-memory".as_ref(), "64K".as_ref(), "import".as_ref(), "--dry-run".as_ref(), file.as_os_str()],
        &["raise --max-memory"],
    );
    let before = from.everything();
    from.refused(["import", "--dry-run", "honest"], &["an agent named `a` exists"]);
    from.ok(["import", "--dry-run", "honest", "b"]);
    assert_eq!(from.everything(), before);
}

#[test]
fn a_dry_run_says_which_shared_zones_an_import_needs() {
    let (from, to) = (Bed::new(&["notes"]), Bed::empty());
    let notes = guest("notes");
    from.ok(["new".as_ref(), "--zone".as_ref(), "team=/team:ro".as_ref(), "a".as_ref(), notes.as_os_str()]);
    from.ok(["export", "a", "file"]);
    let file = from.path("file");
    let told = to.ok(["import".as_ref(), "--dry-run".as_ref(), file.as_os_str()]);
    assert!(told.contains("--zone team=/team:ro"), "{told}");
    to.refused(["import".as_ref(), file.as_os_str()], &["--zone team=/team"]);
}

#[test]
fn an_export_to_standard_output_tells_what_it_was_on_standard_error() {
    let from = bed();
    let ran = from.run(["export", "a", "/dev/null", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&ran.out).expect("JSON")["turns"], 3);
    let piped = from.command(["export", "--move", "--json", "a", "-"]).output().expect("the program");
    assert!(piped.status.success() && piped.stdout.starts_with(b"dormxprt"));
    let told: Value = serde_json::from_slice(&piped.stderr).expect("JSON");
    assert_eq!((&told["moved"], &told["bytes"]), (&json!(true), &json!(piped.stdout.len())));
}

/// Exports one after another while turns are taken: each is of what was committed when it began, and none holds the
/// turns up.
#[test]
fn exports_beside_running_turns_hold_whole_turns() {
    use dormouse::{Event, Host};
    let (from, to) = (bed(), Bed::new(&["notes"]));
    let exports: Vec<(usize, usize, Vec<u8>)> = {
        let host = Host::open(from.options()).expect("the host");
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let agent = host.agent("a").expect("the agent");
        let taken = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let turns = {
            let (agent, taken) = (agent.clone(), taken.clone());
            runtime.spawn(async move {
                for nth in 0..40 {
                    let event = Event::message(format!("note more {nth}")).expect("an event");
                    agent.send(event).await.expect("a turn").reply.expect("a reply");
                    taken.store(nth + 1, std::sync::atomic::Ordering::SeqCst);
                }
            })
        };
        let exports = runtime.block_on(async {
            let mut exports = Vec::new();
            while !turns.is_finished() {
                let bytes = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
                let before = taken.load(std::sync::atomic::Ordering::SeqCst);
                host.export(&agent, Box::new(Buffer(bytes.clone()))).await.expect("an export");
                let after = taken.load(std::sync::atomic::Ordering::SeqCst);
                exports.push((before, after, std::mem::take(&mut *bytes.lock().expect("bytes"))));
            }
            turns.await.expect("the turns");
            exports
        });
        drop(agent);
        host.close().expect("closed");
        exports
    };
    assert_eq!(from.send("a", "list").lines().count(), 42);
    for (before, after, bytes) in [exports.first(), exports.last()].into_iter().flatten() {
        let file = to.file("export", bytes);
        to.ok(["import".as_ref(), file.as_os_str(), "b".as_ref()]);
        let notes = to.send("b", "list").lines().count() - 2;
        assert!((*before..=after + 1).contains(&notes), "{notes} of {before} to {after}");
        to.ok(["rm", "b"]);
    }
    to.ok(["fsck"]);
}

struct Buffer(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("bytes").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
