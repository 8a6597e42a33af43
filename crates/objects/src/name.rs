//! Paths of objects: `O/<seq>/d<oid % 32>/<oid>`, sequence and oid in hexadecimal, as in Lustre's
//! ldiskfs for FID sequences. An administrator who knows Lustre finds an object by hand, and a
//! directory holds a thirty-second of the objects.
//!
//! An object on an MDT is named after its file: the file's FID, with a version above 0 that
//! distinguishes several objects. Files are of very many sequences (each client has its own), so
//! these objects share a few directories: `O/files/d<n>/<seq>:<oid>:<version>`.
//!
//! Invariant: [`path`] and [`parse`] are inverse to each other. A name that [`path`] would not
//! produce does not parse, so a stray file is never taken for an object.

use std::path::PathBuf;

use sheen_wire::Fid;

/// Subdirectories of a sequence (Lustre's OSD_OST_SUBDIR_COUNT).
pub const SUBDIRS: u32 = 32;
/// The directory of all objects.
pub const ROOT: &str = "O";
/// [`Dir::seq`] of the directories for objects of files on an MDT, and their name.
const FILES: (u64, &str) = (0, "files");

/// A directory of objects: a sequence and a slot below [`SUBDIRS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Dir {
    /// Sequence; 0: objects of files on an MDT.
    pub seq: u64,
    /// Number of the directory within the sequence.
    pub slot: u32,
}

impl Dir {
    /// Returns the directory of `object`.
    pub fn of(object: Fid) -> Dir {
        match object.ver {
            0 => Dir { seq: object.seq, slot: object.oid % SUBDIRS },
            _ => Dir { seq: FILES.0, slot: (object.seq as u32).wrapping_add(object.oid) % SUBDIRS },
        }
    }

    /// Returns all directories of a sequence.
    pub fn all(seq: u64) -> impl Iterator<Item = Dir> {
        (0..SUBDIRS).map(move |slot| Dir { seq, slot })
    }

    /// Returns the path below the OST's directory: `O/280000401/d1`.
    pub fn path(self) -> PathBuf {
        self.seq_path().join(format!("d{}", self.slot))
    }

    /// Returns the path of its sequence's directory: `O/280000401`.
    pub fn seq_path(self) -> PathBuf {
        match self.seq {
            seq if seq == FILES.0 => PathBuf::from(format!("{ROOT}/{}", FILES.1)),
            seq => PathBuf::from(format!("{ROOT}/{seq:x}")),
        }
    }
}

/// Whether `object` may name an object: sequence and oid are not zero.
pub fn valid(object: Fid) -> bool {
    object.seq != 0 && object.oid != 0
}

/// Returns the path below the OST's directory: `O/280000401/d1/21`.
pub fn path(object: Fid) -> PathBuf {
    let Fid { seq, oid, ver } = object;
    let dir = Dir::of(object).path();
    if ver == 0 { dir.join(format!("{oid:x}")) } else { dir.join(format!("{seq:x}:{oid:x}:{ver:x}")) }
}

/// Returns the object that a name in `dir` stands for; `None` if it is not the name of an object.
pub fn parse_name(dir: Dir, name: &str) -> Option<Fid> {
    let word = |text: &str| u32::try_from(hex(text)?).ok();
    let object = if dir.seq == FILES.0 {
        let mut pieces = name.split(':');
        let (seq, oid, ver) = (hex(pieces.next()?)?, word(pieces.next()?)?, word(pieces.next()?)?);
        (ver != 0 && pieces.next().is_none()).then_some(Fid { seq, oid, ver })?
    } else {
        Fid::new(dir.seq, word(name)?)
    };
    (valid(object) && Dir::of(object) == dir).then_some(object)
}

/// Returns the sequence that a name below [`ROOT`] stands for; `None` if there is no such sequence.
pub fn parse_seq(name: &str) -> Option<u64> {
    if name == FILES.1 { Some(FILES.0) } else { hex(name).filter(|seq| *seq != FILES.0) }
}

/// Returns the object at a path below the OST's directory; `None` if it is not the path of one.
pub fn parse(path: &str) -> Option<Fid> {
    let mut pieces = path.split('/');
    let (root, seq, slot, name) = (pieces.next()?, pieces.next()?, pieces.next()?, pieces.next()?);
    if root != ROOT || pieces.next().is_some() {
        return None;
    }
    let slot: u32 = slot.strip_prefix('d').filter(|s| canonical(s)).and_then(|s| s.parse().ok())?;
    parse_name(Dir { seq: parse_seq(seq)?, slot }, name)
}

/// Parses a hexadecimal number as `{:x}` prints it: lower case, no sign, no leading zeros.
fn hex(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !digits || !canonical(text) { None } else { u64::from_str_radix(text, 16).ok() }
}

fn canonical(text: &str) -> bool {
    text == "0" || (!text.is_empty() && !text.starts_with(['0', '+']))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn object_paths_match_lustres() {
        let fid = Fid::new(0x2_8000_0401, 0x2345);
        assert_eq!(path(fid).to_str(), Some("O/280000401/d5/2345"));
        assert_eq!(Dir::of(fid).path().to_str(), Some("O/280000401/d5"));
        assert_eq!(Dir::of(fid).seq_path().to_str(), Some("O/280000401"));
        let first = Fid { ver: 7, ..Fid::new(0x2_0000_0401, 0x2345) };
        assert_eq!(path(first).to_str(), Some("O/files/d6/200000401:2345:7"));
    }

    #[test]
    fn foreign_paths_do_not_parse_as_objects() {
        let bad = [
            "",
            "O",
            "O/280000401/d1",
            "O/280000401/d1/",
            "O/280000401/d1/2",  // another slot's
            "O/280000401/d01/1", // not as printed
            "O/280000401/d1/01",
            "O/280000401/d1/+1",
            "O/280000401/d+1/1",
            "O/0280000401/d1/1",
            "O/280000401/d0/0", // oid 0 is invalid
            "O/0/d1/1",
            "O/280000401/d1/1/x",
            "P/280000401/d1/1",
            "O/280000401/d1/100000001",
            "O/280000401/d1/1.tmp",
            "O/280000401/d1/E1",
            "O/280000401/d6/200000401:2345:7",
            "O/files/d5/200000401:2345:7", // another slot's
            "O/files/d6/200000401:2345:0",
            "O/files/d6/200000401:2345",
            "O/files/d6/200000401:2345:7:1",
            "O/0/d6/200000401:2345:7",
        ];
        for path in bad {
            assert_eq!(parse(path), None, "{path}");
        }
    }

    proptest! {
        #[test]
        fn object_path_parses_back_to_its_fid(seq in 1u64.., oid in 1u32.., ver in prop_oneof![Just(0u32), any::<u32>()]) {
            let fid = Fid { seq, oid, ver };
            prop_assert_eq!(parse(path(fid).to_str().unwrap()), Some(fid));
        }

        #[test]
        fn parsed_object_path_prints_the_same(text in "O/[0-9a-f]{1,3}/d[0-9]{1,2}/[0-9a-f]{1,3}") {
            if let Some(fid) = parse(&text) {
                prop_assert_eq!(path(fid), std::path::PathBuf::from(&text));
            }
        }
    }
}
