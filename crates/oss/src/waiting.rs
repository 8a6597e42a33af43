//! Writes that wait for locks, and how many bytes they keep in memory meanwhile.
//!
//! Invariant: they keep no more than the bounds here. A write beyond is not begun: its client asks
//! for a lock first, for whose waiting nothing is kept. So there is always room for what others
//! have to write before they can give back the locks that are waited for.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use sheen_wire::bulk::BULK_BYTES_MAX;

/// Of one client: a largest request's.
const CLIENT_BYTES_MAX: usize = BULK_BYTES_MAX;
/// Of all clients of an OST: four of them. A sixteenth of the bytes that rpc holds for requests
/// under way in a whole process (1 GiB), and seldom is a process more than a few OSTs.
const TOTAL_BYTES_MAX: usize = 64 << 20;

/// See the module.
#[derive(Default, Debug)]
pub struct Waiting(Mutex<Bytes>);

#[derive(Default, Debug)]
struct Bytes {
    total: usize,
    /// By export. None has 0.
    each: BTreeMap<u64, usize>,
}

/// Bytes that are kept, until it is dropped.
#[derive(Debug)]
pub struct Waits<'a> {
    of: &'a Waiting,
    client: u64,
    bytes: usize,
}

impl Waiting {
    /// The client is going to wait with so many bytes. `None`: that is too much.
    pub fn enter(&self, client: u64, bytes: usize) -> Option<Waits<'_>> {
        if bytes > 0 {
            let mut counts = self.0.lock();
            let has = counts.each.get(&client).copied().unwrap_or(0);
            if has + bytes > CLIENT_BYTES_MAX || counts.total + bytes > TOTAL_BYTES_MAX {
                return None;
            }
            counts.each.insert(client, has + bytes);
            counts.total += bytes;
        }
        Some(Waits { of: self, client, bytes })
    }
}

impl Drop for Waits<'_> {
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
    fn each_client_and_all_together_have_a_bound() {
        let waiting = Waiting::default();
        let first = waiting.enter(1, 10 * MIB).unwrap();
        assert!(waiting.enter(1, 7 * MIB).is_none());
        let others: Vec<_> = (2..5).map(|client| waiting.enter(client, 16 * MIB).unwrap()).collect();
        assert!(waiting.enter(5, 7 * MIB).is_none());
        assert!(waiting.enter(5, 0).is_some(), "what has no bytes may wait");
        drop(first);
        assert!(waiting.enter(1, 16 * MIB).is_some());
        drop(others);
        assert!(waiting.0.lock().each.is_empty() && waiting.0.lock().total == 0);
    }
}
