//! Records of an MDT's changelog: what was changed, by whom and when, with Lustre's numbers and
//! names.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    Fid, Time,
    frame::{self, FrameError},
    mds::flags::{ACCMODE, APPEND, CREAT, EXCL, EXEC, RDONLY, TRUNC, WRONLY},
};

/// Kind of a record. The values are Lustre's. Sheen records no `Mark`, `Rnmto`, `Hsm` and `Migrt`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are those that Lustre prints")]
#[repr(u8)]
pub enum Kind {
    Mark,
    Creat,
    Mkdir,
    Hlink,
    Slink,
    Mknod,
    Unlnk,
    Rmdir,
    Renme,
    Rnmto,
    Open,
    Close,
    Lyout,
    Trunc,
    Sattr,
    Xattr,
    Hsm,
    Mtime,
    Ctime,
    Atime,
    Migrt,
    Flrw,
    Resync,
    Gxatr,
    Nopen,
}

/// The names of all kinds, by value.
const NAMES: [&str; 25] = [
    "MARK", "CREAT", "MKDIR", "HLINK", "SLINK", "MKNOD", "UNLNK", "RMDIR", "RENME", "RNMTO", "OPEN", "CLOSE", "LYOUT",
    "TRUNC", "SATTR", "XATTR", "HSM", "MTIME", "CTIME", "ATIME", "MIGRT", "FLRW", "RESYNC", "GXATR", "NOPEN",
];
const _: () = assert!(NAMES.len() == Kind::Nopen as usize + 1);

impl Kind {
    /// Returns Lustre's name.
    pub fn name(self) -> &'static str {
        NAMES.get(self as usize).copied().unwrap_or_default()
    }

    const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Flag of [`Kind::Unlnk`] and [`Kind::Rmdir`]: the name was the last one of the file. Of
/// [`Kind::Renme`]: the name that it replaced was the last one of its file.
pub const LAST: u16 = 1;

/// Lustre's flags of an open (`MDS_FMODE_READ` and so on), as far as [`Record::flags`] has them.
/// Those for O_CREAT, O_EXCL, O_TRUNC and O_APPEND have Linux's values.
mod open {
    pub const READ: u32 = 1;
    pub const WRITE: u32 = 2;
    pub const EXEC: u32 = 4;
    pub const CREATED: u32 = 0o10;
}

/// Returns [`Record::flags`] for an open with these [`crate::mds::flags`]. `is_created`: the open
/// created the file.
pub fn open_flags(flags: u32, is_created: bool) -> u16 {
    let mode = match flags & ACCMODE {
        RDONLY => open::READ,
        WRONLY => open::WRITE,
        _ => open::READ | open::WRITE,
    };
    let exec = if flags & EXEC != 0 { open::EXEC } else { 0 };
    let created = if is_created { open::CREATED } else { 0 };
    (mode | exec | created | flags & (CREAT | EXCL | TRUNC | APPEND)) as u16
}

/// A set of kinds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Mask(u32);

impl Mask {
    /// No kind.
    pub const NONE: Mask = Mask(0);
    /// All kinds.
    pub const ALL: Mask = Mask((1 << NAMES.len()) - 1);
    /// Lustre's default: without accesses and opens.
    pub const DEFAULT: Mask =
        Mask(Mask::ALL.0 & !(Kind::Atime.bit() | Kind::Open.bit() | Kind::Gxatr.bit() | Kind::Nopen.bit()));

