//! What a new file's layout shall be, once everyone has been asked.
//!
//! Each of stripe size, count (with overstriping) and pool comes from the first that says
//! something: the user, the directory, the root directory, the file system's defaults. So a
//! directory default without a size passes the root's size on. The OST to begin with and a list of
//! OSTs belong to the count that they were given with, and count only there.

use crate::{Count, Pool, STRIPE_SIZE_DEFAULT, Spec};

/// What holds where nobody asked (`lov.*.stripesize`, `lov.*.stripecount`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Defaults {
    /// Bytes, a multiple of 64 KiB.
    pub stripe_size: u32,
    /// Number of stripes.
    pub count: Count,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults { stripe_size: STRIPE_SIZE_DEFAULT, count: Count::Stripes(1) }
    }
}

/// A [`Spec`] that leaves nothing open but the choice of OSTs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Bytes.
    pub stripe_size: u32,
    /// Number of stripes; the length of `osts` where that is not empty.
    pub count: Count,
    /// Whether several stripes may lie on one OST.
    pub overstripe: bool,
    /// OST to begin with, if possible.
    pub start: Option<u32>,
    /// Exactly these OSTs.
    pub osts: Vec<u32>,
    /// Choose from this pool.
    pub pool: Option<Pool>,
    /// Bytes that all stripes together shall have room for, where it can be said: OSTs with less
    /// are avoided.
    pub room: u64,
}

/// Fills what `asked` leaves open. All of them must have passed [`Spec::check`].
pub fn resolve(asked: &Spec, directory: Option<&Spec>, root: Option<&Spec>, defaults: &Defaults) -> Wanted {
    let asked = (!asked.is_default()).then_some(asked);
    let levels = || [asked, directory, root].into_iter().flatten();
    // Whoever speaks first also says where: a start or list from further up would contradict the
    // count from here.
    let placing = levels().next();
    let counting = levels().find(|s| s.count.is_some() || !s.osts.is_empty());
    let osts = match (placing, counting) {
        (Some(p), Some(c)) if std::ptr::eq(p, c) => p.osts.clone(),
        _ => Vec::new(),
    };
    let count = match (osts.len(), counting.and_then(|c| c.count)) {
        (0, count) => count.unwrap_or(defaults.count),
        (n, _) => Count::Stripes(n as u16),
    };
    Wanted {
        stripe_size: levels().find_map(|s| s.stripe_size).unwrap_or(defaults.stripe_size),
        count,
        overstripe: counting.is_some_and(|c| c.overstripe),
        start: placing.and_then(|p| p.start),
        osts,
        pool: levels().find_map(|s| s.pool.clone()),
        room: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(n: u16) -> Spec {
        Spec { count: Some(Count::Stripes(n)), ..Spec::default() }
    }

    fn size(bytes: u32) -> Spec {
        Spec { stripe_size: Some(bytes), ..Spec::default() }
    }

    fn wanted(asked: &Spec, directory: Option<&Spec>, root: Option<&Spec>) -> Wanted {
        resolve(asked, directory, root, &Defaults::default())
    }

    #[test]
    fn nobody_asked() {
        let w = wanted(&Spec::default(), None, None);
        assert_eq!((w.stripe_size, w.count, w.overstripe, w.start), (4 << 20, Count::Stripes(1), false, None));
        assert!(w.osts.is_empty() && w.pool.is_none());
    }

    #[test]
    fn a_directory_without_a_size_passes_the_roots_on() {
        let w = wanted(&Spec::default(), Some(&count(2)), Some(&size(1 << 20)));
        assert_eq!((w.stripe_size, w.count), (1 << 20, Count::Stripes(2)));
    }

    #[test]
    fn the_user_goes_first() {
        let directory = Spec { overstripe: true, start: Some(2), ..count(8) };
        let w = wanted(&count(2), Some(&directory), None);
        assert_eq!((w.count, w.overstripe, w.start), (Count::Stripes(2), false, None));
        let w = wanted(&size(1 << 20), Some(&directory), None);
        assert_eq!((w.stripe_size, w.count, w.overstripe, w.start), (1 << 20, Count::Stripes(8), true, None));
        let w = wanted(&Spec::default(), Some(&directory), None);
        assert_eq!((w.count, w.overstripe, w.start), (Count::Stripes(8), true, Some(2)));
    }

    #[test]
    fn a_list_holds_only_for_who_gave_it() {
        let listed = Spec { osts: vec![1, 3], ..Spec::default() };
        let w = wanted(&Spec::default(), Some(&listed), None);
        assert_eq!((w.osts, w.count), (vec![1, 3], Count::Stripes(2)));
        let w = wanted(&count(1), Some(&listed), None);
        assert_eq!((w.osts, w.count), (vec![], Count::Stripes(1)));
    }
}
