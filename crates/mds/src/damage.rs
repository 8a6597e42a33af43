//! Damage of the store's file, and calls of redb that may meet it.
//!
//! redb verifies no page that it reads. A page that it cannot decode makes it panic or answer
//! `Corrupted`; a read that the disk refuses makes it fail every later call. [`Damage::guard`]
//! turns all of this into one error, and remembers it: from then on nothing is written to the file,
//! and reads of sound pages go on.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Once, OnceLock};

use sheen_namespace::StoreError;

/// What was found to be damaged first. Later findings follow from it, or say nothing new.
#[derive(Debug, Default)]
pub(crate) struct Damage(OnceLock<String>);

impl Damage {
    /// Notes what is damaged.
    pub fn found(&self, what: String) {
        // The first finding stays.
        let _ = self.0.set(what);
    }

    pub fn is_found(&self) -> bool {
        self.0.get().is_some()
    }

    /// # Errors
    /// The damage, if there is any.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            Some(what) => Err(StoreError::Damaged(what.clone())),
            None => Ok(()),
        }
    }

    /// Calls redb. A panic of it is an error, and so is damage that is found meanwhile.
    ///
    /// # Errors
    /// As the call answers; the damage, if there is any.
    pub fn guard<T>(&self, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let was_found = self.is_found();
        let done = catch(call).unwrap_or_else(|said| Err(StoreError::Damaged(format!("undecodable page ({said})"))));
        if let Err(StoreError::Damaged(what)) = &done {
            self.found(what.clone());
        }
        match self.check() {
            Err(damage) if done.is_err() || !was_found => {
                // Not dropped: redb reads a file to close it, and this one is damaged.
                std::mem::forget(done);
                Err(damage)
            }
            _ => done,
        }
    }
}

thread_local! {
    /// Whether a panic on this thread is caught and reported as an error.
    static IS_CAUGHT: Cell<bool> = const { Cell::new(false) };
}

/// The result of a call, or the message of its panic, which is not printed.
fn catch<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // A thread that ends may have no such variable any more.
            if !IS_CAUGHT.try_with(Cell::get).unwrap_or(false) {
                print(info);
            }
        }));
    });
    let was_caught = IS_CAUGHT.replace(true);
    // The caller does not use what the call may have left half changed: redb poisons or abandons
    // it.
    let done = panic::catch_unwind(AssertUnwindSafe(call));
    IS_CAUGHT.set(was_caught);
    done.map_err(|panic| message(&*panic))
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_string());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "panic without a message".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged(what: &str) -> StoreError {
        StoreError::Damaged(what.to_string())
    }

    #[test]
    fn a_panic_becomes_an_error_and_the_first_finding_stays() {
        let damage = Damage::default();
        assert_eq!(damage.guard(|| Ok(1)), Ok(1));
        assert_eq!(
            damage.guard(|| Err::<u8, _>(StoreError::Failed("full".into()))),
            Err(StoreError::Failed("full".into()))
        );
        assert!(!damage.is_found(), "a full disk is no damage");
        let first = damaged("undecodable page (page 7)");
        let panics = |page: u8| damage.guard(|| if page > 0 { panic!("page {page}") } else { Ok(page) });
        assert_eq!(panics(7), Err(first.clone()));
        assert_eq!(panics(8), Err(first.clone()));
        assert_eq!(panics(0), Ok(0), "a sound page is read as before");
        assert_eq!(damage.guard(|| Err::<u8, _>(StoreError::Failed("full".into()))), Err(first.clone()));
        assert_eq!(damage.check(), Err(first));
    }

    #[test]
    fn damage_found_during_a_call_that_succeeds_fails_it() {
        let damage = Damage::default();
        let call = || {
            damage.found("unreadable page".to_string());
            Ok(1)
        };
        assert_eq!(damage.guard(call), Err(damaged("unreadable page")));
    }
}
