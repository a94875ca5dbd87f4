//! Log files and records.

use std::sync::{Arc, OnceLock};

use uuid::Uuid;

use super::{Input, use_all};
use crate::contract::ZoneKind;
use crate::device::simulated::Simulated;
use crate::device::{Caching, Device, DeviceKind};
use crate::id::{AgentId, Epoch, Sequence};
use crate::log::{Log, LogOptions, LogPosition, Record};
use crate::store::{Cause, NewAgent, NewGeneration, Store, StoreOptions, TurnStyle, ZoneSpec, wait};
use crate::zone::Quota;

const BLOCK: usize = 4096;
const SALT: [u8; 16] = [7; 16];

/// Reads a log that holds these bytes: as a whole file, as a file with a true header, as the records
/// of a group with true checksums, or as the body of a record in a store with an agent.
pub fn records(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    match input.below(4) {
        0 => read_log(input.rest().to_vec()),
        1 => read_log([file_header(64 << 10), input.rest().to_vec()].concat()),
        2 => read_log(with_groups(&mut input)),
        _ => read_store(&mut input),
    }
}

fn read_log(mut file: Vec<u8>) {
    file.resize(file.len().next_multiple_of(BLOCK), 0);
    let device = Simulated::new(1);
    device
        .create("log/00000001.log", 0, Caching::Cached)
        .and_then(|it| it.write_at(0, &file))
        .expect("a file");
    let mut first = Vec::new();
    let open = |device: &Simulated, found: &mut Vec<Record>| {
        Log::open(Arc::new(device.clone()), LogOptions::default(), LogPosition::START, &mut |record| {
            found.push(record);
            Ok(())
        })
    };
    if open(&device, &mut first).is_ok() {
        let mut second = Vec::new();
        open(&device, &mut second).expect("what opens once opens again");
        assert!(first == second, "the same log reads in two ways");
    }
}

/// As `docs/format.md` has it.
fn file_header(len: u64) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..8].copy_from_slice(b"dormlogF");
    block[8..12].copy_from_slice(&1u32.to_le_bytes());
    block[16..24].copy_from_slice(&1u64.to_le_bytes());
    block[24..32].copy_from_slice(&1u64.to_le_bytes());
    block[32..48].copy_from_slice(&SALT);
    block[48..56].copy_from_slice(&len.to_le_bytes());
    let sum = crc32fast::hash(&block);
    block[12..16].copy_from_slice(&sum.to_le_bytes());
    block
}

