//! Damage of the store's file, and calls of redb that may meet it.
//!
//! redb verifies no page that it reads. A page that it cannot decode makes it panic or return
//! `Corrupted`. A read that the disk refuses makes every later call of redb fail. [`Damage::guard`]
//! turns all of this into one error and remembers it. From then on nothing is written to the file,
//! and reads of undamaged pages continue.

use std::any::Any;
use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Once, OnceLock};

use sheen_namespace::StoreError;

/// The first damage that was found. Later findings follow from it, or say nothing new.
#[derive(Debug, Default)]
pub(crate) struct Damage(OnceLock<String>);

impl Damage {
    /// Records what is damaged.
    pub fn found(&self, what: String) {
        // The first finding stays.
        let _ = self.0.set(what);
    }

    pub fn is_found(&self) -> bool {
        self.0.get().is_some()
    }

    /// Fails if damage was found.
    ///
    /// # Errors
    /// The damage, if there is any.
    pub fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            Some(what) => Err(StoreError::Damaged(what.clone())),
            None => Ok(()),
        }
    }

    /// Calls redb. A panic in redb becomes an error, and so does damage that is found during the
    /// call.
    ///
    /// # Errors
    /// The error of the call; the damage, if there is any.
    pub fn guard<T>(&self, call: impl FnOnce() -> Result<T, StoreError>) -> Result<T, StoreError> {
        let was_found = self.is_found();
        let done = catch(call).unwrap_or_else(|said| Err(StoreError::Damaged(format!("undecodable page ({said})"))));
        if let Err(StoreError::Damaged(what)) = &done {
            self.found(what.clone());
        }
        match self.check() {
            Err(damage) if done.is_err() || !was_found => {
                // Not dropped: redb reads a file to close it, and this file is damaged.
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

/// Returns the result of a call, or the message of its panic. The panic is not printed.
fn catch<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            // The variable of a thread that ends may already be destroyed.
            if !IS_CAUGHT.try_with(Cell::get).unwrap_or(false) {
                print(info);
            }
        }));
    });
    let was_caught = IS_CAUGHT.replace(true);
    // The caller does not use state that the call may have left inconsistent: redb poisons or
    // discards it.
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
