//! The reason for which the MGS refused a change of nodemaps.

use sheen_mgs::nodemaps::{ALL_IDS_MAX, ALL_RANGES_MAX, IdPair, MapChange, NodemapChange};
use sheen_wire::{
    Errno,
    nodemap::{DEFAULT, IDS_MAX, NODEMAPS_MAX, Nodemaps, RANGES_MAX, Range},
};

/// Returns the reason, and a hint if there is something to do. `all`: the present nodemaps.
pub fn text(change: &NodemapChange<'_>, errno: Errno, all: &Nodemaps) -> String {
    let NodemapChange::Map { name, change } = *change else { return of_mgs(errno) };
    match (errno, change) {
        (Errno::ENOENT, _) if name != DEFAULT && all.get(name).is_none() => {
            format!("no nodemap '{name}': 'lctl nodemap_info' lists all")
        }
        (Errno::ENOENT, MapChange::DeleteRange(range)) => {
            format!("nodemap '{name}' has no range {}: 'lctl nodemap_info {name}' shows its ranges", short(&range))
        }
        (Errno::ENOENT, MapChange::DeleteId(pair)) => {
            let IdPair { id_type, client, fs } = pair;
            let id_type = id_type.name();
            format!(
                "nodemap '{name}' does not map {id_type} {client} to {fs}: 'lctl nodemap_info {name}' shows its mappings"
            )
        }
        (Errno::EEXIST, MapChange::New) => format!("nodemap '{name}' exists already"),
        (Errno::EEXIST, MapChange::AddRange(range)) => taken(&range, all),
        (Errno::EEXIST, MapChange::AddId(pair)) => {
            let IdPair { id_type, client, fs } = pair;
            let id_type = id_type.name();
            format!(
                "nodemap '{name}' maps {id_type} {client}, or to {id_type} {fs}, already: nodemap_del_idmap ends it"
            )
        }
        (Errno::EPERM, MapChange::Delete) => format!("nodemap '{DEFAULT}' cannot be deleted"),
        (Errno::EPERM, _) => {
            format!("nodemap '{DEFAULT}' has no ranges and no mappings: it is for clients that are in no other nodemap")
        }
        (Errno::EINVAL, MapChange::New) => format!("the name '{name}' is reserved"),
        (Errno::ENOSPC, MapChange::New) => {
            format!("the MGS already stores {NODEMAPS_MAX} nodemaps; 'lctl nodemap_del' deletes one")
        }
        (Errno::ENOSPC, MapChange::AddRange(_)) => {
            format!("nodemap '{name}' has {RANGES_MAX} ranges, or all nodemaps have {ALL_RANGES_MAX}")
        }
        (Errno::ENOSPC, MapChange::AddId(_)) => {
            format!("nodemap '{name}' maps {IDS_MAX} ids of this type, or all nodemaps map {ALL_IDS_MAX} ids")
        }
        (errno, _) => format!("nodemap '{name}': {}", of_mgs(errno)),
    }
}

/// Names the nodemap that has an address of a range.
fn taken(range: &Range, all: &Nodemaps) -> String {
    let meets = |other: &&Range| other.meets(range);
    let owner = all.maps.iter().find_map(|map| map.ranges.iter().find(meets).map(|other| (&map.name, other)));
    let range = short(range);
    match owner {
        Some((owner, other)) => format!("nodemap '{owner}' has addresses of {range} already: {}", short(other)),
        None => format!("a nodemap has addresses of {range} already"),
    }
}

/// Returns a range in the form that the option `--range` accepts.
fn short(range: &Range) -> String {
    format!("{}@tcp:{}@tcp", range.first, range.last)
}

/// Returns a reason that does not depend on the change.
fn of_mgs(errno: Errno) -> String {
    match errno {
        Errno::ENODEV => "the MGS does not answer, or is of a release without nodemaps: restart it".to_owned(),
        Errno::ETIMEDOUT => "the MGS waits for its disk; the change is made when the disk responds".to_owned(),
        Errno::EIO => "the MGS cannot write to its disk; its log names the cause".to_owned(),
        errno => errno.to_string(),
    }
}