    /// Whether a kind is in the set.
    pub fn has(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// Returns the kinds of both sets.
    pub fn union(self, other: Mask) -> Mask {
        Mask(self.0 | other.0)
    }

    /// Parses a set as Lustre does: names separated by spaces or commas. `+NAME` adds to the
    /// present set `now`, `-NAME` removes. The first name without a sign begins a new set. `ALL`
    /// stands for all kinds. `MARK` is always in the set. `None`: an unknown name, or no name.
    pub fn parse(text: &str, now: Mask) -> Option<Mask> {
        let (mut mask, mut is_new) = (now.0, false);
        let mut words = text.split([' ', ',', '\t', '\n']).filter(|word| !word.is_empty()).peekable();
        words.peek()?;
        for word in words {
            let (sign, name) = match word.as_bytes().first() {
                Some(sign @ (b'+' | b'-')) => (Some(*sign), word.get(1..)?),
                _ => (None, word),
            };
            let bits = match name {
                all if all.eq_ignore_ascii_case("ALL") => Mask::ALL.0,
                name => 1 << NAMES.iter().position(|known| known.eq_ignore_ascii_case(name))?,
            };
            if sign.is_none() && !is_new {
                (mask, is_new) = (0, true);
            }
            mask = if sign == Some(b'-') { mask & !bits } else { mask | bits };
        }
        Some(Mask(mask | Kind::Mark.bit()))
    }
}

/// The names of its kinds, separated by spaces.
impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = NAMES.iter().enumerate().filter(|(bit, _)| self.0 & 1 << bit != 0);
        for (n, (_, name)) in names.enumerate() {
            f.write_str(if n == 0 { "" } else { " " })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

/// A record. The stored form is the same: a test of the namespace pins it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Its number: rising, without gaps, never used twice.
    pub index: u64,
    /// Its type.
    pub kind: Kind,
    /// [`LAST`], or 0. Of [`Kind::Open`], [`Kind::Nopen`] and [`Kind::Close`]: [`open_flags`].
    pub flags: u16,
    /// Time of the change.
    pub time: Time,
    /// The file. Of [`Kind::Renme`]: the file whose name was replaced, or zero.
    pub target: Fid,
    /// The directory of `name`, or zero.
    pub parent: Fid,
    /// The name, if the change concerns one. Of [`Kind::Renme`]: the new one.
    pub name: Bytes,
    /// The user.
    pub uid: u32,
    /// The user's group.
    pub gid: u32,
    /// NID of the client, as text.
    pub nid: Bytes,
    /// The job, or empty.
    pub job: Bytes,
    /// Name of the extended attribute, or empty.
    pub xattr: Bytes,
    /// Of [`Kind::Renme`].
    pub source: Option<Box<Source>>,
}

/// The file that a rename moved, and its former name.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Source {
    /// The file.
    pub fid: Fid,
    /// Its former directory.
    pub parent: Fid,
    /// Its former name.
    pub name: Bytes,
}

/// Returns the number of a user from its id: 1 of `cl1` and of `cl1-NAME`.
pub fn user_number(id: &str) -> Option<u32> {
    let id = id.strip_prefix("cl")?;
    id.split('-').next()?.parse().ok()
}

/// Returns the file system and the index in the name of an MDT, such as `scratch-MDT0000`.
pub fn mdt_of(name: &str) -> Option<(&str, u32)> {
    let (fsname, index) = name.rsplit_once("-MDT")?;
    Some((fsname, u32::from_str_radix(index, 16).ok()?))
}

/// Upper bound of an encoded record, without its names.
const RECORD_BYTES: usize = 160;

impl Record {
    /// Returns an upper bound of the encoded record, in bytes.
    pub fn bytes(&self) -> usize {
        let source = self.source.as_ref().map_or(0, |source| source.name.len());
        RECORD_BYTES + self.name.len() + self.nid.len() + self.job.len() + self.xattr.len() + source
    }

    /// Returns Lustre's flags of the open (`cr_openflags`); 0 for other kinds of records.
    pub fn opened_with(&self) -> u32 {
        if matches!(self.kind, Kind::Open | Kind::Nopen) { u32::from(self.flags) } else { 0 }
    }

    /// Returns the access of the open as Lustre prints it, such as `r--`. `None`: the record is not
    /// one of an open.
    pub fn mode(&self) -> Option<&'static str> {
        let flags = self.opened_with();
        let reads = flags & open::READ != 0;
        let writes = flags & (open::WRITE | TRUNC | APPEND) != 0;
        match (reads, writes) {
            _ if flags & open::EXEC != 0 => Some("--x"),
            (true, true) => Some("rw-"),
            (true, false) => Some("r--"),
            (false, true) => Some("-w-"),
            (false, false) => None,
        }
    }
}

/// Encodes records.
///
/// # Errors
/// [`FrameError::Body`]: serde failed, which does not happen.
pub fn encode(records: &[Record]) -> Result<Vec<u8>, FrameError> {
    frame::to_body(&records)
}

