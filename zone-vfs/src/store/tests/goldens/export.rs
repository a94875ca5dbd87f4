//! An agent that was exported, with all that an export has.

use super::super::export::{Taking, export_of};
use super::*;

const FORMATS: &[&str] = &["export-v1", "export-v2"];
const FILE: &str = "scribe.export";

fn write_export(to: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &golden_options()).unwrap();
    fill(&store);
    let scribe = find(&store, "scribe");
    scribe.begin(TurnStyle::Transaction, b"fourth event").unwrap();
    // in pieces
    write(&scribe, SEMANTIC, "atlas", &content(3, 90_000));
    end(&scribe, &content(4, 20_000)).unwrap();
    std::fs::create_dir_all(to).unwrap();
    std::fs::write(to.join(FILE), export_of(&store, &scribe)).unwrap();
}

fn check_export(from: &Path) {
    let bytes = std::fs::read(from.join(FILE)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &golden_options()).unwrap();
    let mut taking = Taking::default();
    let scribe = see(&store.import(&mut &bytes[..], &mut taking).unwrap());
    assert_eq!(taking.files["component"], b"its code");
    let files = |zone: u16, name: &str| scribe.zones[usize::from(zone)].get(name).map(|it| it.to_vec());
    assert_eq!(files(EPISODIC, "diary").unwrap(), b"It rained.\n");
    assert_eq!(files(SEMANTIC, "weather").unwrap(), b"rain");
    assert_eq!(files(SEMANTIC, "atlas").unwrap(), content(3, 90_000));
    assert_eq!(files(WORKSPACE, "large").unwrap(), b"sixteen bytes...".repeat(6_000));
    assert_eq!(scribe.history.len(), 4);
    assert_eq!(scribe.history[3].outcome, Ok(content(4, 20_000)));
    assert_eq!(*scribe.generations[&2].1[usize::from(SEMANTIC)]["weather"], b"hail");
    let first = attachments::digest(&attachments::sparse(1, 2));
    assert_eq!(scribe.attached, [(1, first), (4, first), (5, first)].into());
    assert_eq!(scribe.head, 6);
    assert_eq!(store.scrub(false, &mut |_| {}).unwrap().findings, 0);
}

#[test]
fn exports_of_every_format_are_imported() {
    for version in FORMATS {
        check_export(&goldens().join(version));
    }
}

#[test]
fn an_export_as_it_is_written_now_is_imported() {
    let (_kept, path) = written("export");
    write_export(&path);
    check_export(&path);
}
