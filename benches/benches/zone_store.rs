//! The zone store without WebAssembly: durable commits of many agents at once, and zone operations.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::Context;
use dormouse_benches::bench::{Bench, Flow, Racer};
use zone_vfs::contract::{Principal, ZoneKind};
use zone_vfs::device::DeviceKind;
use zone_vfs::id::{Inode, Timestamp};
use zone_vfs::store::{
    Cause, Disk, Done, NewAgent, NewGeneration, Store, StoreError, StoreOptions, TurnStyle, ZoneSpec, lend,
};
use zone_vfs::zone::{Access, OpenOptions, Quota, ZoneError};

/// What the agents write.
const WRITTEN: &[u8; 13] = b"thirteen byte";
/// Bytes of what an embedder keeps with a generation.
const ABOUT: usize = 512;
/// The one zone that each agent has here.
const ZONE: u16 = 0;
/// Bytes that the flooder writes at a time: as much of one chunk as goes into the log.
const FLOOD: usize = 60_000;
/// Files in one folder of the million.
const FOLDER: u64 = 1_000;
/// Files that are created before they are removed again.
const FILES: u64 = 10_000;

fn access() -> Access {
    Access::new(Principal::Agent, Timestamp::now())
}

/// An agent's disk with one file open.
#[derive(Clone)]
struct Writer {
    disk: Arc<Disk>,
    file: Inode,
}

impl Writer {
    fn new(store: &Store, name: &str) -> anyhow::Result<Self> {
        let workspace = ZoneSpec {
            name: "workspace".into(),
            mount: "/workspace".into(),
            kind: ZoneKind::Workspace,
            quota: Quota::default(),
            shared: None,
        };
        let new = NewAgent { name: name.into(), about: Vec::new(), generation: vec![7; ABOUT] };
        let disk = store.create(Store::new_id()?, &new, vec![workspace])?;
        let options = OpenOptions { create: true, read: true, write: true, ..OpenOptions::default() };
        let open = disk.zone(ZONE, |z| {
            let file = z.open(access(), Inode::ROOT, b"file", options)?;
            z.write(access(), file, 0, &[7; 4096])?;
            Ok::<_, ZoneError>(file)
        });
        Ok(Self { file: open.context("there is no zone")??, disk })
    }

    fn write(&self) -> Result<(), StoreError> {
        self.disk.zone(ZONE, |z| z.write(access(), self.file, 1024, WRITTEN)).transpose()?;
        Ok(())
    }

    /// Writes, and syncs as `fsync` does.
    fn sync(&self, done: Done<()>) {
        match self.write() {
            Ok(()) => self.disk.sync(done),
            Err(e) => done(Err(e)),
        }
    }

    /// A whole turn that writes, and ends with a generation.
    fn turn(&self, done: Done<()>) {
        let begun = self.disk.begin(TurnStyle::Transaction, b"event").and_then(|_| self.write());
        match begun {
            Ok(()) => {
                let generation = NewGeneration { cause: Cause::Turn, about: vec![7; ABOUT], on: None };
                self.disk.end(b"reply", Some(generation), Box::new(|result| done(result.map(|_| ()))));
            }
            Err(e) => done(Err(e)),
        }
    }
}

/// Makes `count` commits, one of each writer's under way at a time.
fn commits(writers: &[Writer], count: u64, commit: fn(&Writer, Done<()>)) -> anyhow::Result<Flow> {
    let (send, receive) = mpsc::channel();
    let start = |writer: usize| {
        let (send, begun) = (send.clone(), Instant::now());
        let done: Done<()> = Box::new(move |result| {
            // the receiver waits for every commit, unless one has failed
            let _ = send.send((writer, begun.elapsed(), result));
        });
        // as the host does
        if let [alone] = writers { lend(|| commit(alone, done)) } else { commit(&writers[writer], done) }
    };
    let begun = Instant::now();
    let mut started = 0;
    for writer in 0..writers.len().min(count as usize) {
        start(writer);
        started += 1;
    }
    let mut each = Vec::with_capacity(count as usize);
    while each.len() < count as usize {
        let (writer, took, result) = receive.recv()?;
        result?;
        each.push(took);
        if started < count {
            start(writer);
            started += 1;
        }
    }
    Ok(Flow { took: begun.elapsed(), each })
}

fn durable(bench: &mut Bench, tmp: &Path, kind: DeviceKind) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(tmp)?;
    let options = StoreOptions { device: kind, ..StoreOptions::default() };
    let store = match Store::open(folder.path(), &options) {
        Ok(store) => store,
        Err(e) => {
            bench.note(format!("{kind:?} was not measured: {e}"));
            return Ok(());
        }
    };
    let device = store.device();
    let writers =
        (0..64).map(|n| Writer::new(&store, &format!("agent-{n}"))).collect::<anyhow::Result<Vec<_>>>()?;
    for count in [1, 8, 64] {
        let subject = format!("{count} agents, {device}");
        bench.flow("durable write of 13 bytes", &subject, |n| commits(&writers[..count], n, Writer::sync));
        bench.flow("durable turn", &subject, |n| commits(&writers[..count], n, Writer::turn));
    }
    Ok(())
}

