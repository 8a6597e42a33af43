//! The nodemaps that the MGS of this machine stores.

use std::io;

use sheen_mgs::nodemaps::show;
use sheen_wire::{Errno, nodemap::Nodemaps};

use super::super::{mgs, tool::Tool};

/// The place of the nodemaps on this machine.
pub struct Place {
    /// The parameter of the MGS that shows and changes them.
    pub param: String,
    /// The file systems of the MGS.
    fsnames: Vec<String>,
}

/// Finds the nodemaps. On failure it has printed an error.
///
/// # Errors
/// The output cannot be written.
pub fn find(command: &str, tool: &mut Tool<'_>) -> io::Result<Result<Place, Errno>> {
    let name = "mgs.MGS.nodemaps";
    let of = |mgs: mgs::FoundMgs| {
        let param = mgs.fsname.map_or_else(|| name.to_owned(), |fsname| format!("{name}.{fsname}"));
        Place { param, fsnames: mgs.fsnames }
    };
    Ok(mgs::find(command, None, tool)?.map(of))
}

/// Waits until the MDTs of this machine have the same nodemaps as the MGS.
///
/// # Errors
/// The output cannot be written.
pub fn wait_until_received(place: &Place, tool: &mut Tool<'_>) -> io::Result<()> {
    let stored = mgs::values(&place.param, tool);
    let of_mdts = |fsname: &String| mgs::values(&format!("mdt.{fsname}-MDT*.nodemaps"), tool);
    let received = mgs::wait_for_mdts(|| {
        let mut seen = place.fsnames.iter().flat_map(of_mdts);
        seen.all(|nodemaps| stored.first() == Some(&nodemaps))
    });
    if received { Ok(()) } else { writeln!(tool.err, "Warning, not all MDTs have received the change of nodemaps yet") }
}

/// Returns the nodemaps that a parameter shows. `None`: the MGS is of a release without nodemaps,
/// or does not answer.
pub fn read(param: &str, tool: &Tool<'_>) -> Option<Nodemaps> {
    mgs::values(param, tool).first().and_then(|text| show::parse(text))
}

/// Returns the nodemaps. On failure it has printed an error.
///
/// # Errors
/// The output cannot be written.
pub fn nodemaps(command: &str, tool: &mut Tool<'_>) -> io::Result<Result<Nodemaps, Errno>> {
    let place = match find(command, tool)? {
        Ok(place) => place,
        Err(errno) => return Ok(Err(errno)),
    };
    if let Some(all) = read(&place.param, tool) {
        return Ok(Ok(all));
    }
    writeln!(tool.err, "error: {command}: the MGS shows no nodemaps: restart it with this release of Sheen")?;
    Ok(Err(Errno::EOPNOTSUPP))
}
