//! That all peers do the same: what is measured would otherwise mean nothing.

use std::path::Path;

use crate::peer::Peer;

const PAGE: usize = 4096;

fn content(of: &mut dyn Peer, file: &str) -> Vec<u8> {
    let mut into = b"from before".to_vec();
    of.read(file, &mut into).unwrap();
    assert_eq!(of.size(file).unwrap(), into.len() as u64, "{}: the size of {file}", of.name());
    into
}

fn names(of: &mut dyn Peer, folder: &str) -> Vec<String> {
    let mut names = Vec::new();
    of.list(folder, &mut |name| names.push(name.to_string())).unwrap();
    names
}

fn each(script: impl Fn(&mut dyn Peer)) {
    let place = tempfile::tempdir().unwrap();
    for mut peer in crate::peers(place.path()).unwrap() {
        peer.make_folders(&["a".into(), "b".into()]).unwrap();
        peer.create(&[("a/two".into(), vec![2; PAGE]), ("a/one".into(), vec![1; 100])]).unwrap();
        script(&mut *peer);
    }
}

#[test]
fn files_are_made_read_and_listed_in_order() {
    each(|peer| {
        assert_eq!(content(peer, "a/one"), [1; 100]);
        assert_eq!(content(peer, "a/two"), [2; PAGE]);
        assert_eq!(names(peer, "a"), ["one", "two"], "{}", peer.name());
        assert!(names(peer, "b").is_empty(), "{}", peer.name());
        assert!(peer.read("a/three", &mut Vec::new()).is_err(), "{}", peer.name());
        assert!(peer.size("b/one").is_err(), "{}", peer.name());
    });
}

#[test]
fn files_are_written_over_and_appended_to() {
    each(|peer| {
        peer.append("a/one", &[3; 100]).unwrap();
        peer.append("a/one", &[4; 50]).unwrap();
        assert_eq!(content(peer, "a/one"), [[1; 100].as_slice(), &[3; 100], &[4; 50]].concat());
        peer.overwrite("a/one", &[5; 250]).unwrap();
        peer.overwrite("a/two", &[6; PAGE]).unwrap();
        assert_eq!(content(peer, "a/one"), [5; 250]);
        assert_eq!(content(peer, "a/two"), [6; PAGE]);
    });
}

#[test]
fn files_are_moved_and_removed() {
    each(|peer| {
        let moves = [("a/one".into(), "a/three".into()), ("a/two".into(), "b/two".into())];
        peer.rename(&moves).unwrap();
        assert_eq!((names(peer, "a"), names(peer, "b")), (vec!["three".into()], vec!["two".into()]));
        assert_eq!(content(peer, "a/three"), [1; 100]);
        assert_eq!(content(peer, "b/two"), [2; PAGE]);
        peer.remove(&["b/two".into()]).unwrap();
        assert!(names(peer, "b").is_empty(), "{}", peer.name());
        assert!(peer.read("b/two", &mut Vec::new()).is_err(), "{}", peer.name());
    });
}

#[test]
fn a_snapshot_stays_as_it_was_while_work_goes_on() {
    each(|peer| {
        let mut snapshot = peer.snapshot().unwrap();
        peer.overwrite("a/two", &[7; PAGE]).unwrap();
        peer.remove(&["a/one".into()]).unwrap();
        let mut into = Vec::new();
        snapshot.read("a/two", &mut into).unwrap();
        assert_eq!(into, [2; PAGE], "{}", peer.name());
        snapshot.read("a/one", &mut into).unwrap();
        assert_eq!(into, [1; 100], "{}", peer.name());
        snapshot.discard().unwrap();
        assert_eq!(content(peer, "a/two"), [7; PAGE]);
    });
}

#[test]
fn a_fork_and_what_it_came_from_go_their_own_ways() {
    each(|peer| {
        peer.append("a/one", &[8; 1]).unwrap();
        let mut fork = peer.fork().unwrap();
        fork.overwrite("a/two", &[9; PAGE]).unwrap();
        fork.create(&[("b/new".into(), vec![1])]).unwrap();
        peer.remove(&["a/one".into()]).unwrap();
        assert_eq!(content(&mut *fork, "a/one"), [[1; 100].as_slice(), &[8]].concat());
        assert_eq!(content(&mut *fork, "a/two"), [9; PAGE]);
        assert_eq!(content(peer, "a/two"), [2; PAGE]);
        assert!(names(peer, "b").is_empty(), "{}", peer.name());
        fork.discard().unwrap();
        let mut again = peer.fork().unwrap();
        assert_eq!(names(&mut *again, "a"), ["two"], "{}", peer.name());
        again.discard().unwrap();
    });
}

#[test]
fn every_operation_can_be_done_round_after_round() {
    let place = tempfile::tempdir().unwrap();
    done_twice(place.path());
}

fn done_twice(place: &Path) {
    for mut peer in crate::peers(place).unwrap() {
        crate::operations::plant(&mut *peer).unwrap();
        for operation in &crate::operations::OPERATIONS {
            for number in 0..2 {
                let mut round = crate::operations::Round::new(number);
                let done = (operation.round)(&mut *peer, &mut round);
                assert!(done.is_ok(), "{}, {}: {done:?}", operation.what, peer.name());
                assert!(!round.samples.is_empty(), "{}", operation.what);
            }
        }
    }
}
