//! Durable turns beside turns that a crash forgets, and what it takes to come back after one.
//!
//! - turns of 1 to 256 agents at once, with images behind them, and with one at each turn's end; the same calls on plain
//!   wasmtime, which keeps nothing; and a transaction each of `SQLite`, with no guest at all.
//! - an agent that has taken so many turns, found by another process as a crash left it: to open the store, and to bring the
//!   agent back; beside all its turns taken again on plain wasmtime.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use dormouse::{Agent, Host, ImagePolicy};
use dormouse_benches::bed::{Bed, send};
use dormouse_benches::bench::{Bench, Racer};
use dormouse_benches::guests;
use dormouse_benches::peer::{Peer, PeerAgent};

const PROGRAM: &str = env!("CARGO_BIN_EXE_dormouse-benched");

/// An agent whose turns are counted.
struct Kind {
    label: &'static str,
    component: Vec<u8>,
    /// What happens to it first.
    first: &'static str,
    /// What happens to it again and again.
    again: &'static str,
}

/// How many take turns at once.
const AT_ONCE: [usize; 4] = [1, 8, 64, 256];
/// Turns of all in a round, at least.
const IN_ROUND: usize = 512;
/// Ages in turns.
const AGES: [u64; 5] = [10, 100, 1_000, 10_000, 100_000];
/// Crashes of an agent of each age.
const CRASHES: u64 = 12;
/// So many turns are taken again, at most, to say what all of them take.
const MOST_AGAIN: u64 = 10_000;

fn main() -> anyhow::Result<()> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut bench = Bench::new("turns", tmp);
    let rust = Kind {
        label: "Rust",
        component: guests::read(bench.target(), "notes")?,
        first: "next",
        again: "next",
    };
    let python = guests::read_if_built(bench.target(), "python-agent").map(|component| Kind {
        label: "CPython",
        component,
        first: "remember animal mouse",
        again: "recall animal",
    });
    for kind in [Some(&rust), python.as_ref()].into_iter().flatten() {
        for many in AT_ONCE {
            at_once(&mut bench, tmp, kind, many)?;
        }
    }
    recovery(&mut bench, tmp, &rust)?;
    bench.note(
        "turns are as short as they come: the host's own share is as large as it can be. SQLite writes event and reply, \
         in WAL mode with `synchronous=FULL`, all agents to one database, or each to its own",
    );
    bench.finish(&[])
}

/// What the row is called.
fn row(kind: &Kind, many: usize) -> String {
    format!("turn, {}, {many} at once, per turn of all", kind.label)
}

