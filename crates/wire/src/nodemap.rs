//! Nodemaps (Lustre's word): what the servers let groups of clients do.
//!
//! A nodemap belongs to clients whose key names it, and to those at its addresses. It maps their
//! user and group ids, confines them to a directory (Lustre's fileset), or forbids them to write.
//! The MGS stores the nodemaps, for all of its file systems. The MDTs apply them.
//!
//! Invariants:
//! * A client is in at most one nodemap, because no two have an address in common. The one that the
//!   key names has precedence.
//! * A client whose key names a nodemap is never free of rules, even if nodemaps are not active.
//! * Nodemaps do not apply to holders of a key of the cluster itself.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr},
    str::FromStr,
};

use serde::{Deserialize, Serialize};

use crate::{Cred, Errno, Result};

/// Name of the nodemap of the clients that are in no other one.
pub const DEFAULT: &str = "default";
/// Longest name, as in Lustre: 16 characters of `[A-Za-z0-9_]`.
pub const NAME_MAX: usize = 16;
/// Maximum number of nodemaps.
pub const NODEMAPS_MAX: usize = 256;
/// Maximum ranges of one nodemap.
pub const RANGES_MAX: usize = 256;
/// Maximum ids that one nodemap maps, of users and groups each.
pub const IDS_MAX: usize = 4096;
/// Longest path of a fileset, in bytes.
pub const FILESET_MAX: usize = 1024;
/// The id to which ids are squashed if nothing else is set, as in Lustre.
pub const NOBODY: u32 = 65534;

/// The nodemaps of an MGS.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Nodemaps {
    /// Whether the ranges and the nodemap [`DEFAULT`] apply.
    pub active: bool,
    /// The nodemaps, sorted by name. Without one of the name [`DEFAULT`], that is as
    /// [`Nodemap::new`] makes it.
    pub maps: Vec<Nodemap>,
}

/// One nodemap.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Nodemap {
    /// Name.
    pub name: String,
    /// Addresses of its clients.
    pub ranges: Vec<Range>,
    /// Whether root of a client is root here. Otherwise it is squashed.
    pub admin: bool,
    /// Whether ids of clients are those of the file system. Otherwise they are mapped.
    pub trusted: bool,
    /// Whether requests of squashed users are refused.
    pub deny_unknown: bool,
    /// Whether refused operations of the clients are recorded in the audit trail.
    pub audit: bool,
    /// Whether the clients may change nothing.
    pub read_only: bool,
    /// The user that squashed users are.
    pub squash_uid: u32,
    /// The group that squashed groups are.
    pub squash_gid: u32,
    /// Path of the directory in which the clients are confined, with `/` at its start. Empty: none.
    pub fileset: String,
    /// User ids that are mapped: those of the clients, and those of the file system. No id comes
    /// twice on one side.
    pub uids: Vec<(u32, u32)>,
    /// The same for group ids.
    pub gids: Vec<(u32, u32)>,
}

/// Addresses of clients: all from the first to the last, of the same family.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Range {
    /// First address.
    pub first: IpAddr,
    /// Last address.
    pub last: IpAddr,
}

/// The rules for a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rules<'a> {
    /// No nodemap.
    None,
    /// This nodemap.
    Of(&'a Nodemap),
    /// Its key names a nodemap that does not exist: everything is refused.
    Unknown,
}

impl Nodemaps {
    /// Returns the nodemap of this name.
    pub fn get(&self, name: &str) -> Option<&Nodemap> {
        self.maps.iter().find(|map| map.name == name)
    }

    /// Returns the nodemap of a client. `named`: the nodemap that its key names. `address`: its
    /// address.
    pub fn of(&self, named: Option<&str>, address: Option<IpAddr>) -> Rules<'_> {
        if let Some(name) = named {
            return self.get(name).map_or(Rules::Unknown, Rules::Of);
        }
        if !self.active {
            return Rules::None;
        }
        let has = |map: &&Nodemap| address.is_some_and(|address| map.ranges.iter().any(|range| range.has(address)));
        let found = self.maps.iter().find(has).or_else(|| self.get(DEFAULT));
        found.map_or_else(|| Rules::Of(default_map()), Rules::Of)
    }
}

