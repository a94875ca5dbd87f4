use std::ffi::OsStr;
use std::path::Path;

use crate::bed::{Bed, guest, run};

/// A component that does not do what is asked of it, in the text format.
fn component(bed: &Bed, name: &str, text: &str) -> std::path::PathBuf {
    bed.file(&format!("{name}.wasm"), wat::parse_str(text).expect("a component's text"))
}

/// `new`, `run` and `inspect` refuse the file with these words, and the store stays as it was.
fn assert_refused(bed: &Bed, file: &Path, words: &[&str]) {
    let before = bed.everything();
    let kept = components(bed);
    bed.refused([OsStr::new("new"), OsStr::new("fresh"), file.as_os_str()], words);
    bed.refused([OsStr::new("run"), file.as_os_str()], words);
    bed.refused([OsStr::new("run"), OsStr::new("--name"), OsStr::new("a"), file.as_os_str()], words);
    assert_eq!(before, bed.everything());
    assert_eq!(kept, components(bed), "a refused component was kept");
}

/// The components that the store keeps.
fn components(bed: &Bed) -> usize {
    std::fs::read_dir(bed.store().join("components")).expect("the store's components").count()
}

#[test]
fn what_is_no_component_is_refused() {
    let bed = Bed::new(&["hello-command", "stdio"]);
    let mut command = bed.command(["run", "--name", "a"]);
    assert_eq!(run(command.arg(guest("hello-command")), b"").status, Some(0));
    let whole = std::fs::read(guest("stdio")).expect("a component");
    for (name, content, word) in [
        ("empty", &b""[..], "not a WebAssembly file"),
        ("text", b"hello", "not a WebAssembly file"),
        ("header", &whole[..6], ""),
        ("start", &whole[..1000], ""),
        ("half", &whole[..whole.len() / 2], ""),
        ("almost", &whole[..whole.len() - 1], ""),
    ] {
        let file = bed.file(&format!("{name}.wasm"), content);
        assert_refused(&bed, &file, &[word, &format!("{name}.wasm")]);
        bed.refused([OsStr::new("inspect"), file.as_os_str()], &[word, &format!("{name}.wasm")]);
    }
    let flipped: Vec<u8> =
        whole.iter().enumerate().map(|(at, b)| if at == 3000 { b ^ 0xff } else { *b }).collect();
    let file = bed.file("flipped.wasm", flipped);
    let ran = run(bed.command(["new", "fresh"]).arg(file), b"");
    assert!(matches!(ran.status, Some(0 | 1)), "{ran}");
    assert_refused(&bed, &bed.path("missing.wasm"), &["missing.wasm", "No such file"]);
    assert_refused(&bed, &bed.store(), &["is a folder"]);
    // the agent runs its own component still
    let mut command = bed.command(["run", "--name", "a"]);
    assert_eq!(run(command.arg(guest("hello-command")), b"").out, "hello, world: visit 2\n");
}

#[test]
fn a_component_that_asks_for_what_there_is_not_is_refused() {
    let bed = Bed::new(&["hello-command"]);
    let mut command = bed.command(["run", "--name", "a"]);
    assert_eq!(run(command.arg(guest("hello-command")), b"").status, Some(0));
    let unknown = component(
        &bed,
        "unknown",
        r#"(component
            (import "acme:rockets/launch@1.0.0" (instance $launch (export "now" (func))))
            (core module $m (import "launch" "now" (func)) (func (export "run") (result i32) i32.const 0))
            (core func $now (canon lower (func $launch "now")))
            (core instance $i (instantiate $m (with "launch" (instance (export "now" (func $now))))))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance $out (export "run" (func $run)))
            (export "wasi:cli/run@0.2.0" (instance $out)))"#,
    );
    let missing = "imports `acme:rockets/launch@1.0.0`, which Dormouse does not provide";
    assert_refused(&bed, &unknown, &[missing]);
    let nothing = component(&bed, "nothing", "(component)");
    assert_refused(&bed, &nothing, &["neither a command nor an agent", "wasi:cli/run"]);
    let module = component(&bed, "module", "(module (func (export \"f\")))");
    assert_refused(&bed, &module, &["neither a command nor an agent"]);
    let foreign =
        component(&bed, "foreign", r#"(module (import "env" "f" (func)) (func (export "_start")))"#);
    assert_refused(&bed, &foreign, &["imports `env.f`, which Dormouse does not provide"]);
    // `inspect` says the same, and its status is that of `new`
    for (file, words) in [
        (&unknown, missing),
        (&nothing, "neither a command nor an agent"),
        (&foreign, "imports `env.f`, which Dormouse does not provide"),
    ] {
        let ran = run(bed.command(["inspect"]).arg(file), b"");
        assert_eq!(ran.status, Some(1), "{ran}");
        assert!(ran.out.contains(words) && !ran.out.contains("1 components"), "{ran}");
        let ran = run(bed.command(["inspect", "--json"]).arg(file), b"");
        let about: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
        assert_eq!(about["runnable"], false, "{about}");
    }
}

