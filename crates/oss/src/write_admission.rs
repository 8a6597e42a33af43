//! Write admission: bounds the bytes that writes hold in memory while they wait for locks.
//!
//! Invariant: waiting writes never hold more than the bounds below. A write beyond them is not
//! started: its client has to enqueue a lock first, and a waiting enqueue holds no bytes. So there
//! is always memory for the dirty data that other clients must flush before they can cancel the
//! locks that the writes wait for.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_wire::bulk::BULK_BYTES_MAX;

/// Bound for one client: the size of the largest request.
const CLIENT_BYTES_MAX: usize = BULK_BYTES_MAX;
/// Bound for all clients of an OST: four largest requests. This is a sixteenth of the 1 GiB that
/// rpc allows for requests under way in a process, and few processes serve more than a few OSTs.
const TOTAL_BYTES_MAX: usize = 64 << 20;

/// The bytes of all waiting writes of an OST.
#[derive(Default, Debug)]
pub struct WriteAdmission(Mutex<Bytes>);

#[derive(Default, Debug)]
struct Bytes {
    total: usize,
    /// Bytes by export id. No entry is 0.
    each: BTreeMap<u64, usize>,
}

/// Bytes of one waiting write; dropping it releases them.
#[derive(Debug)]
pub struct AdmittedWrite<'a> {
    of: &'a WriteAdmission,
    client: u64,
    bytes: usize,
}

impl WriteAdmission {
    /// Admits a write of `bytes` bytes of the client to the waiting ones. `None`: that would exceed
    /// a bound.
    pub fn enter(&self, client: u64, bytes: usize) -> Option<AdmittedWrite<'_>> {
        if bytes > 0 {
            let mut counts = self.0.lock();
            let has = counts.each.get(&client).copied().unwrap_or(0);
            if has + bytes > CLIENT_BYTES_MAX || counts.total + bytes > TOTAL_BYTES_MAX {
                return None;
            }
            counts.each.insert(client, has + bytes);
            counts.total += bytes;
        }
        Some(AdmittedWrite { of: self, client, bytes })
    }
}

impl Drop for AdmittedWrite<'_> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut counts = self.of.0.lock();
        counts.total -= self.bytes;
        if let Some(has) = counts.each.get_mut(&self.client) {
            *has -= self.bytes;
            if *has == 0 {
                counts.each.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn waiting_writes_are_bounded_per_client_and_in_total() {
        let admission = WriteAdmission::default();
        let first = admission.enter(1, 10 * MIB).unwrap();
        assert!(admission.enter(1, 7 * MIB).is_none());
        let others: Vec<_> = (2..5).map(|client| admission.enter(client, 16 * MIB).unwrap()).collect();
        assert!(admission.enter(5, 7 * MIB).is_none());
        assert!(admission.enter(5, 0).is_some(), "a change without bytes may always wait");
        drop(first);
        assert!(admission.enter(1, 16 * MIB).is_some());
        drop(others);
        assert!(admission.0.lock().each.is_empty() && admission.0.lock().total == 0);
    }
}