/// A file that has its blocks already, as a log's has: what is written to it is flushed, and nothing else.
struct Bare {
    file: File,
    at: u64,
}

impl Bare {
    const LEN: usize = 4 << 20;
    const BLOCK: usize = 4096;

    fn new(path: &Path) -> anyhow::Result<Self> {
        std::fs::write(path, vec![1; Self::LEN])?;
        let file = File::options().write(true).open(path)?;
        file.sync_all()?;
        Ok(Self { file, at: 0 })
    }

    /// One block, and an `fdatasync`.
    fn sync(&mut self) -> std::io::Result<()> {
        self.file.write_all_at(&[7; Self::BLOCK], self.at)?;
        self.at = (self.at + Self::BLOCK as u64) % Self::LEN as u64;
        self.file.sync_data()
    }

    /// What one of `count` takes, where `many` do that at once, each in a file of its own.
    fn syncs(bare: &mut [Self], count: u64) -> anyhow::Result<Duration> {
        let begun = Instant::now();
        let each = count / bare.len() as u64;
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                bare.iter_mut().map(|it| scope.spawn(|| (0..each).try_for_each(|_| it.sync()))).collect();
            let joined = threads.into_iter().map(|thread| match thread.join() {
                Ok(done) => Ok(done?),
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect::<anyhow::Result<()>>()
        })?;
        Ok(begun.elapsed() / u32::try_from(each * bare.len() as u64)?)
    }
}

/// Durable writes beside what the filesystem needs for a block and its flush, in turn.
fn beside_bare_flushes(bench: &mut Bench, tmp: &Path) -> anyhow::Result<()> {
    const MANY: usize = 64;
    let folder = tempfile::tempdir_in(tmp)?;
    let store = Store::open(&folder.path().join("store"), &StoreOptions::default())?;
    let writers =
        (0..MANY).map(|n| Writer::new(&store, &format!("agent-{n}"))).collect::<anyhow::Result<Vec<_>>>()?;
    let mut bare = (0..MANY)
        .map(|n| Bare::new(&folder.path().join(format!("bare-{n}"))))
        .collect::<anyhow::Result<Vec<_>>>()?;
    for (many, count) in [(1, 300u64), (MANY, 3_200)] {
        let count = if bench.is_measuring() { count } else { many as u64 };
        let what = format!("durable write of 13 bytes, {many} at once, per write of all");
        bench.race(
            &what,
            &mut [
                Racer {
                    subject: "Dormouse",
                    run: &mut || {
                        let flow = commits(&writers[..many], count, Writer::sync)?;
                        Ok(flow.took / u32::try_from(count)?)
                    },
                },
                Racer {
                    subject: "4 KiB and fdatasync, a thread and a file each",
                    run: &mut || Bare::syncs(&mut bare[..many], count),
                },
            ],
        )?;
    }
    Ok(())
}

/// The commits of eight agents, alone and beside one that floods the log.
fn flooded(bench: &mut Bench, tmp: &Path) -> anyhow::Result<()> {
    const NEIGHBOURS: usize = 8;
    let folder = tempfile::tempdir_in(tmp)?;
    let store = Store::open(folder.path(), &StoreOptions::default())?;
    let writers = (0..NEIGHBOURS)
        .map(|n| Writer::new(&store, &format!("neighbour-{n}")))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let flooder = Writer::new(&store, "flooder")?;
    let what = "durable write of 13 bytes, 8 agents";
    bench.flow(what, "nobody beside them", |n| commits(&writers, n, Writer::sync));
    let stop = Arc::new(AtomicBool::new(false));
    let flood = {
        let stop = stop.clone();
        std::thread::spawn(move || -> anyhow::Result<u64> {
            let (mut bytes, mut seed) = (vec![0; FLOOD], 1u64);
            let mut written = 0;
            while !stop.load(Ordering::Relaxed) {
                for byte in &mut bytes {
                    seed =
                        seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    *byte = (seed >> 56) as u8;
                }
                flooder
                    .disk
                    .zone(ZONE, |z| z.write(access(), flooder.file, 0, &bytes))
                    .context("there is no zone")??;
                zone_vfs::store::wait(|done| flooder.disk.sync(done))?;
                written += bytes.len() as u64;
            }
            Ok(written)
        })
    };
    bench.flow(what, "one that floods the log beside them", |n| commits(&writers, n, Writer::sync));
    stop.store(true, Ordering::Relaxed);
    let written = flood.join().map_err(|_| anyhow::anyhow!("the flooder panicked"))??;
    bench.note(format!("the flooder wrote and synced {FLOOD} bytes at a time, {} MiB in all", written >> 20));
    Ok(())
}

