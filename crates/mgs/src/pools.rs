//! Pools of OSTs: their changes, and the line of text in which `lctl` requests a change.
//!
//! Invariants:
//! * Pools are sorted by name. A name has 1 to [`POOL_NAME_MAX`] characters of `[A-Za-z0-9_-]`.
//! * A member is an OST of the file system, and is in the pool only once.
//! * A refused change changes nothing.
//!
//! The errnos are those of Lustre's `lctl`.

use std::fmt::Write;

use sheen_wire::mgs::{
    Config, NO_POOLS, POOL_MEMBERS_MAX, POOL_NAME_MAX, POOLS_MAX, Pool, PoolChange, TargetKind, parse_ost, target_name,
};
use sheen_wire::{Errno, Result};

/// Linux's ENOMEDIUM: Lustre's error for adding an OST to a pool that does not exist.
pub const ENOMEDIUM: Errno = Errno(123);

/// Checks whether a pool may have this name.
///
/// # Errors
/// ENAMETOOLONG: more than [`POOL_NAME_MAX`] characters. EINVAL: no characters, or others than
/// letters, digits, `_` and `-`.
pub fn check_name(name: &str) -> Result<()> {
    if name.len() > POOL_NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    let fine = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    if !name.is_empty() && name.bytes().all(fine) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Changes a pool of a file system.
///
/// # Errors
/// As [`check_name`]; and
/// * new: EEXIST if the pool exists, EINVAL for a name in [`NO_POOLS`], ENOSPC if there are already
///   [`POOLS_MAX`] pools;
/// * add: [`ENOMEDIUM`] if there is no such pool, ENODEV if there is no such OST, EEXIST if the OST
///   is already in the pool. ENOSPC if all pools together have [`POOL_MEMBERS_MAX`] members;
/// * remove: ENOENT if the OST is not in the pool, or there is no such pool;
/// * destroy: ENOENT if there is no such pool.
pub fn apply(config: &mut Config, name: &str, change: PoolChange) -> Result<()> {
    check_name(name)?;
    let members: usize = config.pools.iter().map(|p| p.osts.len()).sum();
    let at = config.pools.binary_search_by(|p| p.name.as_str().cmp(name));
    match (change, at) {
        (PoolChange::New, Ok(_)) => Err(Errno::EEXIST),
        (PoolChange::New, Err(_)) if NO_POOLS.contains(&name) => Err(Errno::EINVAL),
        (PoolChange::New, Err(_)) if config.pools.len() >= POOLS_MAX => Err(Errno::ENOSPC),
        (PoolChange::New, Err(at)) => {
            config.pools.insert(at, Pool { name: name.to_string(), osts: Vec::new() });
            Ok(())
        }
        (PoolChange::Add { .. }, Err(_)) => Err(ENOMEDIUM),
        (PoolChange::Add { ost }, Ok(_)) if config.ost(ost).is_none() => Err(Errno::ENODEV),
        (PoolChange::Add { ost }, Ok(at)) => {
            let pool = &mut config.pools[at];
            if pool.osts.contains(&ost) {
                return Err(Errno::EEXIST);
            }
            if members >= POOL_MEMBERS_MAX {
                return Err(Errno::ENOSPC);
            }
            pool.osts.push(ost);
            Ok(())
        }
        (PoolChange::Remove { ost }, at) => {
            let pool = at.ok().map(|at| &mut config.pools[at]).ok_or(Errno::ENOENT)?;
            let at = pool.osts.iter().position(|o| *o == ost).ok_or(Errno::ENOENT)?;
            pool.osts.remove(at);
            Ok(())
        }
        (PoolChange::Destroy, at) => {
            config.pools.remove(at.map_err(|_| Errno::ENOENT)?);
            Ok(())
        }
    }
}

/// Returns a change as text, for the parameter `mgs.MGS.pools.FSNAME`: `pool_new POOL`,
/// `pool_add POOL OST`, `pool_remove POOL OST`, `pool_destroy POOL`.
pub fn write(fsname: &str, pool: &str, change: PoolChange) -> String {
    let with = |command: &str, ost| format!("{command} {pool} {}_UUID", target_name(fsname, TargetKind::Ost, ost));
    match change {
        PoolChange::New => format!("pool_new {pool}"),
        PoolChange::Add { ost } => with("pool_add", ost),
        PoolChange::Remove { ost } => with("pool_remove", ost),
        PoolChange::Destroy => format!("pool_destroy {pool}"),
    }
}

/// Parses what [`write`] wrote. Returns the pool and the change.
///
/// # Errors
/// EINVAL: anything else.
pub fn read<'a>(fsname: &str, text: &'a str) -> Result<(&'a str, PoolChange)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let ost = |text| parse_ost(fsname, text).ok_or(Errno::EINVAL);
    Ok(match words[..] {
        ["pool_new", pool] => (pool, PoolChange::New),
        ["pool_add", pool, name] => (pool, PoolChange::Add { ost: ost(name)? }),
        ["pool_remove", pool, name] => (pool, PoolChange::Remove { ost: ost(name)? }),
        ["pool_destroy", pool] => (pool, PoolChange::Destroy),
        _ => return Err(Errno::EINVAL),
    })
}

/// Returns pools as text, each in a line: `NAME: OST OST …`.
pub fn render(fsname: &str, pools: &[Pool]) -> String {
    let mut out = String::new();
    for pool in pools {
        out.push_str(&pool.name);
        out.push(':');
        for ost in &pool.osts {
            // Writing to a string cannot fail.
            let _ = write!(out, " {}_UUID", target_name(fsname, TargetKind::Ost, *ost));
        }
        out.push('\n');
    }
    out
}

