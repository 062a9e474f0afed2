//! What [`Publisher`](super::publish::Publisher) remembers of the identities of one window: keys of bytes, each with what is
//! known of it.
//!
//! A view that takes late updates remembers every key of every window until it expires, millions of them. So the keys'
//! bytes lie one after the other in one buffer, and a window is forgotten at once instead of key by key. It knows nothing of
//! versions.

use std::hash::{BuildHasher, Hash, Hasher};
use std::ops::Range;

use datafusion::common::hash_utils::{QualityRandomState, RandomState};
use hashbrown::HashTable;

/// A value per key.
#[derive(Debug)]
pub(super) struct Identities<T> {
    table: HashTable<Entry<T>>,
    /// Keys one after the other.
    keys: Vec<u8>,
}

#[derive(Debug)]
struct Entry<T> {
    hash: u64,
    key: Range<usize>,
    value: T,
}

impl<T> Default for Identities<T> {
    fn default() -> Self {
        Self { table: HashTable::new(), keys: Vec::new() }
    }
}

impl<T> Identities<T> {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// What is known of `key`.
    pub fn get(&self, key: &[u8]) -> Option<&T> {
        let hash = hash_of(key);
        let found = self.table.find(hash, |entry| entry.hash == hash && self.keys[entry.key.clone()] == *key);
        found.map(|entry| &entry.value)
    }

    /// What is known of `key`, to be changed.
    pub fn get_mut(&mut self, key: &[u8]) -> Option<&mut T> {
        let (hash, keys) = (hash_of(key), &self.keys);
        let found = self.table.find_mut(hash, |entry| entry.hash == hash && keys[entry.key.clone()] == *key);
        found.map(|entry| &mut entry.value)
    }

    /// Adds `key`, which is not there.
    pub fn insert_new(&mut self, key: &[u8], value: T) -> &mut T {
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        let entry = Entry { hash: hash_of(key), key: start..self.keys.len(), value };
        &mut self.table.insert_unique(entry.hash, entry, |entry| entry.hash).into_mut().value
    }

    /// What is known of each key, in no order.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.table.iter().map(|entry| &entry.value)
    }
}

fn hash_of(key: &[u8]) -> u64 {
    RandomState::with_seed(0x4964_656e).hash_one(Bytes(key))
}

/// Bytes whose length says nothing that their ends do not.
struct Bytes<'a>(&'a [u8]);

impl Hash for Bytes<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0);
    }
}

/// 128 bits of a value. It is only ever compared with the one before it of the same key, and kept nowhere.
pub(super) fn fingerprint(value: &[u8]) -> [u64; 2] {
    [0x5661_6c75, 0x6546_696e].map(|seed| QualityRandomState::with_seed(seed).hash_one(Bytes(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_their_bytes_and_keep_their_values() {
        let mut identities = Identities::default();
        for i in 0..10_000u64 {
            assert_eq!(identities.get(&i.to_be_bytes()), None);
            identities.insert_new(&i.to_be_bytes(), i);
        }
        identities.insert_new(&[], 77);
        *identities.get_mut(&5u64.to_be_bytes()).unwrap() = 55;
        assert_eq!(identities.get(&5u64.to_be_bytes()), Some(&55));
        assert_eq!(identities.get(&9_999u64.to_be_bytes()), Some(&9_999));
        assert_eq!(identities.get(&[]), Some(&77));
        assert_eq!(identities.get(&[0]), None);
        assert_eq!(identities.len(), 10_001);
        assert_eq!(identities.values().sum::<u64>(), 9_999 * 10_000 / 2 + 50 + 77);
    }

    #[test]
    fn fingerprints_tell_values_apart() {
        let mut seen = std::collections::HashSet::new();
        for i in 0..100_000u64 {
            assert!(seen.insert(fingerprint(&i.to_be_bytes())));
        }
        assert_ne!(fingerprint(&[0; 3]), fingerprint(&[0; 4]));
        assert_ne!(fingerprint(&[0; 16]), fingerprint(&[0; 17]));
    }
}
