//! Which memories are of which instance.
//!
//! wasmtime asks for memories while an instance is made, in the thread that polls the making: so whoever polls it says
//! for whom. Instances are made beside each other, however long the code that one runs takes.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;

use super::slot::SlotMemory;

thread_local! {
    /// The memories of the instance that this thread is making.
    static MADE: RefCell<Option<Vec<Arc<SlotMemory>>>> = const { RefCell::new(None) };
}

/// Notes a new memory.
pub(super) fn note(memory: &Arc<SlotMemory>) {
    MADE.with_borrow_mut(|made| made.as_mut().map(|made| made.push(memory.clone())));
}

/// Makes an instance, and gives the memories that were made for it, in the order of their creation.
pub(crate) async fn with_memories<T>(making: impl Future<Output = T>) -> (T, Vec<Arc<SlotMemory>>) {
    let mut making = pin!(making);
    let mut made = Some(Vec::new());
    let instance = poll_fn(|context| {
        let others = MADE.replace(made.take());
        let polled = making.as_mut().poll(context);
        made = MADE.replace(others);
        polled
    });
    let instance = instance.await;
    (instance, made.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use wasmtime::{LinearMemory, MemoryCreator, MemoryType};

    use super::*;
    use crate::image::{Creator, Slots};

    fn memory(slots: &Arc<Slots>, size: usize) -> Box<dyn LinearMemory> {
        let creator = Creator(slots.clone());
        creator.new_memory(MemoryType::new(1, Some(2)), size, None, Some(2 << 16), 1 << 16).unwrap()
    }

    #[tokio::test]
    async fn instances_that_are_made_beside_each_other_get_their_own() {
        let slots = Arc::new(Slots::default());
        let make = |size: usize| {
            let slots = slots.clone();
            with_memories(async move {
                let first = memory(&slots, size);
                tokio::task::yield_now().await;
                [first, memory(&slots, 2 * size)]
            })
        };
        let one = 1 << 16;
        let _nobodys = memory(&slots, one);
        let ((first, of_first), (second, of_second)) = tokio::join!(make(one / 2), make(one));
        for (memories, told, size) in [(&first, &of_first, one / 2), (&second, &of_second, one)] {
            let sizes: Vec<usize> = told.iter().map(|it| it.len()).collect();
            assert_eq!(sizes, [size, 2 * size]);
            assert_eq!(memories.each_ref().map(|it| it.byte_size()), [size, 2 * size]);
        }
    }
}