/// Returns whether a text can be the name of a nodemap.
pub fn is_name(text: &str) -> bool {
    (1..=NAME_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Returns the nodemap [`DEFAULT`] as long as nobody has changed it.
fn default_map() -> &'static Nodemap {
    static MAP: std::sync::LazyLock<Nodemap> = std::sync::LazyLock::new(|| Nodemap::new(DEFAULT));
    &MAP
}

impl Nodemap {
    /// Creates a nodemap as Lustre does: all ids are squashed, and the clients may write.
    pub fn new(name: &str) -> Nodemap {
        Nodemap {
            name: name.to_owned(),
            ranges: Vec::new(),
            admin: false,
            trusted: false,
            deny_unknown: false,
            audit: true,
            read_only: false,
            squash_uid: NOBODY,
            squash_gid: NOBODY,
            fileset: String::new(),
            uids: Vec::new(),
            gids: Vec::new(),
        }
    }

    /// Returns the file system's id of a client's user. `None`: the user is squashed.
    pub fn uid_of(&self, client: u32) -> Option<u32> {
        self.id_of(&self.uids, client)
    }

    /// Returns the file system's id of a client's group. `None`: the group is squashed.
    pub fn gid_of(&self, client: u32) -> Option<u32> {
        self.id_of(&self.gids, client)
    }

    fn id_of(&self, ids: &[(u32, u32)], client: u32) -> Option<u32> {
        match client {
            0 if self.admin => Some(0),
            // Root is never trusted, but can be mapped to somebody.
            _ if self.trusted && client != 0 => Some(client),
            _ => ids.iter().find(|(theirs, _)| *theirs == client).map(|(_, ours)| *ours),
        }
    }

    /// Returns the id that a client sees for a user of the file system.
    pub fn uid_for_client(&self, uid: u32) -> u32 {
        self.for_client(&self.uids, uid).unwrap_or(self.squash_uid)
    }

    /// Returns the id that a client sees for a group of the file system.
    pub fn gid_for_client(&self, gid: u32) -> u32 {
        self.for_client(&self.gids, gid).unwrap_or(self.squash_gid)
    }

    fn for_client(&self, ids: &[(u32, u32)], id: u32) -> Option<u32> {
        match id {
            0 if self.admin => Some(0),
            _ if self.trusted => Some(id),
            _ => ids.iter().find(|(_, ours)| *ours == id).map(|(theirs, _)| *theirs),
        }
    }

    /// Whether it limits nothing.
    pub fn is_free(&self) -> bool {
        self.admin && self.trusted && !self.read_only && self.fileset.is_empty()
    }

    /// Whether clients see other ids than those of the file system.
    pub fn maps_ids(&self) -> bool {
        !self.trusted
    }

    /// Whether a client can act as this user of the file system.
    pub fn may_be(&self, uid: u32) -> bool {
        let is_squash = uid == self.squash_uid && !self.deny_unknown;
        is_squash || self.can_be(&self.uids, uid)
    }

    /// Whether a user of a client can be in this group of the file system.
    pub fn may_be_in(&self, gid: u32) -> bool {
        gid == self.squash_gid || self.can_be(&self.gids, gid)
    }

    /// Whether [`Nodemap::id_of`] some id of a client is this one.
    fn can_be(&self, ids: &[(u32, u32)], id: u32) -> bool {
        let is_mapped = |(theirs, ours): &(u32, u32)| *ours == id && (!self.trusted || *theirs == 0);
        (if id == 0 { self.admin } else { self.trusted }) || ids.iter().any(is_mapped)
    }

    /// Whether a client has any user whose requests are executed.
    pub fn has_users(&self) -> bool {
        !self.deny_unknown || self.admin || self.trusted || !self.uids.is_empty()
    }

    /// Whether some users of a client are others here.
    pub fn changes_users(&self) -> bool {
        !(self.admin && self.trusted)
    }

    /// Makes the credentials of a client those of a user of the file system.
    ///
    /// # Errors
    /// EACCES: the user is not known, and such users are refused.
    pub fn map(&self, cred: &mut Cred) -> Result<()> {
        let gid = self.gid_of(cred.gid).unwrap_or(self.squash_gid);
        match self.uid_of(cred.uid) {
            Some(uid) => {
                let groups = cred.groups.take();
                let groups = groups.map(|all| all.into_iter().filter_map(|group| self.gid_of(group)).collect());
                *cred = Cred { uid, gid, groups };
            }
            None if self.deny_unknown => return Err(Errno::EACCES),
            None => *cred = Cred { uid: self.squash_uid, gid: self.squash_gid, groups: Some(Vec::new()) },
        }
        Ok(())
    }
}

impl Range {
    /// Whether an address is in the range.
    pub fn has(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.first.is_ipv4() && (self.first..=self.last).contains(&address)
    }

    /// Whether two ranges have an address in common.
    pub fn meets(&self, other: &Range) -> bool {
        self.has(other.first) || other.has(self.first)
    }
}

/// As Lustre shows it: `{ start_nid: 10.0.0.1@tcp, end_nid: 10.0.0.9@tcp }`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ start_nid: {}@tcp, end_nid: {}@tcp }}", self.first, self.last)
    }
}

