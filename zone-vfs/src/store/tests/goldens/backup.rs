//! Backups that were written, the second since the first.

use std::io::Cursor;

use super::*;

const FORMATS: &[&str] = &["backup-v1", "backup-v2"];
const PARTS: [&str; 2] = ["first.backup", "second.backup"];
const IMAGE: (&str, &[u8]) = ("images/one", b"what the embedder keeps beside");

fn back_up(store: &Store, since: Option<&[u8]>) -> Vec<u8> {
    let mut to = Vec::new();
    let mut files = |_: &BackedUp<'_>| {
        let (name, content) = IMAGE;
        let (len, hash) = (content.len() as u64, *blake3::hash(content).as_bytes());
        let open = Box::new(move || Ok(Box::new(Cursor::new(content)) as Box<dyn std::io::Read>));
        Ok(vec![StreamFile { name: name.into(), len, hash, open }])
    };
    let mut since = since.map(Cursor::new);
    let since = since.as_mut().map(|it| it as &mut dyn ReadSeek);
    let report = store.backup(&mut to, since, &mut files).unwrap();
    assert!(report.damage.is_empty(), "{report:?}");
    to
}

/// Writes both into a folder.
fn write_backups(to: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(folder.path(), &golden_options()).unwrap();
    fill(&store);
    let first = back_up(&store, None);
    let scribe = find(&store, "scribe");
    scribe.begin(TurnStyle::Transaction, b"fourth event").unwrap();
    write(&scribe, WORKSPACE, "later", b"since the first");
    end(&scribe, b"fourth reply").unwrap();
    let second = back_up(&store, Some(&first));
    assert!(second.len() < first.len(), "{} since {}", second.len(), first.len());
    std::fs::create_dir_all(to).unwrap();
    for (name, bytes) in PARTS.iter().zip([first, second]) {
        std::fs::write(to.join(name), bytes).unwrap();
    }
}

/// Restores the first `count` of them.
fn restored(from: &Path, count: usize) -> (tempfile::TempDir, Store) {
    let parts: Vec<_> = PARTS[..count].iter().map(|name| std::fs::read(from.join(name)).unwrap()).collect();
    let mut readers: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let mut readers: Vec<_> = readers.iter_mut().map(|it| it as &mut dyn std::io::Read).collect();
    let folder = tempfile::tempdir().unwrap();
    let mut files = Vec::new();
    let report = Store::restore(folder.path(), &["images"], &mut readers, &mut |name, _, content| {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        files.push((name.to_owned(), bytes));
        Ok(())
    });
    assert_eq!(report.unwrap().files, [IMAGE.0]);
    assert_eq!(files, [(IMAGE.0.to_owned(), IMAGE.1.to_vec())]);
    let store = Store::open(folder.path(), &golden_options()).unwrap();
    (folder, store)
}

fn check_backups(from: &Path) {
    let (_folder, store) = restored(from, 1);
    check(&store);
    let (_folder, store) = restored(from, 2);
    let scribe = find(&store, "scribe");
    assert_eq!(read(&scribe, WORKSPACE, "later").unwrap(), b"since the first");
    assert_eq!(scribe.last_turn_record().unwrap().turn.0, 4);
    assert_eq!(store.scrub(false, &mut |_| {}).unwrap().findings, 0);
}

#[test]
fn backups_of_every_format_are_restored() {
    for version in FORMATS {
        check_backups(&goldens().join(version));
    }
}

#[test]
fn a_backup_as_it_is_written_now_is_restored() {
    let (_kept, path) = written("backup");
    write_backups(&path);
    check_backups(&path);
}
