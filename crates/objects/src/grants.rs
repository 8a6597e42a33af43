//! Grants: space of a device that is granted to clients, so that flushing their dirty data never
//! meets a full disk.
//!
//! One [`Grants`] serves all targets of a process that lie on one device, because they use the same
//! space. It does not query the disk itself. It says when the caller should
//! ([`Grants::is_query_due`]), and gets the result.
//!
//! Invariants:
//! * A grant comes only from unused space: the free space without everything that is granted, being
//!   written, or written since the last query of the disk. So all grants together never exceed the
//!   free space, as long as only these targets use the device.
//! * A write without a grant gets only unused space. The client's own grants are not unused either:
//!   they cover bytes that are in its cache already.
//! * A grant ends when bytes are written under it, or with its client. It is never revoked.

use std::{collections::BTreeMap, time::Duration};

use sheen_wire::{Errno, Result};

/// Grants are whole blocks of this many bytes, because local file systems allocate whole blocks.
pub const BLOCK_BYTES: u64 = 4096;
/// Maximum bytes granted to one client of a target: Lustre's largest `max_dirty_mb` is 2047.
const CLIENT_BYTES_MAX: u64 = 2 << 30;
/// Maximum bytes granted to one client while half of the free space is granted: the first request
/// of a client. Idle clients do not return their grants, so larger ones would use up the space.
const CLIENT_BYTES_SMALL: u64 = 8 << 20;
/// Reserve for the local file system's own needs: one more byte for every 64 bytes granted, 1.6 %.
/// Extent trees take up to 12 bytes a block (0.3 %), checksums as much, and trees may be only half
/// full.
const RESERVE_PART: u64 = 64;
/// With fewer unused bytes than this, space is short: the first client to ask must not get all of
/// it.
const SHORT_BYTES: u64 = 1 << 30;
/// Divisor: the part of the unused space that one client gets when space is short.
const SHARE: u64 = 8;
/// Maximum age of a disk query that is still used: other programs may use the device as well.
const QUERY_AGE_MAX: Duration = Duration::from_secs(1);

/// A client of a target.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Account {
    /// The target's number ([`Grants::join`]).
    pub target: u64,
    /// The client's export.
    pub client: u64,
}

/// Result of a query of the disk.
#[derive(Clone, Copy, Debug)]
struct DiskQuery {
    /// Time of the query.
    at: Duration,
    /// Free bytes.
    free: u64,
    /// Unused bytes at that time.
    left: u64,
    /// Bytes written ([`Grants`]' counter) when the query began.
    written: u64,
}

/// Counter of written bytes when a query began ([`Grants::begin_query`]). Bytes written later may
/// not be part of its result.
#[derive(Debug)]
pub struct Mark(u64);

/// Space reserved for one write, from before it begins until it is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "pass it to `written` or `withdrawn`"]
pub struct WriteReservation {
    /// Bytes under the client's grant.
    used: u64,
    /// Bytes beyond the grant.
    extra: u64,
}

/// Grants of all targets on a device; see the module.
#[derive(Default, Debug)]
pub struct Grants {
    accounts: BTreeMap<Account, u64>,
    /// Sum of all accounts, and the granted bytes of writes in progress.
    granted: u64,
    /// Bytes beyond grants of writes in progress.
    pending: u64,
    /// Bytes written so far. The counter wraps: only differences count.
    written: u64,
    /// `None`: the free space is unknown, so nothing can be granted.
    query: Option<DiskQuery>,
    joined: u64,
}

/// Returns `bytes` plus the bytes reserved with them for the local file system.
fn with_reserve(bytes: u64) -> u64 {
    bytes.saturating_add(bytes.div_ceil(RESERVE_PART))
}

/// Returns how many of `left` unused bytes one client gets.
fn share(left: u64) -> u64 {
    left.saturating_sub(SHORT_BYTES) + left.min(SHORT_BYTES) / SHARE
}