/// A text that is not a range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "expected one range of addresses, such as 10.0.0.7@tcp, 10.0.[1-4].[0-255]@tcp, 10.0.1.*@tcp or 10.0.0.0/16@tcp"
)]
pub struct InvalidRange;

impl FromStr for Range {
    type Err = InvalidRange;

    /// Accepts Lustre's forms, as far as they are one range: an address, with `N`, `[N-M]` or `*`
    /// for each number; an address with a length of its prefix; `FIRST@tcp:LAST@tcp`.
    fn from_str(text: &str) -> std::result::Result<Range, InvalidRange> {
        if let Some((first, last)) = text.split_once("@tcp:") {
            let address = |text: &str| text.parse::<IpAddr>().map(|ip| ip.to_canonical()).map_err(|_| InvalidRange);
            let last = address(last.strip_suffix("@tcp").ok_or(InvalidRange)?)?;
            return Range::of(address(first)?, last);
        }
        let address = text.strip_suffix("@tcp").ok_or(InvalidRange)?;
        if let Some((address, bits)) = address.split_once('/') {
            return Range::of_prefix(
                address.parse().map_err(|_| InvalidRange)?,
                bits.parse().map_err(|_| InvalidRange)?,
            );
        }
        if let Ok(address) = address.parse::<IpAddr>() {
            return Range::of(address.to_canonical(), address.to_canonical());
        }
        let parts: Vec<&str> = address.split('.').collect();
        let parts: [&str; 4] = parts.try_into().map_err(|_| InvalidRange)?;
        let (mut first, mut last, mut open) = ([0; 4], [0; 4], false);
        for (at, part) in parts.into_iter().enumerate() {
            (first[at], last[at]) = numbers(part)?;
            // Behind a number with several values, all values must be in the range.
            if open && (first[at], last[at]) != (0, u8::MAX) {
                return Err(InvalidRange);
            }
            open |= first[at] != last[at];
        }
        Range::of(Ipv4Addr::from(first).into(), Ipv4Addr::from(last).into())
    }
}

impl Range {
    fn of(first: IpAddr, last: IpAddr) -> std::result::Result<Range, InvalidRange> {
        if first.is_ipv4() == last.is_ipv4() && first <= last { Ok(Range { first, last }) } else { Err(InvalidRange) }
    }

    fn of_prefix(address: IpAddr, bits: u32) -> std::result::Result<Range, InvalidRange> {
        match address {
            IpAddr::V4(address) if bits <= 32 => {
                let rest = u32::MAX.checked_shr(bits).unwrap_or(0);
                let at = |bits: u32| IpAddr::from(Ipv4Addr::from(bits));
                Range::of(at(address.to_bits() & !rest), at(address.to_bits() | rest))
            }
            // The addresses of clients are compared in their IPv4 form.
            IpAddr::V6(address) if bits <= 128 && address.to_ipv4_mapped().is_none() => {
                let rest = u128::MAX.checked_shr(bits).unwrap_or(0);
                let at = |bits: u128| IpAddr::from(std::net::Ipv6Addr::from(bits));
                Range::of(at(address.to_bits() & !rest), at(address.to_bits() | rest))
            }
            _ => Err(InvalidRange),
        }
    }
}

