//! Output of `lfs find`: `-printf` formats. `-print`, `-print0` and `-ls` are three of them.

use sheen_admin::find::{
    Collect, Needs,
    entry::Entry,
    facts::{Facts, Moment, Stamp, Stat, Striping},
};
use sheen_wire::{FileKind, Result};

use super::super::host::ctime;

/// A format.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Format(Vec<Piece>);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Piece {
    Text(Vec<u8>),
    Path,
    Type,
    Fid,
    /// An attribute, by its letter.
    Stat(u8),
    /// A time, and whether it is in seconds instead of text.
    Time(Stamp, bool),
    /// A property of the layout, by the letter after `%L`.
    Layout(u8),
}

/// `-ls`
pub const LS: &str = "%i\\t%k\\t%M\\t%n\\t%U\\t%G\\t%s\\t%t\\t%p\\n";

impl Format {
    /// Parses a format. Also returns its unknown directives, which are printed literally.
    pub fn new(text: &[u8]) -> (Format, Vec<String>) {
        let (mut pieces, mut unknown) = (Vec::new(), Vec::new());
        let mut rest = text;
        while let [first, after @ ..] = rest {
            let (piece, length) = match (first, after) {
                (b'\\', _) => escape(after),
                (b'%', _) => directive(after).unwrap_or_else(|length| {
                    unknown.push(format!("%{}", String::from_utf8_lossy(&after[..length])));
                    (Piece::Text(rest[..=length].to_vec()), length)
                }),
                _ => (Piece::Text(vec![*first]), 0),
            };
            rest = &after[length..];
            match (pieces.last_mut(), piece) {
                (Some(Piece::Text(before)), Piece::Text(more)) => before.extend(more),
                (_, piece) => pieces.push(piece),
            }
        }
        (Format(pieces), unknown)
    }

    /// Returns the format of a path with `end` after it.
    pub fn path(end: u8) -> Format {
        Format(vec![Piece::Path, Piece::Text(vec![end])])
    }

    /// Returns what the format prints of an entry. The FID comes with the attributes.
    pub fn needs(&self) -> Needs {
        let any = |what: fn(&Piece) -> bool| self.0.iter().any(what);
        let of_osts = |piece: &Piece| {
            matches!(piece, Piece::Stat(b's' | b'k' | b'b') | Piece::Time(Stamp::Modify | Stamp::Change, _))
        };
        Needs {
            stat: any(|piece| matches!(piece, Piece::Stat(_) | Piece::Time(..) | Piece::Fid)),
            birth: any(|piece| matches!(piece, Piece::Time(Stamp::Birth, _))),
            sizes: any(of_osts),
            layout: any(|piece| matches!(piece, Piece::Layout(what) if *what != b'P')),
            other: any(|piece| matches!(piece, Piece::Layout(b'P'))),
        }
    }

    /// Prints an entry to `out`.
    ///
    /// # Errors
    /// The errno of a failed request. Nothing is printed then.
    pub fn write(&self, entry: &mut impl Facts, out: &mut Vec<u8>) -> Result<()> {
        let before = out.len();
        let written = self.0.iter().try_for_each(|piece| write(piece, entry, out));
        if written.is_err() {
            out.truncate(before);
        }
        written
    }
}

impl Collect for Format {
    type Item = u8;

    fn needs(&self) -> Needs {
        Format::needs(self)
    }

    fn add(&self, entry: &mut Entry<'_>, items: &mut Vec<u8>) -> Result<()> {
        self.write(entry, items)
    }
}

/// Parses a directive after its `%`. Returns it and its length. The error is the length of an
/// unknown directive.
fn directive(text: &[u8]) -> Result<(Piece, usize), usize> {
    let time = |letter: &u8| {
        Some(match letter.to_ascii_lowercase() {
            b'a' => Stamp::Access,
            b'c' => Stamp::Change,
            b't' => Stamp::Modify,
            b'w' => Stamp::Birth,
            _ => return None,
        })
    };
    match text {
        [b'%', ..] => Ok((Piece::Text(b"%".to_vec()), 1)),
        [b'p', ..] => Ok((Piece::Path, 1)),
        [b'y', ..] => Ok((Piece::Type, 1)),
        [letter @ (b's' | b'm' | b'M' | b'U' | b'G' | b'n' | b'i' | b'k' | b'b'), ..] => Ok((Piece::Stat(*letter), 1)),
        [letter @ (b'a' | b'c' | b't' | b'w'), ..] => time(letter).map(|t| (Piece::Time(t, false), 1)).ok_or(1),
        [letter @ (b'A' | b'C' | b'T' | b'W'), b'@', ..] => time(letter).map(|t| (Piece::Time(t, true), 2)).ok_or(1),
        [b'L', b'F', ..] => Ok((Piece::Fid, 2)),
        [b'L', b'a', ..] => Ok((Piece::Stat(b'L'), 2)),
        [b'L', letter @ (b'c' | b'S' | b'i' | b'o' | b'p' | b'h' | b'P'), ..] => Ok((Piece::Layout(*letter), 2)),
        [b'L', _, ..] => Err(2),
        _ => Err(text.len().min(1)),
    }
}