/// Returns the bytes of the blocks that `len` bytes at `offset` touch.
pub fn blocks(offset: u64, len: u64) -> u64 {
    let first = offset / BLOCK_BYTES;
    let end = offset.saturating_add(len).div_ceil(BLOCK_BYTES);
    if len == 0 { 0 } else { (end - first).saturating_mul(BLOCK_BYTES) }
}

impl Grants {
    /// Adds a target of the device; returns its number.
    pub fn join(&mut self) -> u64 {
        self.joined += 1;
        self.joined
    }

    /// Removes a target and its grants.
    pub fn leave(&mut self, target: u64) {
        let released =
            self.accounts.extract_if(.., |account, _| account.target == target).map(|(_, bytes)| bytes).sum();
        self.granted = self.granted.saturating_sub(released);
    }

    /// Removes a client and its grants.
    pub fn disconnected(&mut self, who: Account) {
        let released = self.accounts.remove(&who).unwrap_or(0);
        self.granted = self.granted.saturating_sub(released);
    }

    /// Whether the disk must be queried before a grant of `want` bytes, or before a write of that
    /// many bytes beyond grants. It must if:
    ///
    /// * the last query is too old;
    /// * an eighth of the space unused at that time is written, so that queries become more
    ///   frequent as space runs out;
    /// * the request would not fit.
    pub fn is_query_due(&self, now: Duration, want: u64) -> bool {
        self.query.is_none_or(|query| {
            let spent = self.spent();
            let used = spent >= query.left / SHARE && spent > 0;
            let old = now.saturating_sub(query.at) >= QUERY_AGE_MAX;
            // If a query of this very moment cuts a grant short, another query will not make it
            // longer.
            old || used || (with_reserve(want) > self.left() && (now > query.at || spent > 0))
        })
    }

    /// Begins a query of the disk.
    pub fn begin_query(&self) -> Mark {
        Mark(self.written)
    }

    /// Ends a query that was made after the mark was taken: the disk has `free` bytes.
    pub fn end_query(&mut self, now: Duration, Mark(written): Mark, free: u64) {
        // Of concurrent queries, the one that began last counts.
        if self.query.is_none_or(|query| self.written.wrapping_sub(written) <= self.written.wrapping_sub(query.written))
        {
            self.query = Some(DiskQuery { at: now, free, left: 0, written });
            let left = self.left();
            self.query = Some(DiskQuery { at: now, free, left, written });
        }
    }

    /// Returns the bytes written since the last query.
    fn spent(&self) -> u64 {
        self.query.map_or(0, |query| self.written.wrapping_sub(query.written))
    }

    /// Returns the unused bytes as far as is known: neither granted nor written.
    pub fn left(&self) -> u64 {
        let free = self.query.map_or(0, |query| query.free);
        [self.spent(), self.pending, with_reserve(self.granted)]
            .iter()
            .fold(free, |left, bytes| left.saturating_sub(*bytes))
    }

    /// Returns the bytes granted by all targets of the device.
    pub fn granted(&self) -> u64 {
        self.granted
    }

    /// Returns the bytes granted and those reserved with them, which no write without a grant gets.
    pub fn granted_with_reserve(&self) -> u64 {
        with_reserve(self.granted)
    }

    /// Returns the bytes granted by one target, without those that are being written.
    pub fn granted_by(&self, target: u64) -> u64 {
        let all = Account { target, client: 0 }..=Account { target, client: u64::MAX };
        self.accounts.range(all).map(|(_, bytes)| bytes).sum()
    }

    /// Grants more to a client: at most `want` bytes, and at most its share of the unused space.
    /// Returns how many bytes.
    pub fn grant(&mut self, who: Account, want: u64) -> u64 {
        let has = self.accounts.get(&who).copied().unwrap_or(0);
        let left = self.left();
        let limit = if self.granted < left { CLIENT_BYTES_MAX } else { CLIENT_BYTES_SMALL };
        let more = share(left).min(limit).saturating_sub(has).min(want);
        let more = more - more % BLOCK_BYTES;
        if more > 0 {
            *self.accounts.entry(who).or_default() += more;
            self.granted += more;
        }
        more
    }

