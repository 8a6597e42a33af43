//! Nodemaps (Lustre's word): their changes, the line of text in which `lctl` requests a change, and
//! their parameters.
//!
//! * [`apply`]: makes a change;
//! * [`text`]: the line of text of a change, and the names of properties;
//! * [`show`]: the values of parameters.
//!
//! Invariants:
//! * Nodemaps are sorted by name, ranges by their first address, mapped ids by those of the
//!   clients.
//! * No address is in two ranges. A nodemap maps no id twice, on neither side.
//! * The nodemap [`DEFAULT`] has neither ranges nor mapped ids. It exists even if it is not stored.
//! * All nodemaps together are a small part of a configuration, because their ranges and ids are
//!   bounded.
//! * A refused change changes nothing.

pub mod show;
pub mod text;

use sheen_wire::nodemap::{
    DEFAULT, FILESET_MAX, IDS_MAX, NAME_MAX, NODEMAPS_MAX, Nodemap, Nodemaps, RANGES_MAX, Range, is_name,
};
use sheen_wire::{Errno, Result};

/// Names that no nodemap has: `nodemap.active` is a parameter, and `lctl nodemap_info` has the
/// others as arguments.
pub const RESERVED: [&str; 3] = ["active", "all", "list"];
/// Maximum ranges of all nodemaps together.
pub const ALL_RANGES_MAX: usize = 1 << 12;
/// Maximum ids that all nodemaps together map, of users and groups.
pub const ALL_IDS_MAX: usize = 1 << 16;
/// The word that removes a fileset, as an empty path does.
pub const CLEAR: &str = "clear";
/// The largest id. The next number stands for no id in chown(2).
pub const ID_MAX: u32 = u32::MAX - 1;

/// A change of the nodemaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodemapChange<'a> {
    /// Whether ranges and the nodemap [`DEFAULT`] apply.
    Activate(bool),
    /// A change of one nodemap.
    Map {
        /// Its name.
        name: &'a str,
        /// The change.
        change: MapChange<'a>,
    },
}

/// A change of one nodemap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapChange<'a> {
    /// Creates it.
    New,
    /// Deletes it.
    Delete,
    /// Sets a property.
    Set {
        /// The property.
        property: Property,
        /// Its value: 0 or 1 of a flag, else an id.
        value: u32,
    },
    /// Adds addresses of clients.
    AddRange(Range),
    /// Deletes a range, as a whole.
    DeleteRange(Range),
    /// Maps an id.
    AddId(IdPair),
    /// Ends the mapping of an id.
    DeleteId(IdPair),
    /// Confines the clients to a directory. Empty or [`CLEAR`]: to none.
    SetFileset(&'a str),
}

/// A property that is a flag or an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Property {
    /// [`Nodemap::admin`].
    Admin,
    /// [`Nodemap::trusted`].
    Trusted,
    /// [`Nodemap::deny_unknown`].
    DenyUnknown,
    /// [`Nodemap::audit`].
    AuditMode,
    /// [`Nodemap::read_only`].
    ReadonlyMount,
    /// [`Nodemap::squash_uid`].
    SquashUid,
    /// [`Nodemap::squash_gid`].
    SquashGid,
}

/// Kind of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdType {
    /// Of a user.
    Uid,
    /// Of a group.
    Gid,
}

/// An id of the clients, and the id of the file system to which it is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdPair {
    /// Kind of both.
    pub id_type: IdType,
    /// The clients' id.
    pub client: u32,
    /// The file system's id.
    pub fs: u32,
}

impl Property {
    /// All properties.
    pub const ALL: [Property; 7] = [
        Property::Admin,
        Property::Trusted,
        Property::DenyUnknown,
        Property::AuditMode,
        Property::ReadonlyMount,
        Property::SquashUid,
        Property::SquashGid,
    ];

    /// Returns the largest value.
    pub fn max(self) -> u32 {
        match self {
            Property::SquashUid | Property::SquashGid => ID_MAX,
            _ => 1,
        }
    }

    /// Returns the value in a nodemap.
    pub fn get(self, map: &Nodemap) -> u32 {
        match self {
            Property::Admin => map.admin.into(),
            Property::Trusted => map.trusted.into(),
            Property::DenyUnknown => map.deny_unknown.into(),
            Property::AuditMode => map.audit.into(),
            Property::ReadonlyMount => map.read_only.into(),
            Property::SquashUid => map.squash_uid,
            Property::SquashGid => map.squash_gid,
        }
    }

    fn set(self, map: &mut Nodemap, value: u32) {
        match self {
            Property::Admin => map.admin = value != 0,
            Property::Trusted => map.trusted = value != 0,
            Property::DenyUnknown => map.deny_unknown = value != 0,
            Property::AuditMode => map.audit = value != 0,
            Property::ReadonlyMount => map.read_only = value != 0,
            Property::SquashUid => map.squash_uid = value,
            Property::SquashGid => map.squash_gid = value,
        }
    }
}