/// Parses an escape after its `\`. Returns its byte and its length.
fn escape(text: &[u8]) -> (Piece, usize) {
    let (byte, length) = match text {
        [b'0'..=b'7', ..] => {
            let digits = text.iter().take(3).take_while(|b| (b'0'..=b'7').contains(b)).count();
            let value = text[..digits].iter().fold(0u32, |value, b| value * 8 + u32::from(b - b'0'));
            (value as u8, digits)
        }
        [b'a', ..] => (7, 1),
        [b'b', ..] => (8, 1),
        [b'f', ..] => (12, 1),
        [b'n', ..] => (b'\n', 1),
        [b'r', ..] => (b'\r', 1),
        [b't', ..] => (b'\t', 1),
        [b'v', ..] => (11, 1),
        [b'\\', ..] => (b'\\', 1),
        // An unknown escape is literal.
        _ => (b'\\', 0),
    };
    (Piece::Text(vec![byte]), length)
}

fn write(piece: &Piece, entry: &mut impl Facts, out: &mut Vec<u8>) -> Result<()> {
    let text = match piece {
        Piece::Text(text) => {
            out.extend_from_slice(text);
            return Ok(());
        }
        Piece::Path => {
            entry.write_path(out);
            return Ok(());
        }
        Piece::Type => letter(entry.kind()?).to_string(),
        Piece::Fid => entry.fid()?,
        Piece::Stat(what) => of_stat(*what, entry.stat()?),
        Piece::Time(stamp, seconds) => entry.stat()?.time(*stamp).map_or_else(String::new, |at| time(at, *seconds)),
        Piece::Layout(what) => of_layout(*what, entry)?,
    };
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

fn time((seconds, _): Moment, plain: bool) -> String {
    if plain { seconds.to_string() } else { ctime(seconds) }
}

fn of_stat(what: u8, stat: &Stat) -> String {
    match what {
        b's' => stat.size.to_string(),
        b'm' => format!("{:o}", stat.mode & 0o7777),
        b'M' => permissions(stat.mode),
        b'U' => stat.uid.to_string(),
        b'G' => stat.gid.to_string(),
        b'n' => stat.links.to_string(),
        b'i' => stat.ino.to_string(),
        b'k' => stat.blocks.div_ceil(2).to_string(),
        b'b' => stat.blocks.to_string(),
        _ => attributes(stat.attributes),
    }
}

/// Formats a property of the layout. Of a directory, it is about MDTs instead of OSTs.
fn of_layout(what: u8, entry: &mut impl Facts) -> Result<String> {
    let is_dir = entry.kind()? == FileKind::Dir;
    Ok(match what {
        b'c' if is_dir => entry.dir_striping()?.map_or(0, |lmv| lmv.stripe_count).to_string(),
        b'h' => match entry.dir_striping()? {
            Some(lmv) if lmv.stripe_count != 0 => lmv.hash.to_string(),
            _ => String::new(),
        },
        b'i' if is_dir => entry.mdt()?.map_or_else(String::new, |index| index.to_string()),
        b'o' if is_dir => entry.mdt()?.map_or_else(String::new, |index| format!("[{index}]")),
        b'P' => entry.project()?.to_string(),
        _ => of_striping(what, entry.striping()?),
    })
}

fn of_striping(what: u8, striping: &Striping) -> String {
    let osts = || striping.osts().map(|ost| ost.to_string());
    match what {
        b'c' => striping.stripe_count().to_string(),
        b'S' => striping.stripe_size().to_string(),
        b'i' => osts().next().unwrap_or_else(|| "-1".to_owned()),
        b'o' if osts().next().is_some() => format!("[{}]", osts().collect::<Vec<_>>().join(",")),
        b'p' => striping.pools().last().unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}

/// Returns the letter of a file type, as in `-type`.
fn letter(kind: FileKind) -> char {
    match kind {
        FileKind::Regular => 'f',
        FileKind::Dir => 'd',
        FileKind::Symlink => 'l',
        FileKind::Fifo => 'p',
        FileKind::Socket => 's',
        FileKind::Char => 'c',
        FileKind::Block => 'b',
    }
}

/// Formats permissions as in `ls -l`.
fn permissions(mode: u32) -> String {
    let kind = match FileKind::from_mode(mode) {
        Some(FileKind::Regular) => '-',
        Some(kind) => letter(kind),
        None => '?',
    };
    let mut text = String::from(kind);
    for (shift, special, with, without) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => with,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Inode flags: name, value as `STATX_ATTR_*`, and letter in `%La`.
pub const ATTRIBUTES: [(&str, u64, char); 6] = [
    ("compressed", 0x4, 'c'),
    ("immutable", 0x10, 'i'),
    ("append", 0x20, 'a'),
    ("nodump", 0x40, 'd'),
    ("encrypted", 0x800, 'E'),
    ("verity", 0x10_0000, 'V'),
];

fn attributes(bits: u64) -> String {
    let letters: String = ATTRIBUTES.iter().filter(|(_, bit, _)| bits & bit != 0).map(|(.., letter)| *letter).collect();
    if letters.is_empty() { "---".to_owned() } else { letters }
}