    /// Begins a write of `bytes` by a client, which states that `used` of them are under its grant.
    /// `fresh` returns how many of the bytes need new space; it is called only if space is short.
    ///
    /// # Errors
    /// ENOSPC: the bytes beyond the client's grant are granted to clients. (If nothing is granted,
    /// the local file system decides.)
    pub fn begin_write(
        &mut self,
        who: Account,
        bytes: u64,
        used: u64,
        fresh: impl FnOnce() -> u64,
    ) -> Result<WriteReservation> {
        let used = self.accounts.get(&who).map_or(0, |has| used.min(*has));
        let mut extra = bytes.saturating_sub(used);
        if self.granted > 0 && extra > self.left() {
            extra = fresh().saturating_sub(used);
            if extra > self.left() {
                return Err(Errno::ENOSPC);
            }
        }
        if let Some(has) = self.accounts.get_mut(&who) {
            *has -= used;
        }
        self.pending = self.pending.saturating_add(extra);
        Ok(WriteReservation { used, extra })
    }

    /// Ends a write that succeeded, or that failed: part of it may be on the disk.
    pub fn written(&mut self, reservation: WriteReservation) {
        self.end(reservation);
        self.written = self.written.wrapping_add(reservation.used).wrapping_add(reservation.extra);
        self.granted = self.granted.saturating_sub(reservation.used);
    }

    /// Ends a write of which nothing was written, and which the client will repeat.
    pub fn withdrawn(&mut self, who: Account, reservation: WriteReservation) {
        self.end(reservation);
        match self.accounts.get_mut(&who) {
            Some(has) => *has += reservation.used,
            None => self.granted = self.granted.saturating_sub(reservation.used),
        }
    }

