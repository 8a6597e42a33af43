//! The changelog (module `changelog`), as operations and the service see it.

use sheen_wire::{
    self as wire, Cred, Errno, Fid, Time,
    changelog::{Kind, Mask, open_flags},
};

use crate::{
    ChangelogGc, ChangelogUser, Laggard, Namespace, Store, UnneededChunks, UnneededRecords, changelog::Changed,
    handles::OpenFile, interface::Cx, refused_opens::RefusedOpen,
};

/// Maximum number of users. All of them are written with each batch that has records.
const USERS_MAX: usize = 256;
/// Longest name of a user in bytes, as in Lustre.
const NAME_BYTES_MAX: usize = 16;
/// Approximate bytes of a change of a user, so that the service commits it.
const USER_BYTES: usize = 256;

impl<S: Store> Namespace<S> {
    /// Records a change of the operation in progress, if a user of the changelog wants it.
    pub(crate) fn record(&mut self, cx: &Cx, cred: &Cred, changed: &Changed<'_>) {
        if self.changelog.mask.has(changed.kind) {
            let bytes = self.changelog.add(cx, cred, changed);
            self.tables.add_bytes(bytes);
        }
    }

    /// Records an access, which changes nothing, if a user of the changelog wants it.
    pub(crate) fn record_access(&mut self, cx: &Cx, cred: &Cred, changed: &Changed<'_>) {
        if self.changelog.mask.has(changed.kind) && self.changelog.takes_accesses(cx.env.is_short()) {
            self.record(cx, cred, changed);
        }
    }

    /// Records an open, if a user of the changelog wants it. As in Lustre, a user who opens a file
    /// again with the same flags has one record, until the last of these opens is closed.
    pub(crate) fn record_open(&mut self, cx: &Cx, cred: &Cred, handle: u64, (fid, flags): (Fid, u16)) {
        let records = self.changelog.mask.has(Kind::Open) && self.changelog.takes_accesses(cx.env.is_short());
        if records && self.handles.count_recorded(handle) {
            self.record(cx, cred, &Changed { flags, ..Changed::file(Kind::Open, fid) });
        }
    }

    /// Records an open that is refused, if a user of the changelog wants it, and the same open was
    /// not recorded in the last moments.
    pub(crate) fn record_refused_open(&mut self, cx: &Cx, cred: &Cred, fid: Fid, flags: u32) {
        if !self.changelog.mask.has(Kind::Nopen) || self.replaying.is_some() {
            return;
        }
        let flags = open_flags(flags, false);
        let open = RefusedOpen { fid, uid: cred.uid, gid: cred.gid, flags };
        if self.changelog.takes_accesses(cx.env.is_short()) && self.changelog.refused.is_new(open, cx.now) {
            self.record(cx, cred, &Changed { flags, ..Changed::file(Kind::Nopen, fid) });
        }
    }

    /// Whether the close of a file, which is still open, is in the changelog. That is the last of
    /// the opens that were recorded, or one of a file that was open for writing.
    pub(crate) fn shows_close(&self, file: &OpenFile) -> bool {
        if file.is_recorded && self.changelog.mask.has(Kind::Open) {
            self.handles.is_last_recorded(file)
        } else {
            wire::mds::flags::writes(file.flags)
        }
    }

    /// Whether opens or closes are recorded. Then no client may open files without the MDT's
    /// knowledge.
    pub fn records_opens(&self) -> bool {
        [Kind::Open, Kind::Close, Kind::Nopen].into_iter().any(|kind| self.changelog.mask.has(kind))
    }

    /// Registers a user with the next batch. It gets the records of later changes. `nonce`: with it
    /// the caller finds the user in [`Namespace::changelog_registered`]. `now`: the time.
    ///
    /// # Errors
    /// EINVAL: an invalid name. EEXIST: another user has the name. ENOSPC: too many users.
    pub fn changelog_register(&mut self, name: &str, mask: Option<Mask>, nonce: u64, now: Time) -> wire::Result<()> {
        let is_valid = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.len() > NAME_BYTES_MAX || !name.chars().all(is_valid) {
            return Err(Errno::EINVAL);
        }
        let state = &mut self.changelog.state;
        if !name.is_empty() && state.users.iter().any(|user| user.name == name) {
            return Err(Errno::EEXIST);
        }
        if state.users.len() >= USERS_MAX {
            return Err(Errno::ENOSPC);
        }
        state.last_user = state.last_user.checked_add(1).ok_or(Errno::ENOSPC)?;
        let (id, cleared) = (state.last_user, state.last);
        state.users.push(ChangelogUser { id, name: name.to_owned(), mask, cleared, active: now, nonce });
        self.changelog_changed();
        Ok(())
    }

    /// Deregisters a user with the next batch.
    ///
    /// # Errors
    /// ENOENT: there is no such user.
    pub fn changelog_deregister(&mut self, id: u32) -> wire::Result<()> {
        if !self.changelog.deregister(id) {
            return Err(Errno::ENOENT);
        }
        self.changelog_changed();
        Ok(())
    }

