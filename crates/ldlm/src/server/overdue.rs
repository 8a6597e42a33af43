//! Missed deadlines: the lock for which a client did not answer a callback in time.

use std::{fmt, time::Duration};

use sheen_wire::ldlm::{LockId, Mode, Policy, Resource};

/// A lock whose holder did not answer a blocking or glimpse callback in time. Its text follows
/// Lustre's "lock callback timer expired".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overdue {
    /// The lock.
    pub id: LockId,
    /// Its resource.
    pub resource: Resource,
    /// Its mode.
    pub mode: Mode,
    /// Its range or bits.
    pub policy: Policy,
    /// Whether the missed answer is that to a glimpse; otherwise the client did not cancel the
    /// lock.
    pub glimpse: bool,
    /// Time since the callback, or since the last I/O under the lock.
    pub waited: Duration,
}

impl fmt::Display for Overdue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let callback = if self.glimpse { "glimpse" } else { "lock" };
        let (id, mode, fid) = (self.id.0, self.mode.name(), self.resource.fid);
        write!(
            f,
            "{callback} callback timer expired after {} s: lock: {id:#x} mode: {mode} res: {fid}",
            self.waited.as_secs_f64().round()
        )?;
        match self.policy {
            Policy::Extent { start, end, gid: 0 } => write!(f, " type: EXT [{start}->{end}]"),
            Policy::Extent { start, end, gid } => write!(f, " type: EXT [{start}->{end}] gid: {gid}"),
            Policy::Bits { bits, .. } => write!(f, " bits: {bits:#x} type: IBT"),
            Policy::Flock(lock) => write!(f, " type: FLK pid: {} [{}->{}]", lock.pid, lock.start, lock.end),
        }
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::Fid;

    use super::*;

    #[test]
    fn overdue_lock_is_named_as_in_lustre() {
        let (fid, waited) = (Fid::new(0x2_8000_0401, 2), Duration::from_millis(20_001));
        let extent = Policy::extent(0, u64::MAX);
        let resource = Resource::extent(fid);
        let overdue = Overdue { id: LockId(0x7e9e), resource, mode: Mode::Pw, policy: extent, glimpse: false, waited };
        assert_eq!(
            overdue.to_string(),
            "lock callback timer expired after 20 s: lock: 0x7e9e mode: PW res: [0x280000401:0x2:0x0] \
             type: EXT [0->18446744073709551615]"
        );
        let (resource, policy) = (Resource::bits(fid), Policy::bits(0x13));
        let overdue = Overdue { resource, policy, mode: Mode::Pr, glimpse: true, ..overdue };
        assert_eq!(
            overdue.to_string(),
            "glimpse callback timer expired after 20 s: lock: 0x7e9e mode: PR res: [0x280000401:0x2:0x0] bits: 0x13 \
             type: IBT"
        );
    }
}
