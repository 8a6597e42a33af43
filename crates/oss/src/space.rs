//! Space: admission of writes beyond a client's grant, and the grants of clients
//! ([`sheen_objects::Grants`]).
//!
//! Invariant: a write reserves its space before it begins, and releases the reservation when it
//! ends, however it ends.

use std::{sync::MutexGuard, time::Duration};

use sheen_objects::{
    Grants, Run,
    grants::{self, Account, WriteReservation},
    runs,
};
use sheen_rpc::Export;
use sheen_wire::{
    Fid, Result,
    ost::{Allocate, Part},
};

use crate::Ost;

/// Space reserved for a write of a client.
pub struct Space<'a> {
    ost: &'a Ost,
    who: Account,
    reservation: Option<WriteReservation>,
}

impl Space<'_> {
    /// Cancels the reservation: nothing was written, and the client will repeat the write.
    pub fn withdraw(mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.ost.store.share().grants().withdrawn(self.who, reservation);
        }
    }
}

impl Drop for Space<'_> {
    fn drop(&mut self) {
        if let Some(reservation) = self.reservation.take() {
            self.ost.store.share().grants().written(reservation);
        }
    }
}

impl Ost {
    /// Bytes granted to clients of this target. The grants of all targets of a process on one
    /// device together never exceed the free space there.
    pub fn granted(&self) -> u64 {
        let share = self.store.share();
        share.grants().granted_by(share.target())
    }

    /// Reserves space for writing the parts. `used`: bytes of the write that the client counts
    /// against its grant.
    ///
    /// # Errors
    /// ENOSPC: the remaining space is granted to clients. Errors of statfs.
    pub(crate) fn reserve_for_write(&self, export: &Export, parts: &[Part], used: u64) -> Result<Space<'_>> {
        let blocks = runs(parts).map(|run| grants::blocks(run.offset, run.len as u64)).sum();
        let bytes = runs(parts).map(|run| run.len as u64).sum();
        // If a client splits its blocks among several writes, each block was granted only once.
        let needed = if bytes <= used { bytes } else { blocks };
        let fresh = || {
            let run_fresh = |run: Run| {
                let taken = self.store.is_dense(run.object, run.offset.saturating_add(run.len as u64));
                if taken { 0 } else { grants::blocks(run.offset, run.len as u64) }
            };
            runs(parts).map(run_fresh).sum()
        };
        self.reserve(export, needed, used, fresh)
    }

    /// Reserves space for a fallocate.
    ///
    /// # Errors
    /// As [`Ost::reserve_for_write`].
    pub(crate) fn reserve_for_allocate(
        &self,
        export: &Export,
        mode: Allocate,
        runs: &[(Fid, u64, u64)],
    ) -> Result<Space<'_>> {
        let blocks = match mode {
            Allocate::PunchHole => 0,
            Allocate::Reserve { .. } | Allocate::ZeroRange { .. } => {
                runs.iter().map(|(_, offset, len)| grants::blocks(*offset, *len)).fold(0, u64::saturating_add)
            }
        };
        self.reserve(export, blocks, 0, || blocks)
    }

    /// Reserves space for small files of the OST itself.
    ///
    /// # Errors
    /// As [`Ost::reserve_for_write`].
    pub(crate) fn reserve_for_files(&self, export: &Export, count: usize) -> Result<Space<'_>> {
        let bytes = (count as u64).saturating_mul(grants::BLOCK_BYTES);
        self.reserve(export, bytes, 0, || bytes)
    }

    fn reserve(&self, export: &Export, bytes: u64, used: u64, fresh: impl FnOnce() -> u64) -> Result<Space<'_>> {
        let who = self.account(export);
        let reservation = self.current_grants(bytes.saturating_sub(used))?.begin_write(who, bytes, used, fresh)?;
        Ok(Space { ost: self, who, reservation: Some(reservation) })
    }

    /// Grants a client up to `want` bytes. Returns the number of bytes granted.
    pub(crate) fn grant(&self, export: &Export, want: u64) -> u64 {
        if want == 0 {
            return 0;
        }
        let granted = match self.current_grants(want) {
            Ok(mut grants) => grants.grant(self.account(export), want),
            Err(_) => 0,
        };
        if export.is_ended() {
            self.release_grant(export); // its disconnection may have been handled before this grant
        }
        granted
    }

    /// Releases the grant of a disconnected client.
    pub(crate) fn release_grant(&self, export: &Export) {
        self.store.share().grants().disconnected(self.account(export));
    }

    fn account(&self, export: &Export) -> Account {
        Account { target: self.store.share().target(), client: export.id() }
    }

    /// Returns the grants. First reads the device's free space again if the known value is too old,
    /// or not enough for `want` more bytes.
    fn current_grants(&self, want: u64) -> Result<MutexGuard<'_, Grants>> {
        let now = Duration::from_nanos(self.rt.now().as_nanos());
        let share = self.store.share();
        let grants = share.grants();
        if !grants.is_query_due(now, want) {
            return Ok(grants);
        }
        let mark = grants.begin_query();
        drop(grants);
        let free = self.store.free()?;
        let mut grants = share.grants();
        grants.end_query(now, mark, free);
        Ok(grants)
    }
}
