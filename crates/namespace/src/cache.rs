//! A cache bounded by bytes, which drops the least recently used items.
//!
//! Only [`Cache::trim`] drops items, and the engine calls it between operations. An item that an
//! operation has read stays in the cache until the operation ends. Reading it again needs no store,
//! so it cannot fail after the operation began to change things.

use std::hash::Hash;

use lru::LruCache;
use rustc_hash::FxBuildHasher;

pub(crate) struct Cache<K, V> {
    map: LruCache<K, (V, usize), FxBuildHasher>,
    bytes: usize,
    bytes_max: usize,
}

impl<K: Hash + Eq, V> Cache<K, V> {
    pub(crate) fn new(bytes_max: usize) -> Cache<K, V> {
        Cache { map: LruCache::unbounded_with_hasher(FxBuildHasher), bytes: 0, bytes_max }
    }

    pub(crate) fn get(&mut self, key: &K) -> Option<&V> {
        self.map.get(key).map(|(v, _)| v)
    }

    pub(crate) fn put(&mut self, key: K, value: V, weight: usize) {
        self.bytes += weight;
        if let Some((_, old)) = self.map.put(key, (value, weight)) {
            self.bytes -= old;
        }
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some((_, old)) = self.map.pop(key) {
            self.bytes -= old;
        }
    }

    /// Drops the least recently used items until the cache is within its bound.
    pub(crate) fn trim(&mut self) {
        while self.bytes > self.bytes_max
            && let Some((_, (_, weight))) = self.map.pop_lru()
        {
            self.bytes -= weight;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_trim_keeps_bound_and_recently_used_items() {
        let mut cache = Cache::new(100);
        for i in 0..10 {
            cache.put(i, i, 30);
        }
        assert!(cache.get(&0).is_some(), "trimmed only when asked");
        cache.trim();
        assert_eq!((cache.map.len(), cache.bytes), (3, 90));
        assert!(cache.get(&0).is_some() && cache.get(&9).is_some() && cache.get(&1).is_none());
        cache.put(9, 9, 50);
        cache.remove(&0);
        assert_eq!(cache.bytes, 80);
    }
}
