//! Slots that stand ready, ahead of those who will ask for them.

use std::sync::Arc;

use uuid::Uuid;
use wasmtime::component::{Component, Linker};

use super::super::Live;
use super::super::warm::{Budget, Taken, Warm};
use crate::code::SlotEngine;
use crate::component::{Variant, rewrite};
use crate::image::{DifferentPage, FlatName, Image, ImageStore, PAGE};
use crate::wasi::GuestState;

/// Memory enough to be mapped, and a global.
const COMPONENT: &str = r#"(component
  (core module $m
    (memory 4)
    (global (mut i32) (i32.const 7))
    (data (i32.const 0) "begun"))
  (core instance (instantiate $m)))"#;

struct Bed {
    _folder: tempfile::TempDir,
    images: ImageStore,
    restore: SlotEngine,
}

impl Bed {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let images = ImageStore::open(folder.path()).unwrap();
        Self { _folder: folder, images, restore: SlotEngine::new(Variant::Restore, Arc::default()).unwrap() }
    }

    async fn instance(&self, engine: &SlotEngine, variant: Variant) -> Live {
        let rewritten = rewrite(&wat::parse_str(COMPONENT).unwrap(), variant).unwrap();
        let component = Component::new(&engine.engine, &rewritten.wasm).unwrap();
        let pre = Linker::new(&engine.engine).instantiate_pre(&component).unwrap();
        Live::new(&pre, engine, &rewritten.accessors, GuestState::default()).await.unwrap()
    }

    async fn slot(&self) -> Live {
        self.instance(&self.restore, Variant::Restore).await
    }

    /// The image of generation `number`, whose page of that number has something.
    async fn image(&self, number: u64) -> Image {
        let boot = SlotEngine::new(Variant::Boot, Arc::default()).unwrap();
        let mut live = self.instance(&boot, Variant::Boot).await;
        live.save().await.unwrap();
        // SAFETY: the instance is owned here, and no call of it is under way.
        unsafe { (*live.memories[0].page_mut(1 + number as usize))[0] = b'x' };
        let name = FlatName::Generation(Uuid::nil(), number);
        // SAFETY: the instance is owned here, and no call of it is under way.
        unsafe { self.images.capture_flat(&live.memories, &name).unwrap() }
    }
}

fn budget(slots: usize) -> Arc<Budget> {
    Arc::new(Budget::new(slots))
}

/// Makes what is wanted; how many that were.
async fn fill(warm: &Warm, bed: &Bed, image: &Image) -> usize {
    let mut made = 0;
    while let Some(share) = warm.next() {
        let mut live = bed.slot().await;
        live.make_ready(image).await.unwrap();
        warm.put_ahead(live, share);
        made += 1;
    }
    made
}

#[tokio::test]
async fn resumes_that_follow_each_other_find_more_and_more() {
    let bed = Bed::new();
    let image = bed.image(0).await;
    let (all, others) = (budget(10), 3);
    let warm = Warm::new(all.clone());
    let first = warm.take(&image);
    assert!(first.live.is_none() && !first.fill, "one by itself tells nothing");
    let mut made = Vec::new();
    for _ in 0..4 {
        // as many as there are, and one that finds none
        let mut found = 0;
        let wanted = loop {
            match warm.take(&image) {
                Taken { live: Some(_), .. } => found += 1,
                Taken { live: None, fill } => break fill,
            }
        };
        made.push((found, wanted));
        fill(&warm, &bed, &image).await;
    }
    assert_eq!(made.iter().map(|(found, _)| *found).collect::<Vec<_>>(), [0, 1, 2, 4]);
    assert_eq!(warm.ready(&image), 8);
    let other = Warm::new(all);
    for _ in 0..others {
        drop(other.take(&image));
    }
    assert_eq!(fill(&other, &bed, &image).await, 2, "what the budget has left");
    assert!(warm.trim(false), "nobody has been away for long");
    assert_eq!(warm.ready(&image), 8);
    assert!(!warm.trim(true), "memory is short");
    assert_eq!(warm.ready(&image), 0);
    drop((other.take(&image), other.take(&image), other.take(&image)));
    assert!(fill(&other, &bed, &image).await > 2, "the budget is given back");
}

#[tokio::test]
async fn nobody_is_sent_to_make_slots_that_the_budget_does_not_allow() {
    let bed = Bed::new();
    let image = bed.image(0).await;
    for slots in [0, 1] {
        let warm = Warm::new(budget(slots));
        let sent = (0..4).filter(|_| warm.take(&image).fill).count();
        assert_eq!(sent, slots, "with a budget of {slots}");
        assert_eq!(fill(&warm, &bed, &image).await, slots);
        assert_eq!(warm.take(&image).fill, slots > 0, "the one that is taken gives way to another");
    }
}

#[tokio::test]
async fn the_slot_that_is_ready_for_just_this_image_is_taken_first() {
    let bed = Bed::new();
    let (one, other) = (bed.image(0).await, bed.image(1).await);
    let warm = Warm::new(budget(0));
    for image in [&one, &other, &one] {
        let mut live = bed.slot().await;
        live.make_ready(image).await.unwrap();
        warm.order(live);
    }
    warm.order(bed.slot().await);
    assert_eq!(warm.ready(&one), 4, "the one that is not ready is as large");
    let taken = || warm.take(&other).live.unwrap();
    assert!(taken().is_ready_for(&other));
    assert!(!taken().is_ready_for(&other));
    assert_eq!(warm.ready(&one), 2);
    assert!(warm.trim(false), "what was ordered stays");
    assert_eq!(warm.ready(&one), 2);
}

#[tokio::test]
async fn a_slot_that_was_made_ready_for_another_image_holds_nothing_of_it() {
    let bed = Bed::new();
    let (one, other) = (bed.image(0).await, bed.image(1).await);
    for (number, image) in [&one, &other].into_iter().enumerate() {
        let mut live = bed.slot().await;
        live.make_ready(&one).await.unwrap();
        live.restore(image, GuestState::default()).await.unwrap();
        // SAFETY: the instance is owned here, and no call of it is under way.
        let bytes = unsafe { live.memories[0].bytes() };
        assert_eq!((&bytes[..6], bytes.len()), (&b"begun\0"[..], 4 << 16));
        let found: Vec<_> = (6..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        assert_eq!(found, [PAGE * (1 + number)]);
    }
}

#[tokio::test]
async fn memories_are_compared_with_an_image_page_by_page() {
    let bed = Bed::new();
    let (one, other) = (bed.image(0).await, bed.image(1).await);
    let mut live = bed.slot().await;
    live.restore(&one, GuestState::default()).await.unwrap();
    // SAFETY: the instance is owned here, and no call of it is under way.
    let differs = |live: &Live, image: &Image| unsafe { image.first_difference(&live.memories).unwrap() };
    assert_eq!(differs(&live, &one), None);
    let at = |page: u64| Some(DifferentPage { memory: 0, offset: page * PAGE as u64 });
    assert_eq!(differs(&live, &other), at(1));
    // SAFETY: the same.
    unsafe { (*live.memories[0].page_mut(63))[PAGE - 1] = 1 };
    assert_eq!(differs(&live, &one), at(63));
}
