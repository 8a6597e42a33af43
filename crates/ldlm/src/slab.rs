//! Where locks lie: numbered places that are used again, and handles that are not.
//!
//! A handle is the place (low [`PLACE_BITS`] bits) and a count that goes up with every lock made
//! (the others). So it leads to its lock without a search, and a stale one leads nowhere: its count
//! returns after 2^35 locks, which takes nine hours at a million a second, while a message that old
//! is long gone.

/// Bits of a handle that name the place: 268 million locks at once, more than the memory of a host
/// holds.
const PLACE_BITS: u32 = 28;

/// No place.
pub const NIL: u32 = u32::MAX;

/// The handle of the `count`-th lock, at `place`. Never 0.
pub fn handle(place: u32, count: u64) -> u64 {
    1 << 63 | count << PLACE_BITS | u64::from(place)
}

/// The place that a handle names.
pub fn place(handle: u64) -> u32 {
    (handle & ((1 << PLACE_BITS) - 1)) as u32
}

/// The count in a handle: the younger of two has the larger one.
pub fn count(handle: u64) -> u64 {
    handle >> PLACE_BITS
}

/// Things at numbered places.
#[derive(Debug)]
pub struct Slab<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub fn new() -> Slab<T> {
        Slab { items: Vec::new(), free: Vec::new() }
    }

    /// Whether handles could name `more` things.
    pub fn room(&self, more: usize) -> bool {
        self.len() + more <= 1 << PLACE_BITS
    }

    /// The place that [`Slab::put`] will use.
    pub fn next(&self) -> u32 {
        self.free.last().copied().unwrap_or(self.items.len() as u32)
    }

    /// Puts `item` at the place that [`Slab::next`] told.
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

    /// Gives the place up. What lies there stays until the place is used again: the caller marks it
    /// as dead.
    pub fn free(&mut self, place: u32) {
        self.free.push(place);
    }

    /// What lies at any place, dead or alive.
    pub fn get(&self, place: u32) -> Option<&T> {
        self.items.get(place as usize)
    }

    /// Things alive.
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
    fn handles_are_not_used_again_but_places_are() {
        let mut slab = Slab::new();
        assert_eq!((slab.next(), slab.put('a'), slab.next(), slab.put('b')), (0, 0, 1, 1));
        slab.free(0);
        assert_eq!((slab.len(), slab.next(), slab.put('c')), (1, 0, 0));
        assert_eq!((slab[0], slab[1], slab.get(2)), ('c', 'b', None));
        let (first, third) = (handle(0, 1), handle(0, 3));
        assert!(first != third && place(first) == 0 && place(third) == 0);
    }
}
