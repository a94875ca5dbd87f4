//! Where frames lie is a file that can be deleted at any time.

use super::*;
use crate::device::DeviceKind;
use crate::segment::INDEX_FILE;

#[test]
fn a_store_whose_index_is_deleted_or_spoilt_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions { device: DeviceKind::Blocking, ..options() };
    let index = folder.path().join(INDEX_FILE);
    let store = Store::open(folder.path(), &options).unwrap();
    for name in ["a", "b"] {
        let disk = create(&store, name);
        for turn in 0..12 {
            disk.begin(TurnStyle::Transaction, b"").unwrap();
            write(&disk, WORKSPACE, "large", &content(turn, 200_000));
            write(&disk, SEMANTIC, "fact", &content(turn, 30));
            end(&disk, b"").unwrap();
            // closes the segment that is written
            store.shared().unwrap().segments.watch(true).unwrap();
            store.shared().unwrap().segments.unwatch();
        }
    }
    let before = everything(&store);
    store.checkpoint().unwrap();
    store.close().unwrap();
    assert!(index.is_file());
    for spoil in 0..4 {
        match spoil {
            0 => {}
            1 => std::fs::remove_file(&index).unwrap(),
            2 => {
                let bytes = std::fs::read(&index).unwrap();
                std::fs::write(&index, &bytes[..bytes.len() / 2]).unwrap();
            }
            _ => std::fs::write(&index, content(1, 9_000)).unwrap(),
        }
        let store = Store::open(folder.path(), &options).unwrap();
        let segments = store.shared().unwrap().segments.clone();
        let all = segments.stats().segments;
        assert!(all > 5);
        assert_eq!(
            u64::from(segments.looked_at()) < all / 2,
            spoil == 0,
            "{} of {all}",
            segments.looked_at()
        );
        assert_eq!(everything(&store), before);
        assert!(store.scrub(false, &mut |_| {}).unwrap().is_sound());
        assert_eq!(store.reap(&ReapPolicy::default(), false).unwrap().damage, [""; 0]);
        assert_eq!(everything(&store), before);
        drop(segments);
        store.close().unwrap();
        assert!(index.is_file(), "it is made again");
    }
}