/// Parses what [`render`] wrote. Skips lines of another form.
pub fn parse(fsname: &str, text: &str) -> Vec<Pool> {
    let pool = |line: &str| {
        let (name, osts) = line.split_once(':')?;
        let osts = osts.split_whitespace().map(|ost| parse_ost(fsname, ost)).collect::<Option<_>>()?;
        Some(Pool { name: name.to_string(), osts })
    };
    text.lines().filter_map(pool).collect()
}

#[cfg(test)]
mod tests {
    use sheen_wire::mgs::Target;

    use super::*;

    const NEW: PoolChange = PoolChange::New;
    const DESTROY: PoolChange = PoolChange::Destroy;

    fn add(ost: u32) -> PoolChange {
        PoolChange::Add { ost }
    }

    fn remove(ost: u32) -> PoolChange {
        PoolChange::Remove { ost }
    }

    fn config(osts: u32) -> Config {
        let target = |kind, index| Target {
            kind,
            index,
            uuid: format!("{kind:?}{index}"),
            nids: vec!["0@lo".to_string()],
            incarnation: 1,
            removed: false,
        };
        let mut targets = vec![target(TargetKind::Mdt, 0), target(TargetKind::Mdt, 99)];
        targets.extend((0..osts).map(|i| target(TargetKind::Ost, i)));
        Config { fsname: "sheen".into(), version: 1, targets, ..Config::default() }
    }

    #[test]
    fn pool_changes_create_fill_empty_and_destroy_pools() {
        let mut c = config(4);
        for (pool, change) in [("p2", NEW), ("p1", NEW), ("p1", add(3)), ("p1", add(0)), ("p1", add(1)), ("p2", add(1))]
        {
            assert_eq!(apply(&mut c, pool, change), Ok(()), "{pool} {change:?}");
        }
        assert_eq!(c.pools.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["p1", "p2"]);
        assert_eq!(c.pool("p1").unwrap().osts, [3, 0, 1], "in the order in which they were added");
        assert_eq!(apply(&mut c, "p1", remove(0)), Ok(()));
        assert_eq!(c.pool("p1").unwrap().osts, [3, 1]);
        assert_eq!(apply(&mut c, "p1", DESTROY), Ok(()), "with OSTs in it");
        assert_eq!((c.pool("p1"), c.pool("p2").map(|p| &p.osts[..])), (None, Some(&[1][..])));
    }

    #[test]
    fn refused_pool_changes_have_lustre_errnos_and_change_nothing() {
        let mut c = config(2);
        apply(&mut c, "p1", NEW).unwrap();
        apply(&mut c, "p1", add(1)).unwrap();
        let before = c.clone();
        for (pool, change, errno) in [
            ("p1", NEW, Errno::EEXIST),
            ("", NEW, Errno::EINVAL),
            ("a.b", NEW, Errno::EINVAL),
            ("a b", NEW, Errno::EINVAL),
            ("ü", NEW, Errno::EINVAL),
            ("none", NEW, Errno::EINVAL),
            ("inherit", NEW, Errno::EINVAL),
            ("sixteencharslong", NEW, Errno::ENAMETOOLONG),
            ("nopool", add(1), ENOMEDIUM),
            ("p1", add(1), Errno::EEXIST),
            ("p1", add(2), Errno::ENODEV),
            ("p1", add(99), Errno::ENODEV),
            ("p1", remove(0), Errno::ENOENT),
            ("nopool", remove(0), Errno::ENOENT),
            ("nopool", DESTROY, Errno::ENOENT),
        ] {
            assert_eq!(apply(&mut c, pool, change), Err(errno), "{pool} {change:?}");
            assert_eq!(c, before, "{pool} {change:?}");
        }
        assert_eq!(apply(&mut c, "fifteencharslon", NEW), Ok(()));
    }

    #[test]
    fn pools_and_members_beyond_the_limits_are_refused() {
        let mut c = config(300);
        for i in 0..POOLS_MAX {
            apply(&mut c, &format!("p{i}"), NEW).unwrap();
        }
        assert_eq!(apply(&mut c, "more", NEW), Err(Errno::ENOSPC));
        for i in 0..POOL_MEMBERS_MAX / 256 {
            c.pools[i].osts = (0..256).collect();
        }
        assert_eq!(apply(&mut c, "p0", add(299)), Err(Errno::ENOSPC));
        apply(&mut c, "p0", remove(7)).unwrap();
        apply(&mut c, "p0", add(299)).unwrap();
    }

    #[test]
    fn pool_changes_and_lists_roundtrip_through_text() {
        for change in [NEW, add(0), remove(0x1f), DESTROY] {
            let text = write("sheen", "p-1", change);
            assert_eq!(read("sheen", &text), Ok(("p-1", change)), "{text}");
        }
        assert_eq!(write("sheen", "p1", add(31)), "pool_add p1 sheen-OST001f_UUID");
        for text in ["", "pool_new", "pool_new a b", "pool_add p1", "pool_add p1 MDT0000", "pool_add p1 other-OST0000"]
        {
            assert_eq!(read("sheen", text), Err(Errno::EINVAL), "{text}");
        }
        let pools = [Pool { name: "empty".into(), osts: vec![] }, Pool { name: "p1".into(), osts: vec![2, 0, 0x1234] }];
        let text = render("sheen", &pools);
        assert_eq!(text, "empty:\np1: sheen-OST0002_UUID sheen-OST0000_UUID sheen-OST1234_UUID\n");
        assert_eq!(parse("sheen", &text), pools);
        assert!(parse("sheen", "nonsense\np1: other-OST0000_UUID\n").is_empty());
    }
}
