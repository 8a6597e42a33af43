//! The objects that are part of an OST's sums by owner: one bit for each.
//!
//! After a start the OST counts its objects in the background, while clients change them. An
//! object is counted by the one of both that comes first.

use rustc_hash::FxHashMap;
use sheen_wire::Fid;

/// Objects of a page.
const PAGE_OBJECTS: u32 = 512;

/// A part of a sequence: sequence, version, number of the page.
type Place = (u64, u32, u32);

/// A set of objects. Objects with near ids take a bit, others up to a page.
#[derive(Debug, Default)]
pub struct CountedObjects(FxHashMap<Place, [u64; 8]>);

fn place(object: Fid) -> (Place, usize, u64) {
    let at = object.oid % PAGE_OBJECTS;
    ((object.seq, object.ver, object.oid / PAGE_OBJECTS), (at / u64::BITS) as usize, 1 << (at % u64::BITS))
}

impl CountedObjects {
    /// Whether an object is counted.
    pub fn has(&self, object: Fid) -> bool {
        let (page, word, bit) = place(object);
        self.0.get(&page).is_some_and(|page| page[word] & bit != 0)
    }

    /// Adds an object. Returns whether it was not there.
    pub fn insert(&mut self, object: Fid) -> bool {
        let (page, word, bit) = place(object);
        let page = self.0.entry(page).or_default();
        let is_new = page[word] & bit == 0;
        page[word] |= bit;
        is_new
    }

    /// Removes an object. Returns whether it was there.
    pub fn remove(&mut self, object: Fid) -> bool {
        let (place, word, bit) = place(object);
        let Some(page) = self.0.get_mut(&place) else { return false };
        let was_there = page[word] & bit != 0;
        page[word] &= !bit;
        if page.iter().all(|word| *word == 0) {
            self.0.remove(&place);
        }
        was_there
    }

    /// Removes all objects that `other` does not have.
    pub fn retain_common(&mut self, other: &CountedObjects) {
        self.0.retain(|place, page| {
            let theirs = other.0.get(place).copied().unwrap_or_default();
            page.iter_mut().zip(theirs).for_each(|(word, their)| *word &= their);
            page.iter().any(|word| *word != 0)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_objects_are_a_set() {
        let mut counted = CountedObjects::default();
        let objects: Vec<Fid> = [(1, 0, 0), (1, 1, 0), (1, 63, 0), (1, 64, 0), (1, 512, 0), (2, 1, 0), (1, 1, 9)]
            .map(|(seq, oid, ver)| Fid { seq, oid, ver })
            .to_vec();
        for (n, object) in objects.iter().enumerate() {
            assert!(!counted.has(*object) && counted.insert(*object) && !counted.insert(*object));
            assert!(objects[..=n].iter().all(|object| counted.has(*object)));
        }
        for (n, object) in objects.iter().enumerate() {
            assert!(counted.remove(*object) && !counted.remove(*object));
            assert!(objects[n + 1..].iter().all(|object| counted.has(*object)));
        }
        assert!(counted.0.is_empty(), "it takes no memory any more");
    }
}
