//! Locks of programs (fcntl): who has one exclusively is alone with it, and a counter that is read
//! and written under it misses nobody.

use super::span::Span;

/// A program had the lock.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// From when it was told so to when it gave the lock back. [`Span::NEVER`]: it died, or was
    /// given up, with it.
    pub span: Span,
    /// Which client's.
    pub client: usize,
    /// Whether others may have had it too.
    pub shared: bool,
    /// Its client was given up in the meantime, or died, and somebody else may have had the lock.
    pub lost: bool,
    /// The counter as it was found; who is alone leaves one more.
    pub found: u64,
    /// Whether it got so far.
    pub counted: bool,
}

/// Whether no two had it at once that may not, and each found what the last one left.
///
/// # Errors
/// Who did.
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
    let mut kept: Vec<&Turn> = turns.iter().filter(|t| t.counted).collect();
    kept.sort_by_key(|t| t.span.from);
    let any_lost = turns.iter().any(|t| t.lost);
    let mut counter = 0;
    for turn in kept {
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
    fn one_at_a_time_and_none_forgotten() {
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
