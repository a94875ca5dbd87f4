//! Every guest program of the tree does the same in Dormouse, rewritten and over zones, as it does on plain wasmtime,
//! as its toolchain made it and over folders.
//!
//! | module | what it is |
//! |---|---|
//! | [`guests`] | what each guest is asked to do, and what is not compared |
//! | [`plain`] | plain wasmtime with wasmtime-wasi |

mod guests;
mod plain;

use std::ffi::OsStr;
use std::path::Path;

use dormouse::component::{World, inspect};
use serde_json::Value;

use self::guests::{Compared, STRICTER, events, named, runs};
use self::plain::{Plain, of_program};
use crate::bed::{Bed, guest, run};

/// Agents whose interpreters take long to compile: a test each.
const LARGE: [&str; 3] = ["python-agent", "js-agent", "spidermonkey-agent"];

/// Guests that run composed alone: [`crate::composed`] does.
const PARTS: [&str; 2] = ["ledger-accounts", "ledger-agent"];

/// The guests that are built, by name, of this world.
fn built(world: World) -> Vec<String> {
    let folder = guest("notes").parent().expect("a folder").to_owned();
    let files = folder.read_dir().expect("the folder of guests").map(|entry| entry.expect("an entry").path());
    let mut names: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "wasm"))
        .filter(|path| inspect(&std::fs::read(path).expect("a guest")).expect("a guest").world == world)
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned())
        .filter(|name| !PARTS.contains(&name.as_str()))
        .collect();
    names.sort();
    names
}

/// A guest's output as it is compared.
fn told(guest: &str, text: &str, compared: Compared) -> String {
    let checks: Vec<&str> =
        STRICTER.iter().filter(|(of, ..)| *of == guest).map(|(_, check, _)| *check).collect();
    let is_compared = |line: &str| {
        let check = line.strip_prefix("ok ").or_else(|| line.strip_prefix("FAIL ")).unwrap_or_default();
        let is_count = line.ends_with(" failed\n");
        !checks.iter().any(|it| check.starts_with(it)) && (checks.is_empty() || !is_count)
    };
    let mut told = String::new();
    for line in text.split_inclusive('\n').filter(|line| is_compared(line)) {
        for word in line.split_inclusive(char::is_whitespace) {
            let is_erased = compared == Compared::WithoutNumbers && word.trim().parse::<f64>().is_ok();
            told.push_str(if is_erased { "# " } else { word });
        }
    }
    told
}

/// The lines in which two texts differ.
fn lines_apart(here: &str, there: &str) -> String {
    let (here, there) = (here.lines(), there.lines());
    let longest = here.clone().count().max(there.clone().count());
    let padded = |lines: std::str::Lines<'_>| -> Vec<String> {
        lines.map(str::to_owned).chain(std::iter::repeat(String::new())).take(longest).collect()
    };
    let pairs = padded(here).into_iter().zip(padded(there)).filter(|(here, there)| here != there);
    pairs.map(|(here, there)| format!("here: {here}\nplain: {there}\n")).collect::<Vec<_>>().concat()
}

/// What differs between the runs of a command here and there.
fn differences(name: &str, path: &Path, bed: &Bed) -> Vec<String> {
    let plain = Plain::new(path);
    let mut found = Vec::new();
    let is_stricter = STRICTER.iter().any(|(of, ..)| *of == name);
    for run in runs(name) {
        let here = of_program(bed.command(["run"]).arg(path).args(run.args), run.input);
        let there = plain.run(run.args, run.input);
        let outs = [&here, &there].map(|of| told(name, &of.out, run.compared));
        let is_same = (is_stricter || here.status == there.status) && outs[0] == outs[1];
        if !is_same {
            let lines = lines_apart(&outs[0], &outs[1]);
            let ends = [&here, &there].map(|of| format!("{:?} {}", of.status, of.err));
            found.push(format!("{name} {:?}\n{lines}{}", run.args, lines_apart(&ends[0], &ends[1])));
        }
    }
    found
}

/// Asserts that an agent of this component answers these events the same here and there, and prints the same.
pub fn assert_agent_is_the_same(bed: &Bed, component: &Path, events: &[&str]) {
    let plain = Plain::new(component);
    bed.ok([OsStr::new("new"), OsStr::new("agent"), component.as_os_str()]);
    let mut there = plain.start();
    for event in events {
        let turn = run(bed.command(["send", "agent", event]).arg("--json"), b"");
        let told: Value = serde_json::from_str(&turn.out).unwrap_or_else(|e| panic!("{e} in {turn}"));
        let here = match &told["error"] {
            Value::Null => Ok(told["reply"].as_str().expect("a reply").to_owned()),
            error => Err(error.as_str().expect("a text").to_owned()),
        };
        assert_eq!(here, there.send(event), "{} {event}", component.display());
    }
    let printed = bed.run(["zone", "cat", "agent:/logs/stdout"]);
    assert_eq!(printed.out, there.printed(), "{}: {printed}", component.display());
}

fn assert_guest_is_the_same(name: &str) {
    assert_agent_is_the_same(&Bed::new(&[name]), &guest(name), events(name));
}

#[test]
fn commands_do_what_they_do_on_plain_wasmtime() {
    let names = built(World::Command);
    let differ: Vec<String> =
        names.iter().flat_map(|name| differences(name, &guest(name), &Bed::new(&[name]))).collect();
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn a_module_of_preview_1_does_what_it_does_on_plain_wasmtime() {
    let bed = Bed::new(&[]);
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/preview1.wat");
    let module = bed.file("preview1.wasm", wat::parse_file(text).expect("the module's text"));
    let differ = differences("preview1", &module, &bed);
    assert!(differ.is_empty(), "{}", differ.join("\n"));
}

#[test]
fn agents_answer_what_they_answer_on_plain_wasmtime() {
    for name in built(World::Agent).iter().filter(|name| !LARGE.contains(&name.as_str())) {
        assert_guest_is_the_same(name);
    }
}

#[test]
fn the_python_agent_answers_what_it_answers_on_plain_wasmtime() {
    assert_guest_is_the_same("python-agent");
}

#[test]
fn the_javascript_agent_answers_what_it_answers_on_plain_wasmtime() {
    assert_guest_is_the_same("js-agent");
}

#[test]
fn the_javascript_agent_on_spidermonkey_answers_what_it_answers_on_plain_wasmtime() {
    assert_guest_is_the_same("spidermonkey-agent");
}

/// A guest that nobody built, or that is neither command nor agent, would be compared with nothing.
#[test]
fn every_guest_is_compared() {
    let compared: Vec<String> = [World::Command, World::Agent].into_iter().flat_map(built).collect();
    let missing: Vec<&str> = named().filter(|name| !compared.iter().any(|it| it == name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
    assert_eq!(built(World::Other), Vec::<String>::new());
    for (guest, ..) in STRICTER {
        assert!(named().any(|name| name == *guest), "{guest} is no guest");
    }
}
