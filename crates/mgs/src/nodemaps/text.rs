//! Changes of nodemaps as text, and the names of properties.

use sheen_wire::nodemap::Range;
use sheen_wire::{Errno, Result};

use super::{IdPair, IdType, MapChange, NodemapChange, Property};

impl Property {
    /// Returns its name in `lctl nodemap_modify`.
    pub fn name(self) -> &'static str {
        match self {
            Property::Admin => "admin",
            Property::Trusted => "trusted",
            Property::DenyUnknown => "deny_unknown",
            Property::AuditMode => "audit_mode",
            Property::ReadonlyMount => "readonly_mount",
            Property::SquashUid => "squash_uid",
            Property::SquashGid => "squash_gid",
        }
    }

    /// Returns the property of this name.
    pub fn of_name(name: &str) -> Option<Property> {
        Property::ALL.into_iter().find(|property| property.name() == name)
    }
}

impl IdType {
    /// Returns its name: `uid` or `gid`.
    pub fn name(self) -> &'static str {
        match self {
            IdType::Uid => "uid",
            IdType::Gid => "gid",
        }
    }

    /// Returns the kind of this name.
    pub fn of_name(name: &str) -> Option<IdType> {
        [IdType::Uid, IdType::Gid].into_iter().find(|id_type| id_type.name() == name)
    }
}

impl IdPair {
    /// Parses `CLIENT_ID:FS_ID`.
    pub fn parse(id_type: IdType, text: &str) -> Option<IdPair> {
        let (client, fs) = text.split_once(':')?;
        Some(IdPair { id_type, client: client.parse().ok()?, fs: fs.parse().ok()? })
    }
}

/// Returns a change as text, for the parameter `mgs.MGS.nodemaps`. It begins with the name of the
/// command of `lctl`: `nodemap_modify NAME PROPERTY VALUE`.
pub fn write(change: &NodemapChange<'_>) -> String {
    let (name, change) = match *change {
        NodemapChange::Activate(active) => return format!("nodemap_activate {}", u8::from(active)),
        NodemapChange::Map { name, change } => (name, change),
    };
    let range = |range: Range| format!("{name} {}@tcp:{}@tcp", range.first, range.last);
    let ids = |pair: IdPair| format!("{name} {} {}:{}", pair.id_type.name(), pair.client, pair.fs);
    match change {
        MapChange::New => format!("nodemap_add {name}"),
        MapChange::Delete => format!("nodemap_del {name}"),
        MapChange::Set { property, value } => format!("nodemap_modify {name} {} {value}", property.name()),
        MapChange::AddRange(added) => format!("nodemap_add_range {}", range(added)),
        MapChange::DeleteRange(deleted) => format!("nodemap_del_range {}", range(deleted)),
        MapChange::AddId(added) => format!("nodemap_add_idmap {}", ids(added)),
        MapChange::DeleteId(deleted) => format!("nodemap_del_idmap {}", ids(deleted)),
        MapChange::SetFileset(path) => format!("nodemap_set_fileset {name} {path}"),
    }
}

/// Parses what [`write`] wrote. A fileset can contain spaces.
///
/// # Errors
/// EINVAL: anything else.
pub fn read(text: &str) -> Result<NodemapChange<'_>> {
    let (command, rest) = text.split_once(' ').ok_or(Errno::EINVAL)?;
    if command == "nodemap_activate" {
        return match rest {
            "0" => Ok(NodemapChange::Activate(false)),
            "1" => Ok(NodemapChange::Activate(true)),
            _ => Err(Errno::EINVAL),
        };
    }
    let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let change = match command {
        "nodemap_add" if rest.is_empty() => MapChange::New,
        "nodemap_del" if rest.is_empty() => MapChange::Delete,
        "nodemap_modify" => {
            let (property, value) = rest.split_once(' ').ok_or(Errno::EINVAL)?;
            let property = Property::of_name(property).ok_or(Errno::EINVAL)?;
            MapChange::Set { property, value: value.parse().map_err(|_| Errno::EINVAL)? }
        }
        "nodemap_add_range" => MapChange::AddRange(rest.parse().map_err(|_| Errno::EINVAL)?),
        "nodemap_del_range" => MapChange::DeleteRange(rest.parse().map_err(|_| Errno::EINVAL)?),
        "nodemap_add_idmap" => MapChange::AddId(ids(rest).ok_or(Errno::EINVAL)?),
        "nodemap_del_idmap" => MapChange::DeleteId(ids(rest).ok_or(Errno::EINVAL)?),
        "nodemap_set_fileset" => MapChange::SetFileset(rest),
        _ => return Err(Errno::EINVAL),
    };
    Ok(NodemapChange::Map { name, change })
}

/// Parses `uid CLIENT_ID:FS_ID`.
fn ids(text: &str) -> Option<IdPair> {
    let (id_type, pair) = text.split_once(' ')?;
    IdPair::parse(IdType::of_name(id_type)?, pair)
}
