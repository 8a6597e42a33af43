//! Operations that are repeated because the file's layout changed meanwhile.
//!
//! An operation looks up the layout, uses it, and checks afterwards whether it may count on the
//! result. There are three reasons to repeat the operation as a whole:
//! * An OST has sealed an object of the layout ([`Failure::LayoutMoved`]): the file was migrated,
//!   or swaps its layout. The client asks the MDT for the new layout, which replies when the bytes
//!   are there.
//! * An OST has destroyed an object of the layout (ESTALE): the file left the layout some time ago,
//!   and the operation was slow. It is repeated once.
//! * The layout was replaced during the operation, and the mirror that it used may be stale now
//!   ([`Client::is_stale`]).
//!
//! No lock is in use while the MDT is asked, because the MDT may wait for the lock.

use std::{sync::Arc, time::Duration};

use sheen_layout::Layout;
use sheen_wire::{Errno, Fid, Result};

use crate::{Client, OpenFile, failure::Failure};

/// Most times that one operation is repeated.
const RETRIES_MAX: u32 = 32;
/// Pause before the n-th retry because of sealed objects, from the second on: n times this value.
const SEALED_PAUSE: Duration = Duration::from_millis(10);

/// Retries of one operation.
pub(crate) struct Retries {
    operation: &'static str,
    fid: Fid,
    count: u32,
}

impl Retries {
    /// Begins an operation. `operation`: its name in the log.
    pub fn new(operation: &'static str, fid: Fid) -> Retries {
        Retries { operation, fid, count: 0 }
    }

    /// Counts one more retry.
    ///
    /// # Errors
    /// EIO: the operation was repeated too often.
    pub fn again(&mut self) -> Result<()> {
        let Retries { operation, fid, count } = self;
        *count += 1;
        if *count <= RETRIES_MAX {
            return Ok(());
        }
        tracing::warn!("{fid}: {operation} fails with EIO: the layout changed during {count} attempts; try again");
        Err(Errno::EIO)
    }
}

/// The layout that an operation uses, and the state of the file when the layout was looked up.
pub(crate) struct LayoutUse {
    pub layout: Arc<Layout>,
    /// [`crate::open::Inode::changes`] before the lookup.
    changes: u64,
    /// Whether all changes of the layout are counted: it is settled, or this client holds a lock
    /// that reports changes. If a callback for a lock overtakes the reply with the lock, that
    /// change is not counted.
    is_tracked: bool,
}

impl LayoutUse {
    /// Begins the use of a layout. `changes`: [`crate::open::Inode::changes`] before the lookup.
    pub fn new(file: &OpenFile, layout: Arc<Layout>, changes: u64) -> LayoutUse {
        let is_tracked = file.inode.has(layout.generation());
        LayoutUse { layout, changes, is_tracked }
    }

    /// Returns whether the layout is certainly unchanged since; sends no request.
    pub fn is_current(&self, file: &OpenFile) -> bool {
        self.is_tracked && file.inode.changes() == self.changes
    }
}

/// Result of an attempt that met no error.
pub(crate) enum Attempt<T> {
    /// The operation is done.
    Done(T),
    /// The operation is done unless this layout is stale by now.
    DoneUnlessStale(T, LayoutUse),
    /// The operation has to be repeated.
    Repeat,
}

impl<T> Attempt<T> {
    /// Changes the result, if there is one.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Attempt<U> {
        match self {
            Attempt::Done(done) => Attempt::Done(change(done)),
            Attempt::DoneUnlessStale(done, used) => Attempt::DoneUnlessStale(change(done), used),
            Attempt::Repeat => Attempt::Repeat,
        }
    }
}

impl Client {
    /// Runs an operation on an open file, and repeats it while the layout changes. `attempt` gets
    /// the number of attempts before it, and looks up the layout itself.
    ///
    /// # Errors
    /// Those of `attempt`, except that the operation is repeated if objects are sealed, and once if
    /// they are destroyed. EIO: too many retries. EBUSY: as [`Client::is_stale`]. Any error of the
    /// MDT.
    pub(crate) async fn with_layout<T, F: Future<Output = Result<Attempt<T>, Failure>>>(
        &self,
        operation: &'static str,
        file: &OpenFile,
        mut attempt: impl FnMut(u32) -> F,
    ) -> Result<T> {
        let mut retries = Retries::new(operation, file.fid());
        let mut met_destroyed = false;
        loop {
            match attempt(retries.count).await {
                Ok(Attempt::Done(done)) => return Ok(done),
                Ok(Attempt::DoneUnlessStale(done, used)) => {
                    if used.is_current(file) || !Box::pin(self.is_stale(file, &used)).await? {
                        return Ok(done);
                    }
                    retries.again()?;
                }
                Ok(Attempt::Repeat) => retries.again()?,
                Err(Failure::LayoutMoved { .. }) => drop(Box::pin(self.layout_after_seal(&mut retries)).await?),
                Err(failure) if failure.errno() == Some(Errno::ESTALE) && !met_destroyed => {
                    met_destroyed = true;
                    // The file may have been deleted.
                    if Box::pin(self.layout_after_seal(&mut retries)).await.is_err() {
                        return Err(failure.into_errno());
                    }
                }
                Err(failure) => return Err(failure.into_errno()),
            }
        }
    }

    /// Asks the MDT for the current layout, after an OST has reported sealed or destroyed objects.
    /// Counts a retry.
    ///
    /// # Errors
    /// EIO: too many retries, or the file has no layout any more. Any error of the MDT.
    pub(crate) async fn layout_after_seal(&self, retries: &mut Retries) -> Result<Arc<Layout>> {
        retries.again()?;
        if retries.count > 1 {
            self.rt.sleep(SEALED_PAUSE * retries.count).await;
        }
        self.ask_where(retries.fid).await?.ok_or(Errno::EIO)
    }
}
