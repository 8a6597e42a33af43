//! Denied requests as events of the audit trail.

use sheen_lnet::{Denied, Event};
use sheen_wire::{
    Errno, Protocol, Subject,
    auth::{KeyId, Role},
};

use crate::service::Export;

/// Maximum bytes of a name in an event.
const NAME_MAX: usize = 255;

/// The part of a request that an audit trail shows if the request is denied. Taken before the
/// request is executed, which consumes it.
pub(crate) struct Attempt {
    op: &'static str,
    subject: Subject,
}

/// Whether the error means that the client has no right to what it requested.
///
/// [`Errno::NO_CAPABILITY`] is the only answer of an OST to a client without rights on an object. A
/// mount gets it, too, if the OST has forgotten the mount's capabilities. The two cannot be
/// distinguished here, so both are recorded.
pub(crate) fn is_denial(errno: Errno) -> bool {
    matches!(errno, Errno::EACCES | Errno::EPERM | Errno::NO_CAPABILITY)
}

impl Attempt {
    /// Boxed, because it is held while the request is executed.
    pub(crate) fn of<P: Protocol>(request: &P::Request) -> Box<Attempt> {
        let mut subject = P::subject(request);
        // Events wait in memory, and a refused request can have any name.
        subject.name = subject.name.map(|name| name.slice(..name.len().min(NAME_MAX)));
        Box::new(Attempt { op: P::op(request), subject })
    }

    /// Returns the event that a target has denied the request of a client. `key`: that of the
    /// client's connection.
    pub(crate) fn denied(self, target: &str, export: &Export, key: Option<KeyId>, errno: Errno) -> Event {
        let Attempt { op, subject: Subject { cred, fid, name } } = self;
        // The credentials of the key's user count, whatever the request says.
        let cred = match export.role() {
            Role::User(user) => {
                let own = cred.map(|(_, gid)| gid).filter(|gid| user.groups.contains(gid));
                Some((user.uid, own.unwrap_or(user.gid)))
            }
            _ => cred,
        };
        Event::Denied(Box::new(Denied {
            target: target.to_owned(),
            nid: export.nid(),
            client: export.client().to_owned(),
            key,
            role: export.role().to_string(),
            op,
            error: if errno == Errno::NO_CAPABILITY { "NO_CAPABILITY" } else { errno.name() },
            errno: errno.0,
            uid: cred.map(|(uid, _)| uid),
            gid: cred.map(|(_, gid)| gid),
            fid,
            name: name.map(|name| String::from_utf8_lossy(&name).into_owned()),
        }))
    }
}
