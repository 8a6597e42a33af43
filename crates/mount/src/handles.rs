//! Table of open files by handle number. The kernel bounds the number of files that programs hold
//! open.

use std::sync::Arc;

use parking_lot::RwLock;

/// Handle numbers for `Arc<T>`; a number is reused after its removal.
pub struct Handles<T> {
    slots: RwLock<Slots<T>>,
}

struct Slots<T> {
    items: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Handles<T> {
    /// Creates an empty table.
    pub fn new() -> Handles<T> {
        Handles { slots: RwLock::new(Slots { items: Vec::new(), free: Vec::new() }) }
    }

    /// Inserts an item and returns its number.
    pub fn insert(&self, item: Arc<T>) -> u64 {
        let mut slots = self.slots.write();
        let at = slots.free.pop().unwrap_or(slots.items.len());
        if at == slots.items.len() {
            slots.items.push(None);
        }
        slots.items[at] = Some(item);
        at as u64
    }

    /// Returns the item with this number.
    pub fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.slots.read().items.get(usize::try_from(handle).ok()?)?.clone()
    }

    /// Removes the item with this number and returns it.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let at = usize::try_from(handle).ok()?;
        let mut slots = self.slots.write();
        let item = slots.items.get_mut(at)?.take()?;
        slots.free.push(at);
        Some(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handle_numbers_are_reused_only_after_removal() {
        let handles = Handles::new();
        let (a, b) = (handles.insert(Arc::new('a')), handles.insert(Arc::new('b')));
        assert_ne!(a, b);
        assert_eq!(handles.remove(a).as_deref(), Some(&'a'));
        assert_eq!(handles.remove(a), None);
        assert_eq!(handles.get(a), None);
        assert_eq!(handles.insert(Arc::new('c')), a);
        assert_eq!(handles.get(b).as_deref(), Some(&'b'));
        assert_eq!(handles.get(u64::MAX), None);
    }
}