/// Decodes the bytes of [`encode`].
///
/// # Errors
/// [`FrameError::Body`]: they are something else.
pub fn decode(bytes: &[u8]) -> Result<Vec<Record>, FrameError> {
    frame::from_body(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_lustres_numbers_and_names() {
        assert_eq!(
            [Kind::Mark, Kind::Unlnk, Kind::Close, Kind::Atime, Kind::Nopen].map(|k| k as u8),
            [0, 6, 11, 19, 24]
        );
        assert_eq!([Kind::Renme, Kind::Sattr, Kind::Gxatr].map(Kind::name), ["RENME", "SATTR", "GXATR"]);
    }

    #[test]
    fn users_and_mdts_are_parsed_from_their_names() {
        assert_eq!(
            ["cl1", "cl23-robin-hood", "1", "cl", "clx"].map(user_number),
            [Some(1), Some(23), None, None, None]
        );
        assert_eq!(mdt_of("a-MDT-MDT001f"), Some(("a-MDT", 0x1f)));
        assert_eq!(["sheen", "sheen-MDT", "sheen-OST0000"].map(mdt_of), [None; 3]);
    }

    #[test]
    fn mask_is_parsed_and_printed_like_lustres() {
        let default = Mask::DEFAULT;
        assert!(default.has(Kind::Close) && !default.has(Kind::Atime) && !default.has(Kind::Open));
        let parse = |text| Mask::parse(text, default).map(|mask| mask.to_string());
        assert_eq!(parse("CREAT,unlnk").as_deref(), Some("MARK CREAT UNLNK"));
        assert_eq!(parse("ALL -ATIME").unwrap(), default.union(Mask::ALL).to_string().replace(" ATIME", ""));
        assert_eq!(parse("+ATIME").unwrap(), Mask(default.0 | Kind::Atime.bit()).to_string());
        assert_eq!(parse("-MARK").unwrap(), default.to_string());
        for wrong in ["", "  ", "+", "NOSUCH", "CREAT +NOSUCH", "é"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn flags_of_opens_are_lustres() {
        let record = |kind, flags| Record {
            index: 1,
            kind,
            flags,
            time: Time { sec: 0, nsec: 0 },
            target: Fid::ZERO,
            parent: Fid::ZERO,
            name: Bytes::new(),
            uid: 0,
            gid: 0,
            nid: Bytes::new(),
            job: Bytes::new(),
            xattr: Bytes::new(),
            source: None,
        };
        for (flags, is_created, expected, mode) in [
            (RDONLY, false, 0x1, "r--"),
            (WRONLY | CREAT, true, 0x4a, "-w-"),
            (crate::mds::flags::RDWR | CREAT | EXCL | APPEND, false, 0x4c3, "rw-"),
            (RDONLY | TRUNC, false, 0x201, "rw-"),
            (RDONLY | EXEC, false, 0x5, "--x"),
            (WRONLY | crate::mds::flags::DIRECT, false, 0x2, "-w-"),
        ] {
            let flags = open_flags(flags, is_created);
            assert_eq!((flags, record(Kind::Open, flags).mode()), (expected, Some(mode)));
            assert_eq!(record(Kind::Nopen, flags).opened_with(), u32::from(expected));
            assert_eq!((record(Kind::Close, flags).opened_with(), record(Kind::Close, flags).mode()), (0, None));
        }
    }

    #[test]
    fn records_round_trip_within_the_bound_of_their_bytes() {
        let name = Bytes::from(vec![0xff; 255]);
        let source =
            Source { fid: Fid { seq: u64::MAX, oid: u32::MAX, ver: 9 }, parent: Fid::ZERO, name: name.clone() };
        let record = Record {
            index: u64::MAX,
            kind: Kind::Renme,
            flags: LAST,
            time: Time { sec: i64::MAX, nsec: 999_999_999 },
            target: source.fid,
            parent: source.fid,
            name,
            uid: u32::MAX,
            gid: u32::MAX,
            nid: Bytes::from_static(b"10.0.0.1@tcp"),
            job: Bytes::from_static(b"touch.0"),
            xattr: Bytes::new(),
            source: Some(Box::new(source)),
        };
        let records = [record.clone(), record];
        let bytes = encode(&records).unwrap();
        assert!(bytes.len() <= 2 * records[0].bytes(), "{}", bytes.len());
        assert_eq!(decode(&bytes).unwrap(), records);
        assert!(decode(&bytes[1..]).is_err() && decode(b"").is_err());
    }
}