/// A file of groups whose records are of the input's making, with true checksums.
fn with_groups(input: &mut Input) -> Vec<u8> {
    let mut groups = Vec::new();
    let mut number = 1u64;
    while !input.is_empty() && number < 8 {
        let mut records = Vec::new();
        let count = input.below(4) as u32;
        for _ in 0..count {
            let start = records.len();
            let (needs, body_len) = (input.below(3), input.below(60));
            let lies = input.byte() > 240;
            let body = input.take(body_len);
            let len = 48 + needs * 32 + body.len() + if lies { input.below(100) } else { 0 };
            records.extend_from_slice(&(len as u32).to_le_bytes());
            records.extend_from_slice(&[0; 4]);
            records.extend_from_slice(&[input.byte() % 3; 16]);
            records.extend_from_slice(&u64::from(input.byte()).to_le_bytes());
            records.extend_from_slice(&u64::from(input.byte()).to_le_bytes());
            records.extend_from_slice(&(needs as u32).to_le_bytes());
            records.extend_from_slice(&(body.len() as u32).to_le_bytes());
            records.resize(records.len() + needs * 32, 9);
            records.extend_from_slice(body);
            let sum = crc32fast::hash(&records[start + 8..]);
            records[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
        }
        let mut group = b"dormlogG".to_vec();
        group.extend_from_slice(&1u32.to_le_bytes());
        group.extend_from_slice(&[0; 4]);
        group.extend_from_slice(&1u64.to_le_bytes());
        group.extend_from_slice(&number.to_le_bytes());
        group.extend_from_slice(&(records.len() as u32).to_le_bytes());
        group.extend_from_slice(&(count + u32::from(input.byte() > 250)).to_le_bytes());
        group.extend_from_slice(&salted(&group[..40]).to_le_bytes());
        group.extend_from_slice(&records);
        let sum = salted(&group);
        group[12..16].copy_from_slice(&sum.to_le_bytes());
        group.resize(group.len().next_multiple_of(BLOCK), 0);
        groups.extend(group);
        number += 1 + u64::from(input.byte() > 250);
    }
    [file_header((BLOCK + groups.len()) as u64), groups].concat()
}

fn salted(bytes: &[u8]) -> u32 {
    let mut sum = crc32fast::Hasher::new();
    sum.update(&SALT);
    sum.update(bytes);
    sum.finalize()
}

const AGENT: AgentId = AgentId(Uuid::from_u128(1));

pub(super) fn options() -> StoreOptions {
    StoreOptions {
        create: true,
        reserve: 0,
        device: DeviceKind::Best,
        log_file: 64 << 10,
        checkpoint_after: u64::MAX,
        cache: 1 << 20,
        nodes: 1 << 20,
        index: 1 << 20,
    }
}

/// A store with one agent, as it is after some turns.
pub(super) fn base() -> &'static (Simulated, LogPosition, Sequence, Epoch) {
    static BASE: OnceLock<(Simulated, LogPosition, Sequence, Epoch)> = OnceLock::new();
    BASE.get_or_init(|| {
        let device = Simulated::new(1);
        let store = Store::on_device(Arc::new(device.clone()), &options()).expect("a store");
        let kinds = [ZoneKind::Episodic, ZoneKind::Semantic, ZoneKind::Workspace];
        let spec = |kind: ZoneKind| ZoneSpec {
            name: format!("{kind:?}"),
            mount: format!("/{kind:?}"),
            kind,
            quota: Quota::default(),
            shared: None,
        };
        let new = NewAgent { name: "a".into(), about: Vec::new(), generation: Vec::new() };
        let disk = store.create(AGENT, &new, kinds.map(spec).into()).expect("an agent");
        for turn in 0..2u8 {
            disk.begin(TurnStyle::Transaction, b"event").expect("a turn");
            disk.zone(2, |zone| {
                let options = crate::zone::OpenOptions {
                    create: true,
                    write: true,
                    ..crate::zone::OpenOptions::default()
                };
                let access =
                    crate::zone::Access::new(crate::contract::Principal::Agent, crate::id::Timestamp(1));
                let inode = zone.open(access, crate::id::Inode::ROOT, &[b'a' + turn], options)?;
                zone.write(access, inode, 0, &[turn; 700])?;
                zone.close(inode)
            })
            .expect("a zone")
            .expect("a file");
            let generation = NewGeneration { cause: Cause::Turn, about: Vec::new(), on: None };
            wait(|done| disk.end(b"", Some(generation), done)).expect("an end");
        }
        let info = disk.info().expect("an agent");
        let (sequence, epoch) = (info.sequence, info.epoch);
        drop((disk, store));
        let log = crate::superblock::SuperblockFile::peek(&device).expect("a superblock").log;
        (device, log, sequence, epoch)
    })
}

/// Records whose bodies are of the input's making, behind those of a sound store.
fn read_store(input: &mut Input) {
    let (device, from, sequence, epoch) = base();
    let device = device.killed();
    {
        let log = Log::open(Arc::new(device.clone()), LogOptions::default(), *from, &mut |_| Ok(()));
        let log = log.expect("the base opens");
        let mut next = *sequence;
        while !input.is_empty() {
            next = next.next();
            let len = usize::from(input.u16() % 4_000);
            let agent = if input.byte() > 250 { AgentId(Uuid::from_u128(2)) } else { AGENT };
            let body = [&[1], input.take(len)].concat();
            let record = Record { agent, epoch: *epoch, sequence: next, needs: Vec::new(), body };
            log.commit(record).expect("a commit");
        }
    }
    let Ok(store) = Store::on_device(Arc::new(device), &options()) else { return };
    for (_, id) in store.agents().expect("agents") {
        let Ok(disk) = store.disk(id) else { continue };
        let _ = disk.info();
        for generation in disk.generations() {
            for zone in 0..3 {
                if let Ok(mut zone) = disk.zone_at(generation.number, zone) {
                    use_all(&mut zone);
                }
            }
        }
        for zone in 0..3 {
            disk.zone(zone, use_all);
        }
        let _ = wait(|done| disk.sync(done));
    }
    let _ = store.checkpoint();
}
