//! `diff` and `zone diff`: what differs between generations and agents, as the operator sees it.

use serde_json::Value;

use crate::bed::Bed;

fn differences(told: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let rows = told["differences"].as_array().cloned().unwrap_or_default();
    rows.iter().map(|row| (text(&row["difference"]), text(&row["path"]))).collect()
}

fn pair(kind: &str, path: &str) -> (String, String) {
    (kind.into(), path.into())
}

#[test]
fn generations_and_agents_are_compared() {
    let bed = Bed::new(&["notes"]);
    bed.create("a", "notes");
    bed.send("a", "write /workspace/kept same");
    bed.send("a", "write /workspace/file old");
    let before = bed.agent("a")["generation"].to_string();
    bed.ok(["fork", "a", "b"]);
    bed.send("a", "write /workspace/file newer");
    let last = bed.json(["zone", "diff", "a:/workspace"]);
    assert_eq!(differences(&last), [pair("changed", "/workspace/file")], "{last}");
    assert_eq!(last["differences"][0]["before"]["bytes"], 3);
    assert_eq!(last["differences"][0]["after"]["bytes"], 5);
    bed.send("a", "write /workspace/new 1");

    let all = bed.json(["diff", &format!("a@{before}"), "a"]);
    let expected = [pair("changed", "/workspace/file"), pair("added", "/workspace/new")];
    assert_eq!(differences(&all), expected, "{all}");
    let since = bed.json(["zone", "diff", "a:/workspace", &before]);
    assert_eq!(differences(&since), expected);
    let below = bed.json(["zone", "diff", "a:/workspace/new", &before]);
    assert_eq!(differences(&below), [pair("added", "/workspace/new")]);
    let forks = bed.json(["diff", "a", "b"]);
    assert!(differences(&forks).contains(&pair("removed", "/workspace/new")), "{forks}");

    let text = bed.ok(["diff", &format!("a@{before}"), "a"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines, ["M   /workspace/file  3 B -> 5 B", "A   /workspace/new  1 B", "1 added, 1 changed"]);
    assert_eq!(bed.ok(["diff", "--summary", &format!("a@{before}"), "a"]), "1 added, 1 changed\n");
    assert_eq!(bed.ok(["diff", "--exit-code", "a", "a"]), "no differences\n");
    let differs = bed.run(["diff", "--exit-code", &format!("a@{before}"), "a"]);
    assert!(differs.status == Some(1) && differs.err.is_empty(), "{differs}");
    bed.refused(["diff", "a@999", "a"], &["a: no generation 999", "`dormouse generations a`"]);
    bed.refused(["diff", "a@first", "a"], &["`first` is no generation", "`dormouse generations a`"]);
    bed.refused(["diff", "a", "nobody"], &["nobody"]);
    bed.refused(["zone", "diff", "a@1:/workspace"], &["N:PATH"]);
    bed.refused(["zone", "diff", "b:/workspace"], &["no generation before"]);
}

#[test]
fn shared_zones_are_left_out_and_said_so() {
    let bed = Bed::new(&["notes"]);
    let path = crate::bed::guest("notes");
    bed.ok(["new", "--zone", "team=/shared", "a", path.to_str().expect("a path")]);
    bed.send("a", "write /workspace/file x");
    let text = bed.ok(["diff", "a@0", "a"]);
    assert!(
        text.contains("A   /workspace/file") && text.contains("left out: the shared zone team"),
        "{text}"
    );
    bed.refused(["zone", "diff", "a:/shared", "0"], &["team", "shared"]);
}
