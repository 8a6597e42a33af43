//! The capabilities that clients have presented. They are valid for the export, until they expire.

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use sheen_rpc::Export;
use sheen_wire::{Errno, Fid, Result, ost::Request};

/// Maximum objects of one client. A client that presents more has to present some again.
const OBJECTS_MAX: usize = 1 << 16;

/// The rights of clients with a host's or user's key, by export and object.
#[derive(Default)]
pub(crate) struct Capabilities(RwLock<FxHashMap<u64, FxHashMap<Fid, Held>>>);

/// The rights on one object.
#[derive(Clone, Copy)]
pub(crate) struct Held {
    pub rights: u8,
    /// In seconds since 1970.
    pub expires: i64,
}

impl Capabilities {
    /// Records rights.
    pub fn hold(&self, export: &Export, objects: impl Iterator<Item = (Fid, Held)>, now: i64) {
        let mut all = self.0.write();
        let of_client = all.entry(export.id()).or_default();
        for (object, new) in objects {
            if of_client.len() >= OBJECTS_MAX && !of_client.contains_key(&object) {
                of_client.retain(|_, held| held.expires > now);
                if of_client.len() >= OBJECTS_MAX {
                    of_client.clear();
                }
            }
            of_client.insert(object, new);
        }
    }

    /// Checks that the client has all rights that the request needs.
    ///
    /// # Errors
    /// [`Errno::NO_CAPABILITY`]: it lacks one.
    pub fn check(&self, export: &Export, request: &Request, now: i64) -> Result<()> {
        let all = self.0.read();
        let of_client = all.get(&export.id());
        let mut has_all = true;
        request.uses(|object, right| {
            let held = of_client.and_then(|held| held.get(&object));
            has_all &= held.is_some_and(|held| held.rights & right == right && held.expires > now);
        });
        if has_all { Ok(()) } else { Err(Errno::NO_CAPABILITY) }
    }

    /// Gives a client the rights of objects for their present names.
    pub fn followed(&self, export: &Export, objects: &[Fid], names: &[Fid]) {
        let mut all = self.0.write();
        let Some(of_client) = all.get_mut(&export.id()) else { return };
        for (object, name) in objects.iter().zip(names) {
            if let Some(held) = of_client.get(object).copied() {
                of_client.insert(*name, held);
            }
        }
    }

    /// Forgets a client.
    pub fn disconnected(&self, export: &Export) {
        self.0.write().remove(&export.id());
    }
}
