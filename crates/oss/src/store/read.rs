//! Read: the bytes of several objects, one after another. What lies past an object's end is left
//! out, and an object that does not exist is empty; holes read as zeros.
//!
//! What goes to another process and whose checksums are known is not read at all: it is sent from
//! the file's pages (see [`sheen_objects::sums`]). Nor is a large piece of an object that a client
//! in this process wants: who asked may hand the file's pages on.

use std::ops::RangeInclusive;

use sheen_lnet::{Live, Stretch};
use sheen_objects::{plan, runs, sums};
use sheen_wire::{
    Bulk, Result,
    ost::{OBJECT_SIZE_MAX, Part},
};

use super::{Store, gather::Gather};

/// Below this many bytes a copy costs less than to send pages.
const LIVE_BYTES_MIN: usize = 256 << 10;
/// A read of so many bytes is answered with the place in the file to a client in this process.
/// Below, a copy costs less than to splice pages; above, there is no pipe that large.
const IN_PLACE_BYTES: RangeInclusive<u32> = 128 << 10..=1 << 20;

impl Store {
    /// `parts` without reading them: how many bytes each has, and where they are to be sent from.
    /// `None` where not all their checksums are known, or it is not worth it.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn live(&self, parts: &[Part]) -> Result<Option<(Vec<u32>, Live)>> {
        if parts.iter().map(|p| p.len as usize).sum::<usize>() < LIVE_BYTES_MIN {
            return Ok(None);
        }
        let (mut live, mut sum) = (Live { stretches: Vec::new(), crc: None, held: None }, 0);
        for run in runs(parts).filter(|run| run.len > 0) {
            let Some(object) = self.files.existing(run.object)? else { return Ok(None) };
            let Some(crc) = object.sums().combined(sum, run.offset, run.len as u64) else { return Ok(None) };
            sum = crc;
            live.stretches.push(Stretch { source: object, offset: run.offset, len: run.len });
        }
        self.check_open(parts.iter().map(|part| part.object))?;
        live.crc = Some(sum);
        Ok(Some((parts.iter().map(|p| p.len).collect(), live)))
    }

    /// The part that a client in this process may be answered with the place of: if it is one piece
    /// of one object, and worth it.
    pub fn for_in_place(parts: &[Part]) -> Option<&Part> {
        match parts {
            [part] if IN_PLACE_BYTES.contains(&part.len) => Some(part),
            _ => None,
        }
    }

    /// Where `part` lies, for this process; `None` where the object ends before it does.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn in_place(&self, part: &Part) -> Result<Option<Live>> {
        let Part { object, offset, len } = *part;
        let end = offset.saturating_add(len.into());
        let Some(object) = self.files.existing(object)? else { return Ok(None) };
        if object.file.len()? < end {
            return Ok(None);
        }
        self.check_open([part.object])?;
        let stretch = Stretch { source: object, offset, len: len as usize };
        Ok(Some(Live { stretches: vec![stretch], crc: None, held: None }))
    }

    /// As [`Store::read`], noting checksums for the next time.
    ///
    /// # Errors
    /// As there.
    pub fn read_and_sum(&self, parts: &[Part]) -> Result<(Vec<u32>, Bulk)> {
        let mut claims = Vec::new();
        for run in runs(parts) {
            // An error shows again in reading.
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

    /// Reads `parts`: how many bytes each got, and the bytes.
    ///
    /// # Errors
    /// What the local file system says.
    pub fn read(&self, parts: &[Part]) -> Result<(Vec<u32>, Bulk)> {
        let wanted = parts.iter().map(|p| p.len as usize).sum();
        let mut gather = Gather::new(&self.buffers, wanted);
        let mut lens = Vec::with_capacity(parts.len());
        for run in runs(parts) {
            let here = &parts[lens.len()..lens.len() + run.parts];
            // Within an object's largest size, so that no offset is one which the system call would
            // refuse.
            let len = run.len.min(OBJECT_SIZE_MAX.saturating_sub(run.offset).min(usize::MAX as u64) as usize);
            let object = if len == 0 { None } else { self.files.existing(run.object)? };
            let got = match object {
                Some(object) => gather.read(&object.file, run.offset, len)?,
                None => gather.skip(run.len),
            };
            lens.extend(plan::spread(here, got));
        }
        // Last, so that what was read is from before the object was closed.
        self.check_open(parts.iter().map(|part| part.object))?;
        Ok((lens, gather.finish()))
    }
}
