//! A zone need not fit into memory.

use super::*;
use crate::device::simulated::Rng;

const FILES: u64 = 3_000;

fn name(file: u64) -> String {
    format!("{:016x}-{file}", file.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn nodes(disk: &Disk) -> usize {
    let mut inner = disk.lock();
    let state = &mut inner.state;
    let working =
        state.zones.iter_mut().map(|zone| zone.working.snapshot().unwrap().tree().nodes_in_memory());
    let working: usize = working.sum();
    let heads: usize = state.zones.iter().map(|zone| zone.head.tree().nodes_in_memory()).sum();
    let roots = state.generations.values().flat_map(|it| &it.roots);
    working + heads + roots.map(|root| root.tree().nodes_in_memory()).sum::<usize>()
}

#[test]
fn a_zone_that_is_larger_than_its_share_of_memory_works() {
    let device = Simulated::new(1);
    let open = |nodes: usize| {
        let options = StoreOptions { cache: 64 << 10, nodes, ..options() };
        Store::on_device(Arc::new(device.clone()), &options).unwrap()
    };
    let store = open(usize::MAX);
    let a = create(&store, "a");
    a.zone(WORKSPACE, |zone| {
        for file in 0..FILES {
            write_zone(zone, &name(file), &content(file, 300)).unwrap();
        }
    });
    sync(&a).unwrap();
    store.checkpoint().unwrap();
    let whole = digests(&store, &a);
    let roomy = nodes(&a);
    drop((store, a));

    let store = open(64 << 10);
    let a = find(&store, "a");
    let mut rng = Rng::new(7);
    let mut model: BTreeMap<u64, u64> = (0..FILES).map(|file| (file, file)).collect();
    let mut most = 0;
    for step in 0..2_000u64 {
        let file = rng.below(FILES);
        match step % 5 {
            0 => {
                model.insert(file, step + FILES);
                a.zone(WORKSPACE, |zone| write_zone(zone, &name(file), &content(step + FILES, 300)))
                    .unwrap()
                    .unwrap();
            }
            1 if step % 50 == 1 => {
                if step % 100 == 1 {
                    sync(&a).unwrap();
                } else {
                    mark(&a).unwrap();
                }
            }
            _ => {
                let found = a.zone(WORKSPACE, |zone| {
                    let inode = zone.open(access(), Inode::ROOT, name(file).as_bytes(), WRITE).unwrap();
                    let mut bytes = vec![0; 300];
                    zone.read(access(), inode, 0, &mut bytes).unwrap();
                    zone.close(inode).unwrap();
                    bytes
                });
                assert_eq!(found.unwrap(), content(model[&file], 300), "step {step}");
            }
        }
        if step % 20 == 0 {
            most = most.max(nodes(&a));
        }
    }
    assert!(roomy > 100, "{roomy}");
    assert!(most < roomy / 2, "{most} of {roomy} nodes in memory");
    end_all(&store, &a);
    // back as it was, and the content is the same
    a.zone(WORKSPACE, |zone| {
        for (file, seed) in &model {
            if file != seed {
                write_zone(zone, &name(*file), &content(*file, 300)).unwrap();
            }
        }
    });
    sync(&a).unwrap();
    let again = digests(&store, &a);
    assert_eq!(again[usize::from(EPISODIC)], whole[usize::from(EPISODIC)]);
    let files = a.zone(WORKSPACE, read_zone).unwrap();
    assert_eq!(files.len() as u64, FILES);
    assert!((0..FILES).all(|file| files[&name(file)][..] == content(file, 300)));
}

fn end_all(store: &Store, disk: &Arc<Disk>) {
    let before = see(disk);
    store.checkpoint().unwrap();
    store.reap(&ReapPolicy::default(), false).unwrap();
    assert_eq!(see(disk), before);
}
