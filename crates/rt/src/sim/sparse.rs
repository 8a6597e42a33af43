//! Content of a file with holes, stored by pages.

use std::collections::BTreeMap;

use sheen_wire::ost::Seek;

pub(crate) const PAGE: usize = 4096;
const PAGE64: u64 = PAGE as u64;

/// Invariant: every byte at or past `len` is zero, and no page lies wholly past `len`.
#[derive(Clone, Default)]
pub(crate) struct Sparse {
    len: u64,
    /// Number of pages at the start of the file that take space, written or not.
    reserved: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

/// Cuts the range `[offset, offset + len)` at page boundaries: (page, start in the page, bytes).
fn by_pages(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, usize)> {
    let end = offset.saturating_add(len);
    let mut at = offset;
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let start = at % PAGE64;
            let n = (PAGE64 - start).min(end - at);
            let piece = (at / PAGE64, start as usize, n as usize);
            at += n;
            piece
        })
    })
}

impl Sparse {
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Returns the number of pages that take space.
    pub(crate) fn pages(&self) -> u64 {
        match self.reserved {
            0 => self.pages.len() as u64,
            reserved => reserved + self.pages.range(reserved..).count() as u64,
        }
    }

    /// Reserves a range that begins at the start of the file. Other ranges take no space here.
    pub(crate) fn reserve(&mut self, offset: u64, len: u64) {
        if offset <= self.reserved * PAGE64 {
            self.reserved = self.reserved.max((offset + len).div_ceil(PAGE64));
        }
    }

    /// Returns the number of pages that a write to this range would add.
    pub(crate) fn pages_missing(&self, offset: u64, len: u64) -> u64 {
        by_pages(offset, len).filter(|(page, ..)| !self.takes_space(*page)).count() as u64
    }

    fn takes_space(&self, page: u64) -> bool {
        page < self.reserved || self.pages.contains_key(&page)
    }

    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> usize {
        let n = self.len.saturating_sub(offset).min(buf.len() as u64);
        let mut done = 0;
        for (page, start, len) in by_pages(offset, n) {
            let out = &mut buf[done..done + len];
            match self.pages.get(&page) {
                Some(bytes) => out.copy_from_slice(&bytes[start..start + len]),
                None => out.fill(0),
            }
            done += len;
        }
        done
    }

    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let mut done = 0;
        for (page, start, len) in by_pages(offset, data.len() as u64) {
            let bytes = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE]));
            bytes[start..start + len].copy_from_slice(&data[done..done + len]);
            done += len;
        }
        if !data.is_empty() {
            self.len = self.len.max(offset + data.len() as u64);
        }
    }

    pub(crate) fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.reserved = self.reserved.min(len.div_ceil(PAGE64));
            self.pages.split_off(&len.div_ceil(PAGE64));
            if let Some(last) = self.pages.get_mut(&(len / PAGE64)) {
                last[(len % PAGE64) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    /// Makes a hole without changing the length.
    pub(crate) fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len);
        if len > 0 {
            self.reserved = self.reserved.min(offset.div_ceil(PAGE64));
        }
        let pages: Vec<u64> = self.pages.range(offset / PAGE64..end.div_ceil(PAGE64)).map(|(&p, _)| p).collect();
        for page in pages {
            let base = page * PAGE64;
            let from = offset.saturating_sub(base) as usize;
            let to = (end - base).min(PAGE64) as usize;
            if (from, to) == (0, PAGE) {
                self.pages.remove(&page);
            } else if let Some(bytes) = self.pages.get_mut(&page) {
                bytes[from..to].fill(0);
            }
        }
    }

    pub(crate) fn seek(&self, what: Seek, offset: u64) -> Option<u64> {
        if offset >= self.len {
            return None;
        }
        match what {
            Seek::Data => {
                let (&page, _) = self.pages.range(offset / PAGE64..).next()?;
                Some(offset.max(page * PAGE64))
            }
            Seek::Hole => {
                let mut page = offset / PAGE64;
                while self.pages.contains_key(&page) {
                    page += 1;
                }
                Some(offset.max(page * PAGE64).min(self.len))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with a plain vector, over random operations near page boundaries.
    #[test]
    fn sparse_file_operations_match_a_plain_vector() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut sparse, mut flat) = (Sparse::default(), Vec::<u8>::new());
            for _ in 0..60 {
                let (offset, len) = (rng.usize(0..5 * PAGE), rng.usize(0..2 * PAGE));
                match rng.u8(0..4) {
                    0 | 1 => {
                        let data: Vec<u8> = (0..len).map(|_| rng.u8(1..)).collect();
                        sparse.write(offset as u64, &data);
                        if !data.is_empty() {
                            flat.resize(flat.len().max(offset + len), 0);
                            flat[offset..offset + len].copy_from_slice(&data);
                        }
                    }
                    2 => {
                        sparse.set_len(offset as u64);
                        flat.resize(offset, 0);
                    }
                    _ => {
                        sparse.punch(offset as u64, len as u64);
                        let end = (offset + len).min(flat.len());
                        flat[offset.min(end)..end].fill(0);
                    }
                }
                let mut got = vec![9; 8 * PAGE];
                let n = sparse.read(0, &mut got);
                assert!(got[..n] == flat[..], "seed {seed}");
                // Seeking alternately for data and holes must find every byte that is not zero.
                let mut at = 0;
                while let Some(data) = sparse.seek(Seek::Data, at) {
                    assert!(flat[at as usize..(data as usize).min(flat.len())].iter().all(|&b| b == 0));
                    match sparse.seek(Seek::Hole, data) {
                        Some(hole) => at = hole,
                        None => break,
                    }
                }
            }
        }
    }
}