/// Checks whether a nodemap may have this name. Does not exclude [`RESERVED`] names.
///
/// # Errors
/// ENAMETOOLONG: more than [`NAME_MAX`] characters. EINVAL: no characters, or others than letters,
/// digits and `_`.
pub fn check_name(name: &str) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if is_name(name) { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Checks whether clients can be confined to this directory. Empty and [`CLEAR`]: to none.
///
/// # Errors
/// ENAMETOOLONG: more than [`FILESET_MAX`] bytes. EINVAL: the path does not begin with `/`, or one
/// of its components is empty, `.` or `..`. Or the path contains a control character.
pub fn check_fileset(path: &str) -> Result<()> {
    if path.len() > FILESET_MAX {
        return Err(Errno::ENAMETOOLONG);
    }
    if path.is_empty() || path == CLEAR {
        return Ok(());
    }
    let is_fine = |part: &str| !["", ".", ".."].contains(&part) && !part.contains(char::is_control);
    let is_path = path.strip_prefix('/').is_some_and(|path| path.split('/').all(is_fine));
    if is_path { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Changes the nodemaps.
///
/// # Errors
/// As [`check_name`] and [`check_fileset`]; and
/// * ENOENT: there is no such nodemap, or it has no such range or mapping;
/// * EEXIST: there is such a nodemap; or an address of the range is in a range of any nodemap; or
///   the nodemap maps the id already, on either side;
/// * EINVAL: a [`RESERVED`] name; a value above [`Property::max`]; an id above [`ID_MAX`];
/// * ENOSPC: there are already [`NODEMAPS_MAX`] nodemaps; or the nodemap has [`RANGES_MAX`] ranges,
///   or [`IDS_MAX`] ids of this kind; or all of them have [`ALL_RANGES_MAX`] or [`ALL_IDS_MAX`];
/// * EPERM: the nodemap [`DEFAULT`] would be deleted, or get a range or a mapping.
pub fn apply(all: &mut Nodemaps, change: &NodemapChange<'_>) -> Result<()> {
    let (name, change) = match *change {
        NodemapChange::Activate(active) => {
            all.active = active;
            return Ok(());
        }
        NodemapChange::Map { name, change } => (name, change),
    };
    check_name(name)?;
    match change {
        MapChange::Set { .. } | MapChange::SetFileset(_) => {}
        MapChange::New if name == DEFAULT => return Err(Errno::EEXIST),
        _ if name == DEFAULT => return Err(Errno::EPERM),
        _ => {}
    }
    match change {
        MapChange::New => create(all, name),
        MapChange::Delete => {
            let at = position(all, name).map_err(|_| Errno::ENOENT)?;
            all.maps.remove(at);
            Ok(())
        }
        MapChange::Set { value, property } if value > property.max() => Err(Errno::EINVAL),
        MapChange::Set { value, property } => stored(all, name).map(|map| property.set(map, value)),
        MapChange::AddRange(range) => add_range(all, name, range),
        MapChange::DeleteRange(range) => remove(&mut stored(all, name)?.ranges, &range),
        MapChange::AddId(pair) => add_id(all, name, pair),
        MapChange::DeleteId(pair) => remove(ids(stored(all, name)?, pair.id_type), &(pair.client, pair.fs)),
        MapChange::SetFileset(path) => {
            check_fileset(path)?;
            let path = if path == CLEAR { "" } else { path };
            stored(all, name).map(|map| map.fileset = path.to_owned())
        }
    }
}

fn position(all: &Nodemaps, name: &str) -> Result<usize, usize> {
    all.maps.binary_search_by(|map| map.name.as_str().cmp(name))
}

/// Returns a nodemap to change it. Stores [`DEFAULT`] at its first change.
fn stored<'a>(all: &'a mut Nodemaps, name: &str) -> Result<&'a mut Nodemap> {
    let at = match position(all, name) {
        Ok(at) => at,
        Err(at) if name == DEFAULT => {
            all.maps.insert(at, Nodemap::new(DEFAULT));
            at
        }
        Err(_) => return Err(Errno::ENOENT),
    };
    Ok(&mut all.maps[at])
}

fn create(all: &mut Nodemaps, name: &str) -> Result<()> {
    let Err(at) = position(all, name) else { return Err(Errno::EEXIST) };
    if RESERVED.contains(&name) {
        return Err(Errno::EINVAL);
    }
    if all.maps.iter().filter(|map| map.name != DEFAULT).count() >= NODEMAPS_MAX {
        return Err(Errno::ENOSPC);
    }
    all.maps.insert(at, Nodemap::new(name));
    Ok(())
}

fn add_range(all: &mut Nodemaps, name: &str, range: Range) -> Result<()> {
    let is_taken = all.maps.iter().any(|map| map.ranges.iter().any(|other| other.meets(&range)));
    let count: usize = all.maps.iter().map(|map| map.ranges.len()).sum();
    let map = stored(all, name)?;
    if is_taken {
        return Err(Errno::EEXIST);
    }
    if map.ranges.len() >= RANGES_MAX || count >= ALL_RANGES_MAX {
        return Err(Errno::ENOSPC);
    }
    let at = map.ranges.partition_point(|other| other.first < range.first);
    map.ranges.insert(at, range);
    Ok(())
}

fn add_id(all: &mut Nodemaps, name: &str, pair: IdPair) -> Result<()> {
    let IdPair { id_type, client, fs } = pair;
    let count: usize = all.maps.iter().map(|map| map.uids.len() + map.gids.len()).sum();
    let ids = ids(stored(all, name)?, id_type);
    if client > ID_MAX || fs > ID_MAX {
        return Err(Errno::EINVAL);
    }
    if ids.iter().any(|(theirs, ours)| *theirs == client || *ours == fs) {
        return Err(Errno::EEXIST);
    }
    if ids.len() >= IDS_MAX || count >= ALL_IDS_MAX {
        return Err(Errno::ENOSPC);
    }
    let at = ids.partition_point(|(theirs, _)| *theirs < client);
    ids.insert(at, (client, fs));
    Ok(())
}

fn ids(map: &mut Nodemap, id_type: IdType) -> &mut Vec<(u32, u32)> {
    match id_type {
        IdType::Uid => &mut map.uids,
        IdType::Gid => &mut map.gids,
    }
}

fn remove<T: PartialEq>(list: &mut Vec<T>, item: &T) -> Result<()> {
    let at = list.iter().position(|other| other == item).ok_or(Errno::ENOENT)?;
    list.remove(at);
    Ok(())
}

#[cfg(test)]
mod tests;
