//! Small file prefetch: the bytes of many small files in one request, ahead of their reads.
//! [`super::statahead`] decides when, and for which files.
//!
//! The bytes enter the same cache as inline DoM data ([`crate::cache::meta::Meta::content`]) and
//! follow its rules. They stay until the first read, as long as the merged attributes of their file
//! are cached.
//!
//! Invariants:
//! * The client prefetches only files with complete attributes: under a lock on the inode and a
//!   lock on its only object. The bytes are discarded if one of the locks is lost when they arrive,
//!   or if this client has begun to change the file.
//! * A failed prefetch is not reported, because a read of the file sends its own request.

use std::{collections::BTreeMap, sync::Arc};

use sheen_layout::Layout;
use sheen_rt::join::join_all;
use sheen_wire::{
    Bulk, Fid, FileKind,
    ldlm::Cookie,
    mds::INLINE_DOM_BYTES_MAX,
    ost::{Part, Reply, Request},
};

use crate::{
    Client,
    cache::meta::{Known, Token},
    lov::Split,
    open::listing::Contents,
};

/// Most files in one request (2 MiB at most).
const FILES_MAX: usize = 128;

/// A small file of which everything but the bytes is known.
struct Small {
    fid: Fid,
    layout: Arc<Layout>,
    /// Handle of the lock on its object.
    lock: Cookie,
    part: Part,
}

impl Client {
    /// Prefetches the bytes of those files that are small, once their attributes are here.
    pub(crate) async fn fetch_contents(&self, contents: Contents) {
        let Contents { files, after, landing } = contents;
        for flight in after {
            flight.ended().await;
        }
        let Some(token) = self.cache.token() else { return };
        let mut osts: BTreeMap<u32, Vec<Small>> = BTreeMap::new();
        for (ost, small) in files.into_iter().filter_map(|file| self.small(file)) {
            osts.entry(ost).or_default().push(small);
        }
        let token = &token;
        let requests = osts.iter().flat_map(|(ost, files)| files.chunks(FILES_MAX).map(move |files| (*ost, files)));
        join_all(requests.map(|(ost, files)| self.fetch_some(ost, files, token))).await;
        drop(landing);
    }

    /// Returns a file that is worth prefetching, and the OST that has its object.
    fn small(&self, fid: Fid) -> Option<(u32, Small)> {
        self.inode_lock(fid)?;
        let (known, has_content) = {
            let mut meta = self.cache.meta.lock();
            (meta.get(fid)?, meta.has_content(fid))
        };
        let (attr, layout) = (known.merged?, known.layout?);
        let fits = attr.kind == FileKind::Regular && (1..=INLINE_DOM_BYTES_MAX).contains(&attr.size);
        if !fits
            || has_content
            || layout.is_mirrored()
            || layout.stripe_count() != 1
            || self.cache.data.get(fid).is_some_and(|data| data.has_pages())
        {
            return None;
        }
        let split = Split::new(&layout, 0, attr.size);
        let [run] = &split.runs[..] else { return None };
        if run.len != attr.size {
            return None;
        }
        let stripe = layout.stripes().get(run.stripe)?;
        let [lock] = self.lov.all_locked(&layout)?[..] else { return None };
        if self.lov.get(stripe.ost)?.writeback.holds(stripe.object, (0, u64::MAX)) {
            return None;
        }
        let part = Part { object: stripe.object, offset: run.offset, len: u32::try_from(run.len).ok()? };
        Some((stripe.ost, Small { fid, layout: layout.clone(), lock, part }))
    }

    async fn fetch_some(&self, ost: u32, files: &[Small], token: &Token) {
        let Some(ost) = self.lov.get(ost) else { return };
        let parts = files.iter().map(|small| small.part).collect();
        let Ok(response) = ost.osc.request(Request::Read { parts }).send().await else { return };
        let (Reply::Read(lens), bulk) = (response.body, response.bulk) else { return };
        if lens.len() != files.len() || lens.iter().map(|len| *len as usize).sum::<usize>() != bulk.len() {
            return;
        }
        let (mut at, mut came) = (0, 0);
        for (small, len) in files.iter().zip(lens) {
            let content = bulk.slice(at, len as usize);
            at += len as usize;
            came += usize::from(len == small.part.len && self.put_content(small, content, token));
        }
        self.statahead.note_contents(came);
    }

    /// Caches the bytes of a file, if its layout and size are still the same.
    fn put_content(&self, small: &Small, content: Bulk, token: &Token) -> bool {
        // In use until the bytes are cached.
        let Some(_locks) = self.lov.lock_again(&small.layout, &[small.lock]) else { return false };
        let mut meta = self.cache.meta.lock();
        let same = |known: &Known| {
            let layout = known.layout.as_ref().map(|layout| layout.generation());
            layout == Some(small.layout.generation())
                && known.merged.is_some_and(|merged| merged.size == content.len() as u64)
        };
        let is_there = meta.get(small.fid).is_some_and(|known| same(&known)) && !meta.has_content(small.fid);
        if is_there {
            meta.put_content(small.fid, content, token);
        }
        is_there
    }
}
