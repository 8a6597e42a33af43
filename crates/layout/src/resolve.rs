//! Layout parameters of a new file, resolved from all levels.
//!
//! The levels are the user, the directory, the root directory, and the file system's defaults.
//!
//! * If the user specifies nothing, stripe size, count (with overstriping) and pool each come from
//!   the first level that specifies them. So a directory default without a stripe size passes the
//!   root's stripe size on.
//! * If the user specifies anything, the rest comes from the file system's defaults, and not from
//!   the directory or the root. Only the pool is inherited (as in Lustre, `lod_qos_parse_config`).
//! * The first OST and the list of OSTs belong to the count of their level, and apply only together
//!   with it.

use crate::{Count, Pool, STRIPE_SIZE_DEFAULT, Spec};

/// The file system's defaults (`lov.*.stripesize`, `lov.*.stripecount`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Defaults {
    /// Stripe size in bytes, a multiple of 64 KiB.
    pub stripe_size: u32,
    /// Number of stripes.
    pub count: Count,
}

impl Default for Defaults {
    fn default() -> Defaults {
        Defaults { stripe_size: STRIPE_SIZE_DEFAULT, count: Count::Stripes(1) }
    }
}

/// Complete layout parameters: a [`Spec`] in which only the choice of OSTs is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// Stripe size in bytes.
    pub stripe_size: u32,
    /// Number of stripes; the length of `osts` if that is not empty.
    pub count: Count,
    /// Whether one OST may hold several stripes.
    pub overstripe: bool,
    /// OST of the first stripe, if possible.
    pub start: Option<u32>,
    /// Exactly these OSTs; empty for any.
    pub osts: Vec<u32>,
    /// Pool from which the OSTs are chosen.
    pub pool: Option<Pool>,
    /// Bytes for which all stripes together need room, or 0 if not known. OSTs with less
    /// are avoided.
    pub room: u64,
}

/// Fills the unspecified parameters of `asked`. All specs must have passed [`Spec::check`].
pub fn resolve(asked: &Spec, directory: Option<&Spec>, root: Option<&Spec>, defaults: &Defaults) -> Wanted {
    let asked = (!asked.is_default()).then_some(asked);
    let pool = [asked, directory, root].into_iter().flatten().find_map(|s| s.pool.clone());
    let [directory, root] = if asked.is_some() { [None; 2] } else { [directory, root] };
    let levels = || [asked, directory, root].into_iter().flatten();
    // Start and list come from the first level that specifies anything: those of a later level
    // would contradict the count of this one.
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
        pool,
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
    fn resolve_without_requests_returns_the_defaults() {
        let w = wanted(&Spec::default(), None, None);
        assert_eq!((w.stripe_size, w.count, w.overstripe, w.start), (4 << 20, Count::Stripes(1), false, None));
        assert!(w.osts.is_empty() && w.pool.is_none());
    }

    #[test]
    fn resolve_takes_the_stripe_size_from_the_root() {
        let w = wanted(&Spec::default(), Some(&count(2)), Some(&size(1 << 20)));
        assert_eq!((w.stripe_size, w.count), (1 << 20, Count::Stripes(2)));
    }

    #[test]
    fn resolve_prefers_the_users_parameters() {
        let directory = Spec { overstripe: true, start: Some(2), ..count(8) };
        let w = wanted(&count(2), Some(&directory), None);
        assert_eq!((w.count, w.overstripe, w.start), (Count::Stripes(2), false, None));
        let w = wanted(&size(1 << 20), Some(&directory), None);
        assert_eq!((w.stripe_size, w.count, w.overstripe, w.start), (1 << 20, Count::Stripes(1), false, None));
        let w = wanted(&Spec::default(), Some(&directory), None);
        assert_eq!((w.count, w.overstripe, w.start), (Count::Stripes(8), true, Some(2)));
    }

    #[test]
    fn resolve_completes_the_users_parameters_from_the_file_systems_defaults() {
        let pool = Pool::new("flash").unwrap();
        let default = Spec { stripe_size: Some(1 << 20), pool: Some(pool.clone()), start: Some(1), ..count(3) };
        for (directory, root) in [(Some(&default), None), (None, Some(&default))] {
            let w = wanted(&count(2), directory, root);
            assert_eq!((w.stripe_size, w.count, w.start), (4 << 20, Count::Stripes(2), None), "-c 2");
            assert_eq!(w.pool.as_ref(), Some(&pool), "the pool is inherited");
            let w = wanted(&size(65536), directory, root);
            assert_eq!((w.stripe_size, w.count, w.start), (65536, Count::Stripes(1), None), "-S 64K");
        }
        let own = Spec { pool: Pool::new("disks").ok(), ..Spec::default() };
        let w = wanted(&own, Some(&default), None);
        assert_eq!((w.stripe_size, w.count), (4 << 20, Count::Stripes(1)));
        assert_eq!(w.pool.as_ref().map(Pool::as_str), Some("disks"));
    }

    #[test]
    fn resolve_applies_an_ost_list_only_with_its_count() {
        let listed = Spec { osts: vec![1, 3], ..Spec::default() };
        let w = wanted(&Spec::default(), Some(&listed), None);
        assert_eq!((w.osts, w.count), (vec![1, 3], Count::Stripes(2)));
        let w = wanted(&count(1), Some(&listed), None);
        assert_eq!((w.osts, w.count), (vec![], Count::Stripes(1)));
    }
}
