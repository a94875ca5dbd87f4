//! Plain frames that were read lately.

use std::collections::HashMap;
use std::sync::Arc;

use crate::id::Hash;

/// Two halves: what is used moves to the young one; when that is full, the old one is forgotten
/// and the young one becomes old. Constant time, and within its limit of bytes.
pub(super) struct Cache {
    young: HashMap<Hash, Arc<[u8]>>,
    young_bytes: usize,
    old: HashMap<Hash, Arc<[u8]>>,
    half: usize,
}

impl Cache {
    pub fn new(limit: usize) -> Self {
        Self { young: HashMap::new(), young_bytes: 0, old: HashMap::new(), half: limit / 2 }
    }

    pub fn get(&mut self, hash: &Hash) -> Option<Arc<[u8]>> {
        if let Some(plain) = self.young.get(hash) {
            return Some(plain.clone());
        }
        let plain = self.old.remove(hash)?;
        self.put(*hash, plain.clone());
        Some(plain)
    }

    pub fn put(&mut self, hash: Hash, plain: Arc<[u8]>) {
        if plain.len() > self.half || self.young.contains_key(&hash) {
            return;
        }
        if self.young_bytes + plain.len() > self.half {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
        self.young_bytes += plain.len();
        self.young.insert(hash, plain);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_limit_holds() {
        let mut cache = Cache::new(1000);
        let hash = |n: u32| Hash(*blake3::hash(&n.to_le_bytes()).as_bytes());
        for n in 0..1000 {
            cache.put(hash(n), vec![0; 100].into());
            assert!(cache.get(&hash(0)).is_some(), "used all the time");
            let held: usize = cache.young.values().chain(cache.old.values()).map(|it| it.len()).sum();
            assert!(held <= 1000, "{held}");
        }
        assert!(cache.get(&hash(500)).is_none());
        cache.put(hash(5000), vec![0; 600].into());
        assert!(cache.get(&hash(5000)).is_none(), "too large");
    }
}
