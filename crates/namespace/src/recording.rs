//! The changelog (module `changelog`), as operations and the service see it.

use sheen_wire::{self as wire, Cred, Errno, Time, changelog::Mask};

use crate::{ChangelogUser, Namespace, Store, UnneededChunks, UnneededRecords, changelog::Changed, interface::Cx};

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

    /// Whether closes are recorded. Then no client may open files without the MDT's knowledge.
    pub fn records_closes(&self) -> bool {
        self.changelog.mask.has(wire::changelog::Kind::Close)
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

    /// Returns the users that were deregistered since the last call because they held too many
    /// records.
    pub fn take_changelog_laggards(&mut self) -> Vec<ChangelogUser> {
        std::mem::take(&mut self.changelog.laggards)
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