/// What a durable fork and a snapshot cost, of one file and of a million.
fn million(bench: &mut Bench, tmp: &Path, files: u64) -> anyhow::Result<()> {
    let folder = tempfile::tempdir_in(tmp)?;
    let store = Store::open(folder.path(), &StoreOptions::default())?;
    let options = OpenOptions { create: true, exclusive: true, write: true, ..OpenOptions::default() };
    let mut number = 0u64;
    for (count, subject) in
        [(1, "a zone of one file".to_owned()), (files, format!("a zone of {files} files"))]
    {
        let writer = Writer::new(&store, &format!("of-{count}"))?;
        let now = access();
        for folder in 0..(count - 1).div_ceil(FOLDER) {
            let made = writer.disk.zone(ZONE, |z| {
                let directory = z.mkdir(now, Inode::ROOT, format!("{folder}").as_bytes())?;
                for file in 0..FOLDER.min(count - 1 - folder * FOLDER) {
                    let made = z.open(now, directory, format!("{file}").as_bytes(), options)?;
                    z.close(made)?;
                }
                Ok::<_, ZoneError>(())
            });
            made.context("there is no zone")??;
            zone_vfs::store::wait(|done| writer.disk.sync(done))?;
        }
        store.checkpoint()?;
        let each = |n: u64, work: &mut dyn FnMut() -> anyhow::Result<()>| {
            let mut each = Vec::with_capacity(n as usize);
            for _ in 0..n {
                // something to be in it
                writer.write()?;
                zone_vfs::store::wait(|done| writer.disk.sync(done))?;
                let begun = Instant::now();
                work()?;
                each.push(begun.elapsed());
            }
            Ok(Flow { took: each.iter().sum(), each })
        };
        bench.flow("one commit", &subject, |n| {
            each(n, &mut || {
                writer.write()?;
                Ok(zone_vfs::store::wait(|done| writer.disk.sync(done))?)
            })
        });
        bench.flow("snapshot, durable", &subject, |n| {
            each(n, &mut || {
                let generation = NewGeneration { cause: Cause::Turn, about: vec![7; ABOUT], on: None };
                zone_vfs::store::wait(|done| writer.disk.mark(generation, done))?;
                Ok(())
            })
        });
        bench.flow("fork, durable", &subject, |n| {
            each(n, &mut || {
                number += 1;
                let name = format!("fork-{number}");
                let new = NewAgent { name, about: Vec::new(), generation: vec![7; ABOUT] };
                store.fork(&writer.disk, writer.disk.head(), &[(Store::new_id()?, new)])?;
                Ok(())
            })
        });
    }
    Ok(())
}

/// How long `count` operations take, one after the other.
fn operations(count: u64, mut operation: impl FnMut() -> anyhow::Result<()>) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    for _ in 0..count {
        operation()?;
    }
    Ok(begun.elapsed())
}

fn in_memory(bench: &mut Bench, tmp: &Path) -> anyhow::Result<()> {
    const NO_ZONE: &str = "there is no zone";
    let folder = tempfile::tempdir_in(tmp)?;
    let store = Store::open(folder.path(), &StoreOptions::default())?;
    let writer = Writer::new(&store, "operations")?;
    let (disk, file) = (writer.disk.clone(), writer.file);
    let now = access();
    bench.mean("zone operation", "stat", |n| {
        operations(n, || {
            disk.zone(ZONE, |z| z.stat(now, file)).context(NO_ZONE)??;
            Ok(())
        })
    });
    bench.mean("zone operation", "read of 64 bytes", |n| {
        let mut into = [0; 64];
        operations(n, || {
            disk.zone(ZONE, |z| z.read(now, file, 512, &mut into)).context(NO_ZONE)??;
            Ok(())
        })
    });
    bench.mean("zone operation", "write of 13 bytes", |n| {
        operations(n, || {
            disk.zone(ZONE, |z| z.write(now, file, 1024, WRITTEN)).context(NO_ZONE)??;
            Ok(())
        })
    });
    let options = OpenOptions { create: true, exclusive: true, write: true, ..OpenOptions::default() };
    let mut number = 0u64;
    bench.mean("zone operation", "create and close a file", |n| {
        let mut took = Duration::ZERO;
        let mut left = n;
        while left > 0 {
            let some = left.min(FILES - number % FILES);
            took += operations(some, || {
                let name = format!("created-{}", number % FILES);
                number += 1;
                let zone = disk.zone(ZONE, |z| {
                    let made = z.open(now, Inode::ROOT, name.as_bytes(), options)?;
                    z.close(made)
                });
                Ok(zone.context(NO_ZONE)??)
            })?;
            left -= some;
            if number.is_multiple_of(FILES) {
                for old in 0..FILES {
                    let name = format!("created-{old}");
                    disk.zone(ZONE, |z| z.unlink(now, Inode::ROOT, name.as_bytes())).context(NO_ZONE)??;
                }
                zone_vfs::store::wait(|done| disk.sync(done))?;
            }
        }
        Ok(took)
    });
    Ok(())
}

fn main() -> anyhow::Result<()> {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let mut bench = Bench::new("zone_store", tmp);
    in_memory(&mut bench, tmp)?;
    beside_bare_flushes(&mut bench, tmp)?;
    durable(&mut bench, tmp, DeviceKind::Uring)?;
    durable(&mut bench, tmp, DeviceKind::Blocking)?;
    flooded(&mut bench, tmp)?;
    let files = if bench.is_measuring() { 1_000_000 } else { 2_000 };
    million(&mut bench, tmp, files)?;
    bench.finish(&[])
}