fn at_once(bench: &mut Bench, tmp: &Path, kind: &Kind, many: usize) -> anyhow::Result<()> {
    let what = row(kind, many);
    if !bench.wants(&what) || (!bench.is_measuring() && many > 1) {
        return Ok(());
    }
    let behind = Bed::with_images(tmp, PROGRAM, ImagePolicy::default())?;
    let each = Bed::new(tmp, PROGRAM)?;
    let agents = |bed: &Bed| -> anyhow::Result<Vec<Agent>> {
        let first = bed.agent("a-0", &kind.component, &[kind.first.to_owned()])?;
        let names: Vec<_> =
            (1..many).map(|n| dormouse::AgentName::new(&format!("a-{n}"))).collect::<Result<_, _>>()?;
        let mut all = vec![first];
        if !names.is_empty() {
            all.extend(bed.wait(all[0].fork(&names, None))?);
        }
        Ok(all)
    };
    let (of_behind, of_each) = (agents(&behind)?, agents(&each)?);
    let peer = Peer::new(&kind.component)?;
    let folder = tempfile::tempdir_in(tmp)?;
    let mut plain = behind.wait(async {
        let mut all = Vec::new();
        for n in 0..many {
            let mut agent = peer.agent(&folder.path().join(n.to_string())).await?;
            agent.turn(kind.first).await?;
            all.push(agent);
        }
        anyhow::Ok(all)
    })?;
    let turns = IN_ROUND.div_ceil(many).max(4);
    let durable = |bed: &Bed, agents: &[Agent]| {
        bed.wait(async {
            let begun = Instant::now();
            let mut all = tokio::task::JoinSet::new();
            for agent in agents {
                let (agent, again) = (agent.clone(), kind.again);
                all.spawn(async move {
                    for _ in 0..turns {
                        send(&agent, again).await?;
                    }
                    anyhow::Ok(())
                });
            }
            all.join_all().await.into_iter().collect::<anyhow::Result<()>>()?;
            anyhow::Ok(share(begun, turns, agents.len()))
        })
    };
    let kept = sqlite::Databases::new(tmp, many)?;
    let mut racers = vec![
        (
            "Dormouse",
            Box::new(|| durable(&behind, &of_behind)) as Box<dyn FnMut() -> anyhow::Result<Duration>>,
        ),
        ("Dormouse, an image with each turn", Box::new(|| durable(&each, &of_each))),
        (
            "wasmtime, which keeps nothing",
            Box::new(|| {
                behind.wait(async {
                    let begun = Instant::now();
                    let mut all = tokio::task::JoinSet::new();
                    for mut agent in plain.drain(..) {
                        let again = kind.again;
                        all.spawn(async move {
                            for _ in 0..turns {
                                agent.turn(again).await?;
                            }
                            anyhow::Ok(agent)
                        });
                    }
                    let back: anyhow::Result<Vec<PeerAgent>> = all.join_all().await.into_iter().collect();
                    let took = share(begun, turns, many);
                    plain = back?;
                    Ok(took)
                })
            }),
        ),
    ];
    for (subject, shared) in [("SQLite, one database", true), ("SQLite, one each", false)] {
        if let Some(kept) = &kept {
            racers.push((subject, Box::new(move || Ok(share_of(kept.commit(shared, turns)?, turns, many)))));
        }
    }
    let mut racing: Vec<_> =
        racers.iter_mut().map(|(subject, run)| Racer { subject, run: &mut **run }).collect();
    bench.race(&what, &mut racing)
}

fn share(begun: Instant, turns: usize, many: usize) -> Duration {
    share_of(begun.elapsed(), turns, many)
}

fn share_of(took: Duration, turns: usize, many: usize) -> Duration {
    took / u32::try_from(turns * many).unwrap_or(u32::MAX)
}

/// What comes of an agent of each age whose host is killed.
fn recovery(bench: &mut Bench, tmp: &Path, kind: &Kind) -> anyhow::Result<()> {
    let wanted = |age: u64| [opening(age), back(age), again(age)];
    if !AGES.iter().flat_map(|age| wanted(*age)).any(|what| bench.wants(&what)) {
        return Ok(());
    }
    let bed = Bed::with_images(tmp, PROGRAM, ImagePolicy::default())?;
    let agent = bed.agent("a", &kind.component, &[kind.first.to_owned()])?;
    let mut taken = 0;
    let ages = if bench.is_measuring() { &AGES[..] } else { &AGES[..1] };
    for age in ages {
        let (mut opened, mut brought, mut depths) = (Vec::new(), Vec::new(), Vec::new());
        for crash in 0..CRASHES {
            // wherever it is between two images
            let until = age + crash * 5;
            while taken < until {
                bed.wait(send(&agent, kind.again))?;
                taken += 1;
            }
            // as a crash would leave it
            let left = tempfile::tempdir_in(tmp)?;
            copy(&bed.store(), left.path())?;
            let begun = Instant::now();
            let host = Host::open(bed.options(left.path().into()))?;
            opened.push(begun.elapsed());
            let agent = host.agent("a")?;
            depths.push(agent.generations().iter().rev().take_while(|it| it.on.is_some()).count() as u64);
            let begun = Instant::now();
            bed.wait(agent.resume())?;
            brought.push(begun.elapsed());
            drop(agent);
            host.close()?;
        }
        bench.samples(opening(*age), kind.label, opened);
        bench.samples(back(*age), kind.label, brought);
        depths.sort_unstable();
        bench.note(format!(
            "after {age} turns, {} to {} of them had no image",
            depths.first().context("a crash")?,
            depths.last().context("a crash")?
        ));
        let peer = Peer::new(&kind.component)?;
        let turns = (*age).min(MOST_AGAIN);
        if turns == *age {
            let folder = tempfile::tempdir_in(tmp)?;
            let took = bed.wait(async {
                let mut agent = peer.agent(folder.path()).await?;
                let begun = Instant::now();
                for _ in 0..turns {
                    agent.turn(kind.again).await?;
                }
                anyhow::Ok(begun.elapsed())
            })?;
            bench.samples(again(*age), kind.label, [took]);
        }
    }
    Ok(())
}