    fn end(&mut self, reservation: WriteReservation) {
        self.pending = self.pending.saturating_sub(reservation.extra);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Account = Account { target: 1, client: 1 };
    const B: Account = Account { target: 1, client: 2 };
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const NOW: Duration = Duration::from_secs(100);

    fn with_free(free: u64) -> Grants {
        let mut grants = Grants::default();
        let mark = grants.begin_query();
        grants.end_query(NOW, mark, free);
        grants
    }

    #[test]
    fn nothing_is_granted_before_the_first_disk_query() {
        let mut grants = Grants::default();
        assert!(grants.is_query_due(Duration::ZERO, 1));
        assert_eq!(grants.grant(A, MIB), 0);
    }

    #[test]
    fn ample_space_grants_requests_in_whole_blocks() {
        let mut grants = with_free(100 * GIB);
        assert_eq!(grants.grant(A, 32 * MIB), 32 * MIB);
        assert_eq!(grants.grant(A, 5000), 4096);
        assert_eq!(grants.grant(A, 4095), 0);
        assert_eq!(grants.grant(A, u64::MAX), CLIENT_BYTES_MAX - 32 * MIB - 4096, "limit of one client");
        assert_eq!(grants.grant(B, GIB), GIB);
    }

    #[test]
    fn large_grants_take_half_of_the_free_space() {
        let mut grants = with_free(GIB);
        let clients = 1..100;
        for client in clients.clone() {
            for _ in 0..8 {
                grants.grant(Account { target: 1, client }, 8 * MIB);
            }
        }
        let granted = |client| grants.accounts[&Account { target: 1, client }];
        assert_eq!(granted(1), 64 * MIB);
        let large: u64 = clients.map(granted).filter(|bytes| *bytes > 8 * MIB).sum();
        assert!((400 * MIB..560 * MIB).contains(&large), "{large}");
    }

    #[test]
    fn short_space_is_shared_between_clients() {
        let mut grants = with_free(80 * MIB);
        assert_eq!(grants.grant(A, GIB), 10 * MIB);
        assert_eq!(grants.grant(A, GIB), 0, "it has its share");
        let second = grants.grant(B, GIB);
        assert!((8 * MIB..9 * MIB).contains(&second), "{second}");
    }

    #[test]
    fn granted_write_succeeds_when_other_clients_fill_the_disk() {
        let mut grants = with_free(80 * MIB);
        let granted = grants.grant(A, GIB);
        let mut written = 0;
        while let Ok(reservation) = grants.begin_write(B, MIB, 0, || MIB) {
            grants.written(reservation);
            written += MIB;
        }
        assert!((68 * MIB..70 * MIB).contains(&written), "{written}");
        let mark = grants.begin_query();
        grants.end_query(NOW, mark, 80 * MIB - written);
        assert_eq!(grants.begin_write(B, MIB, MIB, || MIB), Err(Errno::ENOSPC), "the client has no grant");
        let reservation = grants.begin_write(A, granted, granted, || granted).unwrap();
        assert_eq!(reservation, WriteReservation { used: granted, extra: 0 });
        grants.written(reservation);
        assert_eq!(grants.granted(), 0);
    }

    #[test]
    fn full_disk_accepts_writes_that_need_no_new_space() {
        let mut grants = with_free(8 * MIB);
        assert_eq!(grants.grant(A, GIB), MIB);
        let reservation = grants.begin_write(B, 16 * MIB, 0, || 0).unwrap();
        grants.written(reservation);
        grants.disconnected(A);
        let reservation = grants.begin_write(B, 16 * MIB, 0, || panic!("nothing is granted")).unwrap();
        grants.written(reservation);
    }

    #[test]
    fn withdrawn_write_returns_its_grant() {
        let mut grants = with_free(8 * GIB);
        grants.grant(A, MIB);
        let reservation = grants.begin_write(A, MIB, MIB, || MIB).unwrap();
        assert_eq!((grants.granted(), grants.granted_by(1)), (MIB, 0), "it counts until it is written");
        grants.withdrawn(A, reservation);
        assert_eq!((grants.granted(), grants.granted_by(1)), (MIB, MIB));
        let reservation = grants.begin_write(A, MIB, MIB, || MIB).unwrap();
        grants.disconnected(A);
        grants.withdrawn(A, reservation);
        assert_eq!(grants.granted(), 0, "the client will not repeat it");
    }

    #[test]
    fn grants_end_with_their_client_or_target() {
        let mut grants = with_free(8 * GIB);
        let elsewhere = Account { target: 2, client: 1 };
        for who in [A, B, elsewhere] {
            grants.grant(who, MIB);
        }
        grants.disconnected(B);
        assert_eq!((grants.granted(), grants.granted_by(1), grants.granted_by(2)), (2 * MIB, MIB, MIB));
        grants.leave(1);
        assert_eq!((grants.granted(), grants.granted_by(1)), (MIB, 0));
    }

    #[test]
    fn disk_query_is_due_when_old_used_up_or_insufficient() {
        let mut grants = with_free(8 * GIB);
        let soon = NOW + QUERY_AGE_MAX / 2;
        assert!(!grants.is_query_due(soon, MIB));
        assert!(grants.is_query_due(NOW + QUERY_AGE_MAX, MIB), "the query is old");
        assert!(grants.is_query_due(soon, 8 * GIB), "the request would not fit");
        let reservation = grants.begin_write(A, GIB, 0, || GIB).unwrap();
        assert!(!grants.is_query_due(soon, MIB));
        grants.written(reservation);
        assert!(grants.is_query_due(soon, MIB), "an eighth is written");
    }

    #[test]
    fn writes_during_a_disk_query_are_counted() {
        let mut grants = with_free(8 * GIB);
        let mark = grants.begin_query();
        let reservation = grants.begin_write(A, GIB, 0, || GIB).unwrap();
        grants.written(reservation);
        let second = grants.begin_query();
        grants.end_query(NOW, second, 7 * GIB);
        grants.end_query(NOW, mark, 8 * GIB);
        assert_eq!(grants.left(), 7 * GIB);
        let (mark, second) = (grants.begin_query(), grants.begin_query());
        let reservation = grants.begin_write(A, GIB, 0, || GIB).unwrap();
        grants.end_query(NOW, mark, 7 * GIB);
        grants.written(reservation);
        grants.end_query(NOW, second, 7 * GIB);
        assert_eq!(grants.left(), 6 * GIB);
    }

    #[test]
    fn grants_count_partial_blocks_whole() {
        assert_eq!([blocks(0, 0), blocks(5, 1), blocks(4095, 2), blocks(4096, 4096)], [0, 4096, 8192, 4096]);
        assert_eq!(blocks(u64::MAX, u64::MAX), 4096);
    }

    /// An event on a disk.
    #[derive(Clone, Debug)]
    enum Event {
        Grant {
            client: u64,
            want: u64,
        },
        /// A client writes this part (in eighths) of its grant.
        Flush {
            client: u64,
            eighths: u64,
        },
        /// A client writes blocks without a grant.
        Write {
            client: u64,
            blocks: u64,
        },
        Disconnect {
            client: u64,
        },
        Later {
            ms: u64,
        },
    }

    fn events() -> impl Strategy<Value = Vec<Event>> {
        let client = || 1u64..5;
        let event = prop_oneof![
            (client(), 0u64..4 * MIB).prop_map(|(client, want)| Event::Grant { client, want }),
            (client(), 1u64..9).prop_map(|(client, eighths)| Event::Flush { client, eighths }),
            (client(), 1u64..600).prop_map(|(client, blocks)| Event::Write { client, blocks }),
            client().prop_map(|client| Event::Disconnect { client }),
            (1u64..700).prop_map(|ms| Event::Later { ms }),
        ];
        prop::collection::vec(event, 1..200)
    }

    proptest! {
        /// On a disk of 16 MiB, grants never exceed the free space, and a write under a grant is
        /// never refused.
        #[test]
        fn granted_bytes_always_fit(events in events()) {
            let (mut grants, mut now, mut free) = (Grants::default(), NOW, 16 * MIB);
            let mut has: BTreeMap<u64, u64> = BTreeMap::new();
            for event in events {
                let query = |grants: &mut Grants, want| if grants.is_query_due(now, want) {
                    let mark = grants.begin_query();
                    grants.end_query(now, mark, free);
                };
                let who = |client| Account { target: 1, client };
                match event {
                    Event::Later { ms } => now += Duration::from_millis(ms),
                    Event::Grant { client, want } => {
                        query(&mut grants, want);
                        *has.entry(client).or_default() += grants.grant(who(client), want);
                    }
                    Event::Flush { client, eighths } => {
                        let bytes = has.get(&client).map_or(0, |has| has * eighths / 8 / BLOCK_BYTES * BLOCK_BYTES);
                        query(&mut grants, 0);
                        let reservation = grants.begin_write(who(client), bytes, bytes, || bytes);
                        prop_assert_eq!(reservation, Ok(WriteReservation { used: bytes, extra: 0 }));
                        prop_assert!(bytes <= free);
                        grants.written(reservation?);
                        free -= bytes;
                        has.entry(client).and_modify(|has| *has -= bytes);
                    }
                    Event::Write { client, blocks } => {
                        let bytes = blocks * BLOCK_BYTES;
                        query(&mut grants, bytes);
                        if let Ok(reservation) = grants.begin_write(who(client), bytes, 0, || bytes) {
                            grants.written(reservation);
                            free -= bytes.min(free); // else the disk returns ENOSPC
                        }
                    }
                    Event::Disconnect { client } => {
                        grants.disconnected(who(client));
                        has.remove(&client);
                    }
                }
                prop_assert_eq!(grants.granted(), has.values().sum::<u64>());
                prop_assert!(grants.granted() <= free, "{} of {free}", grants.granted());
            }
        }
    }
}
