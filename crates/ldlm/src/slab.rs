//! Slab: storage of locks in numbered places, which are reused, and handles, which are not.
//!
//! A handle consists of the place (low [`PLACE_BITS`] bits) and a count that grows with every lock
//! made (the other bits). So it leads to its lock without a search. A stale handle names no lock.
//! Its count recurs after 2^35 locks, which takes nine hours at a million locks per second. No
//! message is delayed for as long.

/// Bits of a handle that name the place: 268 million locks at once, more than fit into a host's
/// memory.
const PLACE_BITS: u32 = 28;

/// The value for "no place".
pub const NIL: u32 = u32::MAX;

/// Returns the handle of the `count`-th lock, at `place`. Never 0.
pub fn handle(place: u32, count: u64) -> u64 {
    1 << 63 | count << PLACE_BITS | u64::from(place)
}

/// Returns the place that a handle names.
pub fn place(handle: u64) -> u32 {
    (handle & ((1 << PLACE_BITS) - 1)) as u32
}

/// Returns the count in a handle: the younger of two handles has the larger count.
pub fn count(handle: u64) -> u64 {
    handle >> PLACE_BITS
}

/// Items at numbered places.
#[derive(Debug)]
pub struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    /// Whether handles can name `more` additional items.
    pub fn room(&self, more: usize) -> bool {
        self.len() + more <= 1 << PLACE_BITS
    }

    /// Returns the place that [`Slab::put`] will use.
    pub fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.items.len() as u32)
    }

    /// Puts `item` at the place that [`Slab::next`] returned.
    pub fn put(&mut self, item: T) -> u32 {
        match self.free.pop() {
            Some(place) => {
                self.items[place as usize] = item;
                place
            }
            None => {
                self.items.push(item);
                (self.items.len() - 1) as u32
            }
        }
    }

    /// Frees the place. Its item stays until the place is used again: the caller marks the item as
    /// dead.
    pub fn free(&mut self, place: u32) {
        self.free.push(place);
    }

    /// Returns the item at a place, dead or alive.
    pub fn get(&self, place: u32) -> Option<&T> {
        self.items.get(place as usize)
    }

    /// Number of items alive.
    pub fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, place: u32) -> &T {
        &self.items[place as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, place: u32) -> &mut T {
        &mut self.items[place as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slab_reuses_places_but_not_handles() {
        let mut slab = Slab::new();
        assert_eq!((slab.next(), slab.put('a'), slab.next(), slab.put('b')), (0, 0, 1, 1));
        slab.free(0);
        assert_eq!((slab.len(), slab.next(), slab.put('c')), (1, 0, 0));
        assert_eq!((slab[0], slab[1], slab.get(2)), ('c', 'b', None));
        let (first, third) = (handle(0, 1), handle(0, 3));
        assert!(first != third && place(first) == 0 && place(third) == 0);
    }
}
