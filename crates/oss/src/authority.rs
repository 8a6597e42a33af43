//! Checks that a client has the authority for its requests.
//!
//! Servers may use all objects. A client with a host's or user's key needs a capability for each
//! object that it reads or changes. It presents one before, so a request costs a look-up for each
//! object. A client without a valid capability gets [`Errno::NO_CAPABILITY`], and presents it
//! again.

use sheen_rpc::Export;
use sheen_wire::{
    Errno, Result,
    auth::Role,
    ost::{CAPABILITY_PURPOSE, Capability, Request},
};

use crate::{Ost, capabilities::Held};

impl Ost {
    /// Checks that the client has the authority for a request.
    ///
    /// # Errors
    /// EPERM: only servers send it. [`Errno::NO_CAPABILITY`]: the client has no right to use an
    /// object.
    pub(crate) fn check_authority(&self, export: &Export, request: &Request) -> Result<()> {
        match export.role() {
            Role::Server => Ok(()),
            _ if request.is_of_servers() => Err(Errno::EPERM),
            // In a recovery the MDT may be stopped as well, so clients cannot get new ones.
            Role::Host(_) | Role::User(_) if !self.recovery.is_ended() => {
                self.capabilities.check(export, request, i64::MIN)
            }
            Role::Host(_) | Role::User(_) => self.capabilities.check(export, request, self.rt.wall().sec),
        }
    }

    /// Records the valid ones of these capabilities.
    pub(crate) fn present(&self, export: &Export, capabilities: &[Capability]) {
        let Some(holder) = export.role().holder() else { return };
        let Some(signer) = self.net.signer(CAPABILITY_PURPOSE) else { return };
        let fsname = &self.store.identity().fsname;
        let is_valid = |capability: &&Capability| {
            let Capability { object, rights, expires, proof } = capability;
            signer.is_valid(&Capability::message(fsname, &holder, *object, *rights, *expires), proof)
        };
        // Before the lock that all clients share.
        let valid: Vec<&Capability> = capabilities.iter().filter(is_valid).collect();
        let held = valid.into_iter().map(|c| (c.object, Held { rights: c.rights, expires: c.expires }));
        self.capabilities.hold(export, held, self.rt.wall().sec);
        if export.is_ended() {
            self.capabilities.disconnected(export); // the server will not report that again
        }
    }
}