    /// Moves the clear point of a user to this record with the next batch; `end` 0: to the last
    /// durable one. A clear point never moves back.
    ///
    /// # Errors
    /// ENOENT: there is no such user. EINVAL: there is no such record yet.
    pub fn changelog_clear(&mut self, id: u32, end: u64, now: Time) -> wire::Result<()> {
        let (_, last) = self.changelog.range();
        let user = self.changelog.state.users.iter_mut().find(|user| user.id == id).ok_or(Errno::ENOENT)?;
        if end > last {
            return Err(Errno::EINVAL);
        }
        let end = if end == 0 { last } else { end };
        (user.cleared, user.active) = (user.cleared.max(end), now);
        self.changelog_changed();
        Ok(())
    }

    fn changelog_changed(&mut self) {
        self.changelog.changed();
        self.tables.add_bytes(USER_BYTES);
    }

    /// Returns the users.
    pub fn changelog_users(&self) -> &[ChangelogUser] {
        &self.changelog.state.users
    }

    /// Returns the users whose registration is durable.
    pub fn changelog_registered(&self) -> impl Iterator<Item = &ChangelogUser> {
        self.changelog.state.users.iter().filter(|user| self.changelog.is_durable(user))
    }

    /// Returns the ids of deregistered users that a crash could bring back.
    pub fn changelog_leaving(&self) -> impl Iterator<Item = u32> {
        self.changelog.leaving()
    }

    /// Returns the numbers of the first record that a user needs, and of the last durable one; for
    /// [`crate::read_changelog`].
    pub fn changelog_range(&self) -> (u64, u64) {
        self.changelog.range()
    }

    /// Returns the bytes of all records in the store.
    pub fn changelog_bytes(&self) -> u64 {
        self.changelog.state.bytes
    }

    /// Returns the kinds that are recorded for users who have not chosen any.
    pub fn changelog_mask(&self) -> Mask {
        self.changelog.default_mask
    }

    /// Sets the kinds that are recorded for users who have not chosen any.
    pub fn set_changelog_mask(&mut self, mask: Mask) {
        self.changelog.default_mask = mask;
        self.changelog.choose_mask();
    }

    /// Returns the kinds that are recorded.
    pub fn changelog_current_mask(&self) -> Mask {
        self.changelog.mask
    }

    /// Returns the number of records that a user may hold.
    pub fn changelog_held_max(&self) -> u64 {
        self.changelog.state.held_max
    }

    /// Sets the number of records that a user may hold, with the next batch. That one deregisters
    /// users that hold more.
    pub fn set_changelog_held_max(&mut self, records: u64) {
        self.changelog.state.held_max = records;
        self.changelog_changed();
    }

    /// Returns the limits for idle users.
    pub fn changelog_gc(&self) -> ChangelogGc {
        self.changelog.gc
    }

    /// Sets the limits for idle users, with the next batch. The next record checks the users.
    pub fn set_changelog_gc(&mut self, gc: ChangelogGc) {
        if self.changelog.gc != gc {
            self.changelog.gc = gc;
            (self.changelog.is_gc_changed, self.changelog.gc_checked) = (true, None);
            self.tables.add_bytes(USER_BYTES);
        }
    }

    /// Returns the seconds in which a refused open that is repeated has one record.
    pub fn changelog_refused_secs(&self) -> u64 {
        self.changelog.refused.interval_secs
    }

    /// Sets the seconds in which a refused open that is repeated has one record. 0: each has one.
    pub fn set_changelog_refused_secs(&mut self, secs: u64) {
        self.changelog.refused.interval_secs = secs;
    }

    /// Returns the users that were deregistered since the last call because they exceeded a limit.
    pub fn take_changelog_laggards(&mut self) -> Vec<Laggard> {
        std::mem::take(&mut self.changelog.laggards)
    }

    /// Returns the number of records of accesses that were left out since the last call, because
    /// too many records were not yet stored, or the disk is short of space.
    pub fn take_left_out_accesses(&mut self) -> u64 {
        std::mem::take(&mut self.changelog.left_out)
    }

    /// Whether records wait to be deleted with further batches.
    pub fn has_unneeded_records(&self) -> bool {
        self.changelog.has_unneeded()
    }

    /// Returns which records the next batch can delete. The caller reads their chunks
    /// ([`UnneededRecords::read`]) and passes them to [`Namespace::delete_unneeded`].
    pub fn unneeded_records(&self) -> Option<UnneededRecords> {
        self.changelog.unneeded()
    }

    /// Deletes these records with the next batch. To be called before [`Namespace::seal`] if all
    /// batches were committed before the chunks were read, and none was sealed since.
    pub fn delete_unneeded(&mut self, chunks: UnneededChunks) {
        self.changelog.delete(chunks, &mut self.tables);
    }
}