/// Parses `N`, `[N-M]`, `[N]` or `*`.
fn numbers(text: &str) -> std::result::Result<(u8, u8), InvalidRange> {
    let number = |text: &str| text.parse::<u8>().map_err(|_| InvalidRange);
    if text == "*" {
        return Ok((0, u8::MAX));
    }
    let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else {
        return number(text).map(|number| (number, number));
    };
    let (first, last) = inner.split_once('-').unwrap_or((inner, inner));
    let (first, last) = (number(first)?, number(last)?);
    if first <= last { Ok((first, last)) } else { Err(InvalidRange) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(text: &str) -> Option<String> {
        text.parse::<Range>().ok().map(|range| format!("{} {}", range.first, range.last))
    }

    #[test]
    fn ranges_of_addresses_are_parsed_in_lustres_forms() {
        for (text, range) in [
            ("10.0.0.7@tcp", "10.0.0.7 10.0.0.7"),
            ("10.0.[1-4].[0-255]@tcp", "10.0.1.0 10.0.4.255"),
            ("10.0.0.[3-9]@tcp", "10.0.0.3 10.0.0.9"),
            ("10.*.*.*@tcp", "10.0.0.0 10.255.255.255"),
            ("*.*.*.*@tcp", "0.0.0.0 255.255.255.255"),
            ("10.0.5.9/16@tcp", "10.0.0.0 10.0.255.255"),
            ("0.0.0.0/0@tcp", "0.0.0.0 255.255.255.255"),
            ("10.0.0.7/32@tcp", "10.0.0.7 10.0.0.7"),
            ("fd00::/64@tcp", "fd00:: fd00::ffff:ffff:ffff:ffff"),
            ("10.0.0.1@tcp:10.0.1.9@tcp", "10.0.0.1 10.0.1.9"),
        ] {
            assert_eq!(ends(text).as_deref(), Some(range), "{text}");
        }
        for text in [
            "",
            "10.0.0.7",
            "10.0.0.7@o2ib",
            "10.0.0@tcp",
            "10.0.[1-4].5@tcp",
            "10.0.[4-1].*@tcp",
            "10.0.0.256@tcp",
            "10.0.0.0/33@tcp",
            "::ffff:10.0.0.0/104@tcp",
            "10.0.0.9@tcp:10.0.0.1@tcp",
            "10.0.0.1@tcp:fd00::@tcp",
            "*@tcp",
            "10.0.0.[1,3]@tcp",
        ] {
            assert_eq!(ends(text), None, "{text}");
        }
    }

    #[test]
    fn client_has_the_nodemap_of_its_key_else_of_its_address_else_the_default() {
        let (mut a, mut b) = (Nodemap::new("a"), Nodemap::new("b"));
        a.ranges = vec!["10.0.0.*@tcp".parse().unwrap()];
        b.ranges = vec!["10.0.1.*@tcp".parse().unwrap()];
        let mut all = Nodemaps { active: true, maps: vec![a, b] };
        let name = |all: &Nodemaps, named, ip: &str| match all.of(named, ip.parse().ok()) {
            Rules::Of(map) => map.name.clone(),
            rules => format!("{rules:?}"),
        };
        assert_eq!(name(&all, None, "10.0.1.2"), "b");
        assert_eq!(name(&all, None, "::ffff:10.0.1.2"), "b", "an IPv4 address of a socket for IPv6");
        assert_eq!(name(&all, Some("a"), "10.0.1.2"), "a");
        assert_eq!(name(&all, None, "10.0.2.2"), "default");
        assert_eq!(name(&all, Some("c"), "10.0.1.2"), "Unknown");
        all.active = false;
        assert_eq!(name(&all, None, "10.0.1.2"), "None");
        assert_eq!(name(&all, Some("a"), "10.0.1.2"), "a", "also if nodemaps are not active");
    }

    fn mapped(map: &Nodemap, uid: u32, gid: u32, groups: &[u32]) -> Result<(u32, u32, Vec<u32>)> {
        let mut cred = Cred { uid, gid, groups: Some(groups.to_vec()) };
        map.map(&mut cred).map(|()| (cred.uid, cred.gid, cred.groups.unwrap_or_default()))
    }

    #[test]
    fn users_are_mapped_or_squashed() {
        let mut map = Nodemap::new("a");
        (map.uids, map.gids) = (vec![(1000, 5000)], vec![(100, 500)]);
        (map.squash_uid, map.squash_gid) = (99, 98);
        assert_eq!(mapped(&map, 1000, 100, &[100, 0, 7]), Ok((5000, 500, vec![500])));
        assert_eq!(mapped(&map, 1001, 100, &[100]), Ok((99, 98, vec![])));
        assert_eq!(mapped(&map, 0, 0, &[0]), Ok((99, 98, vec![])));
        assert_eq!((map.uid_for_client(5000), map.uid_for_client(0), map.gid_for_client(7)), (1000, 99, 98));
        assert!(map.may_be(5000) && map.may_be(99) && !map.may_be(1000) && !map.may_be(0));
        assert!(map.may_be_in(500) && map.may_be_in(98) && !map.may_be_in(100) && !map.may_be_in(0));
        map.deny_unknown = true;
        assert_eq!((mapped(&map, 1001, 100, &[]), map.may_be(99)), (Err(Errno::EACCES), false));
        (map.trusted, map.deny_unknown) = (true, false);
        assert_eq!(mapped(&map, 1001, 7, &[0, 8]), Ok((1001, 7, vec![8])), "group 0 is squashed, too");
        assert_eq!(mapped(&map, 0, 0, &[0]), Ok((99, 98, vec![])));
        assert_eq!((map.uid_for_client(0), map.uid_for_client(1001)), (0, 1001), "files of root are shown as such");
        map.uids = vec![(1000, 0)];
        assert!(!map.may_be(0), "1000 is trusted, not mapped");
        map.admin = true;
        assert_eq!(mapped(&map, 0, 0, &[0]), Ok((0, 0, vec![0])));
        assert!(map.may_be(0) && map.may_be(1001));
    }
}
