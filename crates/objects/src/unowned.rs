//! The objects of an OST whose owners are unknown. The MDT is asked for them.
//!
//! Invariants:
//! * at most [`UNOWNED_MAX`] objects are in the set, and those that writes wait for. If there are
//!   more, the set says so
//!   ([`Unowned::take_missed`]), and the OST looks for them later;
//! * an object stays in the set until its owner is known, or it is destroyed. It is reported once,
//!   and again after [`Unowned::report_again`].

use std::collections::BTreeMap;

use sheen_wire::Fid;

/// Maximum objects of the set: some 4 MiB.
pub const UNOWNED_MAX: usize = 65_536;

/// The set, with the objects' files. [`Fid::ZERO`]: the file is unknown, too.
#[derive(Debug, Default)]
pub struct Unowned {
    waiting: BTreeMap<Fid, Fid>,
    reported: BTreeMap<Fid, Fid>,
    missed: bool,
}

impl Unowned {
    /// Adds an object. One that is reported is reported again if its file is news.
    pub fn insert(&mut self, object: Fid, file: Fid) {
        if let Some(known) = self.reported.get(&object) {
            if file.is_zero() || *known == file {
                return;
            }
            self.reported.remove(&object);
        }
        if let Some(known) = self.waiting.get_mut(&object) {
            if !file.is_zero() {
                *known = file;
            }
        } else if self.waiting.len() + self.reported.len() < UNOWNED_MAX {
            self.waiting.insert(object, file);
        } else {
            self.missed = true;
        }
    }

    /// Adds an object whose owner a write waits for, whatever the bound. The writes that wait are
    /// bounded. One that is reported is reported again.
    pub fn ask(&mut self, object: Fid, file: Fid) {
        self.reported.remove(&object);
        let known = self.waiting.entry(object).or_insert(file);
        if !file.is_zero() {
            *known = file;
        }
    }

    /// Removes an object.
    pub fn remove(&mut self, object: Fid) {
        if self.waiting.remove(&object).is_none() {
            self.reported.remove(&object);
        }
    }

    /// Number of objects to be reported.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Number of all objects of the set.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.reported.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns at most `max` objects to be reported, with their files.
    pub fn report(&mut self, max: usize) -> Vec<(Fid, Fid)> {
        let mut some = Vec::with_capacity(max.min(self.waiting.len()));
        while some.len() < max
            && let Some((object, file)) = self.waiting.pop_first()
        {
            self.reported.insert(object, file);
            some.push((object, file));
        }
        some
    }

    /// Lets all objects be reported again.
    pub fn report_again(&mut self) {
        self.waiting.append(&mut self.reported);
    }

    /// Whether objects did not fit, and many would fit now. The next call returns false.
    pub fn take_missed(&mut self) -> bool {
        let is_due = self.missed && self.len() <= UNOWNED_MAX / 2;
        if is_due {
            self.missed = false;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(oid: u32) -> Fid {
        Fid::new(9, oid)
    }

    #[test]
    fn unowned_objects_are_reported_once_until_they_are_asked_for_again() {
        let (mut unowned, file) = (Unowned::default(), Fid::new(5, 5));
        for oid in [3, 1, 2, 1] {
            unowned.insert(object(oid), Fid::ZERO);
        }
        unowned.insert(object(2), file);
        assert_eq!(unowned.report(2), [(object(1), Fid::ZERO), (object(2), file)]);
        assert_eq!((unowned.waiting(), unowned.len()), (1, 3));
        unowned.insert(object(1), Fid::ZERO);
        unowned.insert(object(2), file);
        unowned.remove(object(2));
        assert_eq!(unowned.report(9), [(object(3), Fid::ZERO)]);
        unowned.insert(object(3), file);
        assert_eq!(unowned.report(9), [(object(3), file)], "its file is news");
        unowned.report_again();
        assert_eq!(unowned.report(9), [(object(1), Fid::ZERO), (object(3), file)]);
        unowned.ask(object(1), file);
        assert_eq!(unowned.report(9), [(object(1), file)], "a write waits for it");
        unowned.remove(object(1));
        unowned.remove(object(3));
        assert!(unowned.is_empty());
    }

    #[test]
    fn unowned_set_is_bounded_and_says_that_it_missed_objects() {
        let mut unowned = Unowned::default();
        for oid in 0..UNOWNED_MAX as u32 {
            unowned.insert(object(oid), Fid::ZERO);
        }
        assert!(!unowned.take_missed());
        unowned.insert(object(u32::MAX), Fid::ZERO);
        assert_eq!((unowned.len(), unowned.take_missed()), (UNOWNED_MAX, false), "not while it is full");
        unowned.report(UNOWNED_MAX);
        for oid in 0..UNOWNED_MAX as u32 / 2 {
            unowned.remove(object(oid));
        }
        assert!(unowned.take_missed() && !unowned.take_missed());
    }
}
