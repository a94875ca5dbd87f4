//! Exports.

use std::io::Read;
use std::sync::{Arc, OnceLock};

use uuid::Uuid;

use super::{Input, records, use_all};
use crate::id::{AgentId, Turn};
use crate::store::{
    Arrival, ArrivedAgent, ArrivedGeneration, Disk, Exporting, NewArrival, Store, StoreError, StreamFile,
    ZoneSpec,
};

/// Bytes before the first item.
pub(super) const HEADER: usize = 64;
/// Bytes after the last.
pub(super) const END: usize = 40;

/// Takes in an export of these bytes: as they are, as items with a true header and a true digest, or as changes of
/// the items of a sound one. What is taken in is sound, and goes on to another store; of what is refused nothing is there.
pub fn exports(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let export = match input.below(3) {
        0 => input.rest().to_vec(),
        1 => signed(input.rest()),
        _ => signed(&changed(&mut input)),
    };
    let store = store();
    match import(&store, &export, 2) {
        Err(_) => assert_eq!(store.agents().expect("agents").len(), 1, "an agent of a refused export"),
        Ok(disk) => {
            let report = store.scrub(false, &mut |_| {}).expect("what was taken in reads");
            assert_eq!(report.findings, 0, "what was taken in is damaged");
            let again = export_of(&store, &disk);
            import(&store, &again, 3).expect("what was taken in goes on");
            for zone in 0..disk.zones().len() as u16 {
                disk.zone(zone, use_all);
            }
            disk.abandon().expect("no commit is under way");
        }
    }
}

/// A store that has an agent already.
fn store() -> Store {
    let (device, ..) = records::base();
    Store::on_device(Arc::new(device.killed()), &records::options()).expect("the base opens")
}

/// An export of the agent that is in [`store`].
pub(super) fn sound() -> &'static [u8] {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let store = store();
        let (_, id) = store.agents().expect("agents")[0];
        export_of(&store, &store.disk(id).expect("the agent"))
    })
}

fn export_of(store: &Store, disk: &Arc<Disk>) -> Vec<u8> {
    let mut to = Vec::new();
    let content = b"a file";
    let file = || StreamFile {
        name: "file".into(),
        len: content.len() as u64,
        hash: *blake3::hash(content).as_bytes(),
        open: Box::new(|| Ok(Box::new(&content[..]) as Box<dyn Read>)),
    };
    let mut exporting = Exporting {
        begin: &mut |_| Ok((b"about".to_vec(), vec![file()])),
        generation: &mut |_, about| Ok(about.to_vec()),
        is_move: false,
    };
    store.export(disk, &mut to, &mut exporting).expect("what is sound can be exported");
    to
}

fn import(store: &Store, export: &[u8], number: u128) -> Result<Arc<Disk>, StoreError> {
    store.import(&mut &*export, &mut Taking(number))
}

/// As `docs/format-export.md` has it.
fn signed(items: &[u8]) -> Vec<u8> {
    let mut bytes = [&sound()[..HEADER], items].concat();
    let digest = blake3::hash(&bytes);
    bytes.extend_from_slice(digest.as_bytes());
    bytes.extend_from_slice(b"dormxprt");
    bytes
}

/// The items of a sound export, some bytes of which are changed, copied or left out.
fn changed(input: &mut Input) -> Vec<u8> {
    let mut bytes = sound()[HEADER..sound().len() - END].to_vec();
    while !input.is_empty() {
        let at = usize::from(input.u16()) % bytes.len().max(1);
        match input.below(4) {
            0 => {
                let end = bytes.len().min(at + input.below(100));
                bytes.drain(at..end);
            }
            1 => {
                let from = usize::from(input.u16()) % bytes.len().max(1);
                let copied = bytes[from..bytes.len().min(from + 100)].to_vec();
                bytes.splice(at..at, copied);
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = input.byte();
                }
            }
        }
    }
    bytes
}

/// Takes any agent in, as the one of this number; shared zones there are none.
struct Taking(u128);

impl Arrival for Taking {
    fn file(&mut self, _: &str, _: u64, content: &mut dyn Read) -> std::io::Result<()> {
        std::io::copy(content, &mut std::io::sink()).map(drop)
    }

    fn agent(&mut self, agent: &ArrivedAgent) -> Result<NewArrival, StoreError> {
        let zones = agent.zones.iter().map(|zone| match zone.shared {
            Some(_) => Err(StoreError::Export("mounts a zone that there is not".into())),
            None => Ok(ZoneSpec {
                name: zone.name.clone(),
                mount: zone.mount.clone(),
                kind: zone.kind,
                quota: zone.quota,
                shared: None,
            }),
        });
        Ok(NewArrival {
            id: AgentId(Uuid::from_u128(self.0)),
            name: format!("came {}", self.0),
            about: agent.about.clone(),
            zones: zones.collect::<Result<_, _>>()?,
        })
    }

    fn turn(&mut self, _: Turn, _: &[u8], _: Option<&[u8]>) -> Result<(), StoreError> {
        Ok(())
    }

    fn fact(&mut self, _: Turn, _: &[u8]) -> Result<(), StoreError> {
        Ok(())
    }

    fn generation(&mut self, generation: &ArrivedGeneration<'_>) -> Result<Vec<u8>, StoreError> {
        Ok(generation.about.to_vec())
    }
}