#[test]
fn a_component_that_cannot_be_captured_is_refused_with_reason_and_place() {
    let bed = Bed::new(&["hello-command"]);
    let mut command = bed.command(["run", "--name", "a"]);
    assert_eq!(run(command.arg(guest("hello-command")), b"").status, Some(0));
    for (name, body, reason) in [
        ("pages", "(memory 0 65536 (pagesize 1))", "page size of its own"),
        (
            "heap",
            "(type $t (struct (field i32))) (func (drop (struct.new $t (i32.const 1))))",
            "garbage-collected types",
        ),
        ("wide", "(memory i64 1)", "64-bit memory"),
        ("shared", "(memory 1 1 shared)", "shared memory"),
    ] {
        let text = format!(
            r#"(component
                (core module $m {body} (func (export "run") (result i32) i32.const 0))
                (core instance $i (instantiate $m))
                (func $run (result (result)) (canon lift (core func $i "run")))
                (instance $out (export "run" (func $run)))
                (export "wasi:cli/run@0.2.0" (instance $out)))"#
        );
        let file = component(&bed, name, &text);
        assert_refused(&bed, &file, &[reason, "core module 0", "offset 0x"]);
        let ran = run(bed.command(["inspect"]).arg(&file), b"");
        assert_eq!(ran.status, Some(1), "{ran}");
        assert!(ran.out.contains(reason), "{ran}");
        let ran = run(bed.command(["inspect", "--json"]).arg(&file), b"");
        let about: serde_json::Value = serde_json::from_str(&ran.out).expect("JSON");
        assert_eq!(about["capturable"], false, "{about}");
    }
}

#[test]
fn agents_and_commands_are_told_apart() {
    let bed = Bed::new(&["hello-command", "notes"]);
    bed.create("n", "notes");
    assert_eq!(bed.guest("hello-command", []).status, Some(0));
    let before = bed.everything();
    bed.refused(
        [OsStr::new("run"), OsStr::new("--name"), OsStr::new("n"), guest("hello-command").as_os_str()],
        &["n"],
    );
    bed.refused(["send", "hello-command", "list"], &["dormouse run"]);
    assert_eq!(before, bed.everything());
    let wrong = bed.refused([OsStr::new("run"), guest("notes").as_os_str()], &["dormouse send"]);
    assert!(wrong.contains("is an agent"), "{wrong}");
}

#[test]
fn a_module_that_cannot_be_captured_once_it_is_wrapped_is_told_so_by_inspect() {
    let bed = Bed::new(&[]);
    let module = r#"(module
        (type $number (func (param i32))) (type $reference (func (param funcref)))
        (table 2 funcref)
        (func $f (type $number)) (func $g (type $reference))
        (elem (i32.const 0) $f $g)
        (func (export "_start")
            (table.set (i32.const 0) (table.get (i32.const 1)))
            (call_indirect (type $number) (i32.const 0) (i32.const 0))))"#;
    let file = bed.file("alike.wasm", wat::parse_str(module).expect("a module"));
    assert_refused(&bed, &file, &["this component cannot be captured"]);
    let ran = run(bed.command(["inspect"]).arg(&file), b"");
    assert_eq!(ran.status, Some(1), "{ran}");
    assert!(ran.out.contains("captured    no\n"), "{ran}");
}
