//! Read: the bytes of several objects, one after another. Bytes past an object's end are left out.
//! A missing object is empty. Holes read as zeros.
//!
//! Bytes for another process are not read at all if their checksums are known: they are sent from
//! the file's pages (see [`sheen_objects::sums`]). A large piece of one object for a client in this
//! process is not read either: the client passes the file's pages on by itself.

use std::ops::RangeInclusive;

use sheen_lnet::{Live, Stretch};
use sheen_objects::{plan, runs, sums};
use sheen_wire::{
    Bulk, Result,
    ost::{OBJECT_SIZE_MAX, Part},
};

use super::{Store, gather::Gather};

/// Size in bytes below which a copy costs less than sending pages.
const LIVE_BYTES_MIN: usize = 256 << 10;
/// Sizes in bytes of reads that are answered with the place in the file, to a client in this
/// process. For less, a copy costs less than splicing pages. For more, no pipe is large enough.
const IN_PLACE_BYTES: RangeInclusive<u32> = 128 << 10..=1 << 20;

impl Store {
    /// Returns the length of each of `parts` and the places in files to send them from, without
    /// reading them. `None`: some checksums are not known, or the parts are too small.
    ///
    /// # Errors
    /// MOVED: an object is sealed. Errors of the local file system.
    pub fn live(&self, parts: &[Part]) -> Result<Option<(Vec<u32>, Live)>> {
        if parts.iter().map(|p| p.len as usize).sum::<usize>() < LIVE_BYTES_MIN {
            return Ok(None);
        }
        let (mut live, mut sum) = (Live { stretches: Vec::new(), crc: None, held: None }, 0);
        for run in runs(parts).filter(|run| run.len > 0) {
            let Some(object) = self.files.existing(run.object)? else { return Ok(None) };
            if object.at_rest.to_compare(self.epoch(), run.offset, run.len as u64).is_some() {
                return Ok(None);
            }
            let Some(crc) = object.sums().combined(sum, run.offset, run.len as u64) else { return Ok(None) };
            sum = crc;
            live.stretches.push(Stretch { source: object, offset: run.offset, len: run.len });
        }
        self.check_unsealed(parts.iter().map(|part| part.object))?;
        live.crc = Some(sum);
        Ok(Some((parts.iter().map(|p| p.len).collect(), live)))
    }

    /// Returns the part of a read that may be answered with the place in the file: a single piece
    /// of suitable size of one object.
    pub fn for_in_place(parts: &[Part]) -> Option<&Part> {
        match parts {
            [part] if IN_PLACE_BYTES.contains(&part.len) => Some(part),
            _ => None,
        }
    }

    /// Returns the place of `part` in its file, for a client in this process. `None`: the object
    /// ends before the part does, or its bytes must be compared with stored checksums first.
    ///
    /// # Errors
    /// MOVED: the object is sealed. Errors of the local file system.
    pub fn in_place(&self, part: &Part) -> Result<Option<Live>> {
        let Part { object, offset, len } = *part;
        let end = offset.saturating_add(len.into());
        let Some(object) = self.files.existing(object)? else { return Ok(None) };
        if object.file.len()? < end || object.at_rest.to_compare(self.epoch(), offset, len.into()).is_some() {
            return Ok(None);
        }
        self.check_unsealed([part.object])?;
        let stretch = Stretch { source: object, offset, len: len as usize };
        Ok(Some(Live { stretches: vec![stretch], crc: None, held: None }))
    }

    /// As [`Store::read`], and records checksums for later reads.
    ///
    /// # Errors
    /// As [`Store::read`].
    pub fn read_and_sum(&self, parts: &[Part]) -> Result<(Vec<u32>, Bulk)> {
        let mut claims = Vec::new();
        for run in runs(parts) {
            // The read below returns the same error.
            if let Ok(Some(object)) = self.files.existing(run.object) {
                let claim = object.sums().begin(run.offset, run.len as u64, false);
                claims.push((run, object, claim));
            }
        }
        let read = self.read(parts);
        let mut claims = claims.into_iter().peekable();
        let mut start = (0, 0); // of the run: among the parts, and in the bulk
        for run in runs(parts) {
            let got = read
                .as_ref()
                .map_or(0, |(lens, _)| lens[start.0..start.0 + run.parts].iter().map(|l| *l as usize).sum());
            if let Some((_, object, claim)) = claims.next_if(|(claimed, ..)| *claimed == run) {
                let piece = read.as_ref().map_or_else(|_| Bulk::new(), |(_, bulk)| bulk.slice(start.1, got));
                let noted = sums::of_pieces(run.offset, piece.segments().iter().map(|s| &s[..]));
                object.sums().end(claim, noted);
            }
            start = (start.0 + run.parts, start.1 + got);
        }
        read
    }

    /// Reads `parts`. Returns the number of bytes of each part, and the bytes.
    ///
    /// # Errors
    /// MOVED: an object is sealed. EIO: bytes differ from their stored checksum. Other errors of
    /// the local file system.
    pub fn read(&self, parts: &[Part]) -> Result<(Vec<u32>, Bulk)> {
        let wanted = parts.iter().map(|p| p.len as usize).sum();
        let mut gather = Gather::new(&self.buffers, wanted);
        let mut lens = Vec::with_capacity(parts.len());
        let (mut compare, mut start) = (Vec::new(), 0);
        for run in runs(parts) {
            let here = &parts[lens.len()..lens.len() + run.parts];
            // Limited to an object's largest size, because the system call refuses larger offsets.
            let len = run.len.min(OBJECT_SIZE_MAX.saturating_sub(run.offset).min(usize::MAX as u64) as usize);
            let object = if len == 0 { None } else { self.files.existing(run.object)? };
            let got = match object {
                Some(object) => {
                    let known = object.at_rest.to_compare(self.epoch(), run.offset, len as u64);
                    let got = gather.read(&object.file, run.offset, len)?;
                    compare.extend(known.map(|known| (object, known, (run.offset, len as u64), start..start + got)));
                    got
                }
                None => gather.skip(run.len),
            };
            start += got;
            lens.extend(plan::spread(here, got));
        }
        // Checked last: without a marker now, the bytes were read before the object was sealed.
        self.check_unsealed(parts.iter().map(|part| part.object))?;
        let bulk = gather.finish();
        for (object, known, place, at) in compare {
            self.compare(&object, &known, place, &bulk.slice(at.start, at.len()))?;
        }
        Ok((lens, bulk))
    }
}
