//! fcntl locks of programs. An exclusive lock excludes all others, so a counter that is read and
//! written under it misses no increment.

use super::span::Span;

/// A period in which a program held the lock.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// From the grant to the release. It ends at [`Span::NEVER`] if the client died or was evicted
    /// with the lock.
    pub span: Span,
    /// Index of the client.
    pub client: usize,
    /// Whether the lock was shared.
    pub shared: bool,
    /// The client was evicted or died meanwhile, so another program may have got the lock.
    pub lost: bool,
    /// The value of the counter that the program read. An exclusive holder increments it.
    pub found: u64,
    /// Whether the program finished its work on the counter.
    pub counted: bool,
}

/// Checks that no two conflicting locks were held at once, and that each program found the counter
/// as the last one left it.
///
/// # Errors
/// A description of the violation.
pub fn check(turns: &[Turn]) -> Result<(), String> {
    for (i, a) in turns.iter().enumerate() {
        for b in &turns[i + 1..] {
            let apart = a.span.before(&b.span) || b.span.before(&a.span);
            let fine = apart || a.shared && b.shared || a.lost || b.lost;
            if !fine {
                return Err(format!("both had the lock: {a:?} and {b:?}"));
            }
        }
    }
    let mut counted_turns: Vec<&Turn> = turns.iter().filter(|t| t.counted).collect();
    counted_turns.sort_by_key(|t| t.span.from);
    let any_lost = turns.iter().any(|t| t.lost);
    let mut counter = 0;
    for turn in counted_turns {
        if turn.found != counter && !any_lost {
            return Err(format!("the counter was left as {counter}: {turn:?}"));
        }
        counter += u64::from(!turn.shared);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(from: u64, to: u64, shared: bool, found: u64) -> Turn {
        Turn { span: Span { from, to }, client: 0, shared, lost: false, found, counted: true }
    }

    #[test]
    fn exclusive_locks_must_not_overlap_or_lose_a_count() {
        assert!(check(&[turn(1, 2, false, 0), turn(3, 6, true, 1), turn(4, 5, true, 1), turn(7, 8, false, 1)]).is_ok());
        assert!(check(&[turn(1, 4, false, 0), turn(3, 6, false, 1)]).is_err());
        assert!(check(&[turn(1, 4, false, 0), turn(3, 6, true, 1)]).is_err());
        assert!(check(&[turn(1, 2, false, 0), turn(3, 6, false, 0)]).is_err());
        assert!(
            check(&[turn(1, 2, false, 0), Turn { lost: true, ..turn(3, Span::NEVER, false, 1) }, turn(5, 6, false, 2)])
                .is_ok()
        );
    }
}
