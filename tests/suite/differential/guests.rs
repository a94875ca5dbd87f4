//! What each guest is asked to do. One that is not named here is run without arguments, or gets an event that it does
//! not know.

/// What is done with a guest's output before it is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// Nothing.
    Whole,
    /// Every number becomes `#`: the guest prints how long something took.
    WithoutNumbers,
}

/// One run of a command.
pub struct Run {
    pub args: &'static [&'static str],
    pub input: &'static [u8],
    pub compared: Compared,
}

const fn run(args: &'static [&'static str]) -> Run {
    Run { args, input: b"", compared: Compared::Whole }
}

const fn fed(args: &'static [&'static str], input: &'static [u8]) -> Run {
    Run { args, input, compared: Compared::Whole }
}

const fn timed(args: &'static [&'static str]) -> Run {
    Run { args, input: b"", compared: Compared::WithoutNumbers }
}

/// The runs of commands, one after the other in the same folders.
///
/// What has another answer each time is left out (`random print`), and so is what the two are to answer differently:
/// the contracts of zones (`contracts KIND`), and limits of memory, handles and time (`hostile memory`, `spin`,
/// `handles`, `sleep-forever`, `read-huge`).
const COMMANDS: &[(&str, &[Run])] = &[
    ("clocks", &[run(&[])]),
    ("contracts", &[run(&["zones"]), run(&[])]),
    ("exit-code", &[run(&["0"]), run(&["1"]), run(&["7"]), run(&["255"]), run(&[])]),
    ("fs-all", &[run(&[]), run(&["/workspace"])]),
    (
        "hello-command",
        &[
            run(&[]),
            run(&[]),
            fed(&["wc"], b"one two\nthree\n"),
            run(&["journal", "a", "line"]),
            run(&["journal"]),
            fed(&["put", "/workspace/kept"], b"\x00\xff kept\n"),
            run(&["wc", "/workspace/kept"]),
            run(&["ls"]),
            run(&["ls", "/memory"]),
            run(&["rm", "/workspace/kept"]),
            run(&["rm", "/workspace/kept"]),
            run(&["env"]),
            run(&["fail"]),
            run(&["trap"]),
            run(&["no such command"]),
        ],
    ),
    ("hostcalls", &[timed(&["all", "20"]), run(&["all", "0"]), run(&[])]),
    (
        "hostile",
        &[
            run(&["checks"]),
            run(&["recurse"]),
            run(&["unreachable"]),
            run(&["wild-store"]),
            run(&["forged", "7"]),
            run(&["forged", "4294967295"]),
            run(&["dropped"]),
            run(&["double-drop"]),
            run(&[]),
        ],
    ),
    ("no-network", &[run(&[])]),
    ("random", &[run(&[])]),
    (
        "stdio",
        &[
            fed(&["cat"], b"bytes \x00 and words"),
            fed(&["upper"], b"one\ntwo"),
            fed(&["both"], b"12345"),
            run(&["large", "300000"]),
            run(&["args", "two words", "", "--flag", "-x", "\u{fc}"]),
            run(&["env"]),
            run(&["cwd"]),
            run(&["terminal"]),
            run(&["status", "0"]),
            run(&["status", "3"]),
            run(&["ok"]),
            run(&["err"]),
            run(&["panic"]),
            run(&["no such command"]),
        ],
    ),
    ("zone-io", &[timed(&["write-13", "3"]), timed(&["walk", "1"]), timed(&["replace", "3"]), run(&[])]),
];

/// What an agent is asked that it does not know.
const UNKNOWN: &str = "no-such-command";

/// What both agents in another language than Rust, and the one in Rust, understand.
macro_rules! common {
    ($($more:literal),*) => {
        &[
            UNKNOWN, "remember a one", "remember b two words", "recall a", "recall b", "recall c", "next", "next",
            "next", "line", "line", "line", "write /workspace/f some text", "read /workspace/f", "entry", "entry",
            "ls /workspace", "ls /nowhere", "read /workspace/none", "grow 2", "touch-pages 20", "next", "print words"
            $(, $more)*
        ]
    };
}

/// The events that agents get, one after the other.
///
/// Left out is what asks for clocks, random numbers and who the agent is (`time`, `random`, `who`, `starts`), what the
/// contract of a zone refuses (`forget-try`), what ends an instance (`panic`, `exit`, `spin`, `fail`), and
/// `dormouse:zones`, which plain wasmtime does not have.
const AGENTS: &[(&str, &[&str])] = &[
    ("held-handles", &["use", "open", "use", "use", UNKNOWN]),
    ("js-agent", common!("count", "count")),
    ("spidermonkey-agent", common!("count", "count")),
    ("locks-agent", &[UNKNOWN, "lock neither /workspace/f 1", "unlock nothing"]),
    (
        "notes",
        common!(
            "note first",
            "note two  words",
            "list",
            "status",
            "draft a",
            "draft b",
            "draft",
            "write-sync /workspace/s x",
            "sleep 1"
        ),
    ),
    ("python-agent", common!()),
    ("upgrade-agent", &["keep some text", UNKNOWN, "hold /workspace/held"]),
    (
        "zone-history",
        &[
            "write /workspace/a one two",
            "cat /workspace/a",
            "ls /workspace",
            "rename /workspace/a /workspace/b",
            "cat /workspace/a",
            "cat /workspace/b",
            "hold /workspace/b",
            "unlink /workspace/b",
            "held",
            "let-go",
            "held",
            UNKNOWN,
        ],
    ),
];

/// Checks that fail on plain wasmtime and hold here: the guest, the check, and why. Of such a guest the other checks
/// are compared, and neither their number nor the exit status.
pub const STRICTER: &[(&str, &str, &str)] = &[(
    "fs-all",
    "truncate needs the right to write",
    "wasmtime-wasi opens a file for truncation without the right to write; zones do not",
)];

const DEFAULT_RUNS: &[Run] = &[run(&[])];
const DEFAULT_EVENTS: &[&str] = &[UNKNOWN];

pub fn runs(guest: &str) -> &'static [Run] {
    COMMANDS.iter().find(|(name, _)| *name == guest).map_or(DEFAULT_RUNS, |(_, runs)| runs)
}

pub fn events(guest: &str) -> &'static [&'static str] {
    AGENTS.iter().find(|(name, _)| *name == guest).map_or(DEFAULT_EVENTS, |(_, events)| events)
}

/// All that are named here.
pub fn named() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().map(|(name, _)| *name).chain(AGENTS.iter().map(|(name, _)| *name))
}