fn opening(age: u64) -> String {
    format!("after a crash, {age} turns old: opening the store")
}

fn back(age: u64) -> String {
    format!("after a crash, {age} turns old: bringing the agent back")
}

fn again(age: u64) -> String {
    format!("all {age} turns again, plain wasmtime")
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else if let Err(e) = std::fs::copy(entry.path(), to) {
            // what is made behind the turns comes and goes
            anyhow::ensure!(e.kind() == std::io::ErrorKind::NotFound, "{}: {e}", entry.path().display());
        }
    }
    Ok(())
}

#[cfg(feature = "sqlite")]
mod sqlite {
    //! A transaction for each turn: the event and the reply.

    use std::path::Path;
    use std::sync::Mutex;
    use std::time::{Duration, Instant};

    use rusqlite::{Connection, params};

    pub struct Databases {
        /// One for all, each with a connection of its own.
        shared: Vec<Mutex<Connection>>,
        own: Vec<Mutex<Connection>>,
        _folder: tempfile::TempDir,
    }

    fn open(path: &Path) -> anyhow::Result<Mutex<Connection>> {
        let database = Connection::open(path)?;
        database.busy_timeout(Duration::from_mins(1))?;
        database.pragma_update(None, "journal_mode", "WAL")?;
        database.pragma_update(None, "synchronous", "FULL")?;
        database.execute(
            "CREATE TABLE IF NOT EXISTS turns (agent INTEGER, turn INTEGER, event BLOB, reply BLOB)",
            [],
        )?;
        Ok(Mutex::new(database))
    }

    impl Databases {
        pub fn new(tmp: &Path, many: usize) -> anyhow::Result<Option<Self>> {
            let folder = tempfile::tempdir_in(tmp)?;
            let all = |name: &dyn Fn(usize) -> String| {
                (0..many).map(|n| open(&folder.path().join(name(n)))).collect::<anyhow::Result<Vec<_>>>()
            };
            let (shared, own) = (all(&|_| "all".into())?, all(&|n| format!("own-{n}"))?);
            Ok(Some(Self { shared, own, _folder: folder }))
        }

        /// So many transactions of each agent, a thread each.
        pub fn commit(&self, shared: bool, turns: usize) -> anyhow::Result<Duration> {
            let databases = if shared { &self.shared } else { &self.own };
            let begun = Instant::now();
            std::thread::scope(|scope| {
                let threads: Vec<_> = databases
                    .iter()
                    .enumerate()
                    .map(|(agent, database)| {
                        scope.spawn(move || {
                            let database = database.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            for turn in 0..turns {
                                let mut insert =
                                    database.prepare_cached("INSERT INTO turns VALUES (?1, ?2, ?3, ?4)")?;
                                insert.execute(params![agent as i64, turn as i64, [1_u8; 60], [2_u8; 20]])?;
                            }
                            anyhow::Ok(())
                        })
                    })
                    .collect();
                threads.into_iter().try_for_each(|thread| {
                    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                })
            })?;
            Ok(begun.elapsed())
        }
    }
}

#[cfg(not(feature = "sqlite"))]
mod sqlite {
    //! Left out.

    use std::path::Path;
    use std::time::Duration;

    pub struct Databases;

    impl Databases {
        #[expect(clippy::unnecessary_wraps, reason = "as with the feature")]
        pub fn new(_: &Path, _: usize) -> anyhow::Result<Option<Self>> {
            Ok(None)
        }

        #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "as with the feature")]
        pub fn commit(&self, _: bool, _: usize) -> anyhow::Result<Duration> {
            Ok(Duration::ZERO)
        }
    }
}
