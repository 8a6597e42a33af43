//! Amount of grant that a client requests from an OST.
//!
//! A grant arrives a round trip after its request, and meanwhile further data uses grant. So each
//! flush requests the grant that it uses again. It requests as much in addition until the grant
//! suffices for `max_dirty_mb`. So the grant of a busy writer doubles with each round trip. A mount
//! that writes little has a small grant.
//!
//! Invariants:
//! * grant and dirty data together grow up to `max_dirty_mb` only, except for requests that are
//!   made before the replies to others;
//! * among several flushes, each requests at most twice the grant that it uses, which is whole
//!   blocks. So all that are in flight request at most twice `max_dirty_mb`.

/// Bytes of grant that a first request asks for.
const FIRST_BYTES: u64 = 8 << 20;

/// Returns the bytes to request with a lock, or with a write that was not buffered. 0: there is
/// enough. `grant`: unused grant.
pub fn wanted(grant: u64, max_dirty: u64) -> u64 {
    let first = FIRST_BYTES.min(max_dirty);
    if grant >= first / 2 { 0 } else { first }
}

/// Returns the bytes to request with a flush that uses `covered` bytes of grant. `is_alone`: no
/// other flush is in flight. `dirty`: the grant of all dirty data, including data in flight.
pub fn wanted_by_flush(covered: u64, is_alone: bool, grant: u64, dirty: u64, max_dirty: u64) -> u64 {
    let missing = max_dirty.saturating_add(covered).saturating_sub(grant.saturating_add(dirty));
    let more = missing.min(covered.saturating_mul(2));
    if is_alone { more.max(wanted(grant, max_dirty)) } else { more }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MAX: u64 = 64 * MIB;

    #[test]
    fn first_request_asks_for_a_small_grant() {
        assert_eq!([wanted(0, MAX), wanted(4 * MIB - 1, MAX), wanted(4 * MIB, MAX)], [8 * MIB, 8 * MIB, 0]);
        assert_eq!([wanted(0, MIB), wanted(MIB / 2, MIB)], [MIB, 0], "max_dirty_mb=1");
    }

    /// A writer sends requests of 1 MiB as long as it has grant, and all are answered together.
    #[test]
    fn grant_doubles_with_each_round_trip_up_to_max_dirty() {
        let mut grant = wanted(0, MAX);
        let mut round_trip = || {
            let (mut dirty, mut granted) = (0, 0);
            while grant >= MIB && dirty < MAX {
                dirty += MIB;
                grant -= MIB;
                granted += wanted_by_flush(MIB, dirty == MIB, grant, dirty, MAX);
            }
            grant += granted;
            dirty / MIB
        };
        assert_eq!([(); 5].map(|()| round_trip()), [8, 16, 32, 64, 64]);
    }

    #[test]
    fn flush_requests_its_grant_again_and_no_more_than_max_dirty() {
        let flush = |grant, dirty| wanted_by_flush(MIB, false, grant, dirty, MAX);
        assert_eq!(flush(7 * MIB, MIB), 2 * MIB, "the grant grows");
        assert_eq!(flush(40 * MIB, 24 * MIB), MIB, "the grant stays");
        assert_eq!(flush(50 * MIB, 15 * MIB), 0, "max_dirty_mb was lowered, or requests overlapped");
        assert_eq!(wanted_by_flush(4096, false, 0, MIB, MAX), 8192);
        assert_eq!(wanted_by_flush(4096, true, 0, 4096, MAX), 8 * MIB, "no other request renews the grant");
        assert_eq!(wanted_by_flush(4096, true, 5 * MIB, 4096, MAX), 8192);
    }
}
