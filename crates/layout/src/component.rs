//! One component of a layout, and the values that it consists of.

use std::{borrow::Cow, collections::BTreeSet, fmt};

use sheen_wire::Fid;

use crate::{LayoutError, MDT_OST, POOL_NAME_MAX, SEL_UNIT, STRIPE_SIZE_UNIT, flags};

/// How a component stores its bytes: Lustre's `lmm_pattern` bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pattern(pub u32);

impl Pattern {
    /// Round robin over the stripes.
    pub const RAID0: Pattern = Pattern(1);
    /// Data on the MDT, in the file's inode.
    pub const MDT: Pattern = Pattern(0x100);
    /// An OST may hold more than one stripe.
    pub const OVERSTRIPING: Pattern = Pattern(0x200);
    /// Data of another storage system.
    pub const FOREIGN: Pattern = Pattern(0x400);
    /// Data in an archive alone.
    pub const RELEASED: Pattern = Pattern(0x8000_0000);
    /// Round robin with several stripes per OST.
    pub const RAID0_OVERSTRIPED: Pattern = Pattern(Pattern::RAID0.0 | Pattern::OVERSTRIPING.0);

    /// Whether all bits of `other` are set.
    pub fn has(self, other: Pattern) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether it has no bits but those of RAID0 and overstriping.
    pub(crate) fn is_striped(self) -> bool {
        self.0 & !Pattern::RAID0_OVERSTRIPED.0 == 0
    }
}

impl fmt::Display for Pattern {
    /// Formats as lfs does: `raid0`, `raid0,overstriped`, `mdt`; nothing for no pattern, hex for
    /// unknown patterns.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Pattern(0) => "",
            Pattern::RAID0 => "raid0",
            Pattern::RAID0_OVERSTRIPED => "raid0,overstriped",
            Pattern::MDT => "mdt",
            Pattern::FOREIGN => "foreign",
            Pattern(bits) => return write!(f, "{bits:#x}"),
        })
    }
}

/// Name of an OST pool: 1 to 15 characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Pool(String);

impl Pool {
    /// Creates a name after checking its length and characters.
    pub fn new(name: &str) -> Result<Pool, LayoutError> {
        let fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > POOL_NAME_MAX || !name.chars().all(fine) {
            return Err(LayoutError::PoolName(name.to_owned()));
        }
        Ok(Pool(name.to_owned()))
    }

    /// Creates a name from the bytes of a layout; `None` if they are empty.
    pub(crate) fn decode(name: &[u8]) -> Result<Option<Pool>, LayoutError> {
        if name.is_empty() { Ok(None) } else { Pool::new(&String::from_utf8_lossy(name)).map(Some) }
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One stripe: an object on an OST.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stripe {
    /// The object.
    pub object: Fid,
    /// Index of the OST that holds it.
    pub ost: u32,
}

/// A range of a file and the objects that hold it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Component {
    /// Lustre's `lcme_id`; 0 in a plain layout.
    pub id: u32,
    /// Flags of [`flags`]; 0 in a plain layout.
    pub flags: u32,
    /// First byte; 0 in a plain layout.
    pub start: u64,
    /// Byte after the last; `u64::MAX` for no end.
    pub end: u64,
    /// `lcme_layout_gen`. In a Data-on-MDT component that was added to an existing layout: the
    /// layout's generation at that time. It determines the version of the object's FID.
    pub entry_gen: u32,
    /// Offset of the component's data in the encoded layout (`lcme_offset`). Encoding recalculates
    /// it.
    pub offset: u32,
    /// Other bytes of the entry (timestamp and reserved), preserved unchanged.
    pub entry_rest: [u8; 12],
    /// How the objects store the bytes.
    pub pattern: Pattern,
    /// FID of the file (`lmm_oi`).
    pub fid: Fid,
    /// Stripe size in bytes. In an extension: the extension size, in KiB.
    pub stripe_size: u32,
    /// Stripe count as stored. With objects it is their number. Before that it may also be 0
    /// (default) or a negative value.
    pub stripe_count: u16,
    /// `lmm_layout_gen`. Before there are objects: `lmm_stripe_offset` (0xffff: any).
    pub layout_gen: u16,
    /// Pool from which the OSTs were chosen. A layout with a pool has Lustre's v3 form, otherwise
    /// v1.
    pub pool: Option<Pool>,
    /// The objects. Before instantiation: empty, or the requested OSTs, with
    /// object FIDs of zero.
    pub stripes: Vec<Stripe>,
}

/// Header of a composite layout: fields of `lov_comp_md_v1`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Composite {
    /// `lcm_layout_gen`.
    pub layout_gen: u32,
    /// `lcm_flags`: the state of the mirrors.
    pub flags: u16,
    /// Number of mirrors, at least 1.
    pub mirror_count: u16,
    /// Reserved bytes, preserved unchanged.
    pub rest: [u8; 14],
}

impl Composite {
    /// `lcm_flags` of a mirrored file whose fresh mirrors have the same content.
    pub const READ_ONLY: u16 = 1;
    /// `lcm_flags` of a mirrored file that is being written.
    pub const WRITE_PENDING: u16 = 2;
    /// `lcm_flags` of a mirrored file that is being resynced.
    pub const SYNC_PENDING: u16 = 3;
    /// Mask of the state in `lcm_flags`.
    pub const STATE: u16 = 3;
}

/// Number of bits of a component's id below the mirror id.
pub(crate) const MIRROR_SHIFT: u32 = 16;

/// Value of `lmm_stripe_offset` for any OST.
pub const ANY_OST: u16 = u16::MAX;

impl Component {
    /// Creates an empty component that covers the whole file.
    pub(crate) fn whole_file() -> Component {
        Component {
            id: 0,
            flags: 0,
            start: 0,
            end: u64::MAX,
            entry_gen: 0,
            offset: 0,
            entry_rest: [0; 12],
            pattern: Pattern::RAID0,
            fid: Fid::ZERO,
            stripe_size: 0,
            stripe_count: 0,
            layout_gen: 0,
            pool: None,
            stripes: Vec::new(),
        }
    }

    /// Whether the component has its objects, or stores its bytes on the MDT.
    pub fn is_instantiated(&self) -> bool {
        // Only components of a composite file layout have ids. The others, in a directory's default
        // or a plain layout, do not use the INIT flag: they are instantiated if they have objects.
        if self.id == 0 {
            self.flags & flags::EXTENSION == 0 && !self.stripes.is_empty()
        } else {
            self.flags & flags::INIT != 0
        }
    }

    /// Returns the existing objects on OSTs; none before instantiation.
    pub fn objects(&self) -> &[Stripe] {
        if self.is_instantiated() { &self.stripes } else { &[] }
    }

    /// Returns the stripes to which the bytes are mapped: the component's objects, or the file's
    /// object in the MDT's data service.
    pub(crate) fn stripe_list(&self) -> Cow<'_, [Stripe]> {
        match self.is_on_mdt() {
            true => Cow::Owned(vec![Stripe { object: self.object_on_mdt(), ost: MDT_OST }]),
            false => Cow::Borrowed(self.objects()),
        }
    }

    /// Returns the FID of the component's object on the MDT: the file's FID with a version. The
    /// version differs each time the file gets such a component.
    pub(crate) fn object_on_mdt(&self) -> Fid {
        Fid { ver: self.entry_gen.saturating_add(1), ..self.fid }
    }

    /// Whether the bytes are stored on the MDT.
    pub fn is_on_mdt(&self) -> bool {
        self.pattern.has(Pattern::MDT)
    }

    /// Whether the component is the space into which the one before it grows.
    pub fn is_extension(&self) -> bool {
        self.flags & flags::EXTENSION != 0
    }

    /// Returns the extension size in bytes, if the component is an extension.
    pub fn extension_size(&self) -> Option<u64> {
        self.is_extension().then(|| u64::from(self.stripe_size) * SEL_UNIT)
    }

    /// Returns the id of the component's mirror; 0 in a file that was never mirrored.
    pub fn mirror_id(&self) -> u16 {
        (self.id >> MIRROR_SHIFT) as u16
    }

    /// Whether the component does not overlap `[start, end)`.
    pub fn is_outside(&self, start: u64, end: u64) -> bool {
        self.start.max(start) >= self.end.min(end)
    }
}

/// Returns the ids of the mirrors in order.
pub(crate) fn mirror_ids(components: &[Component]) -> Vec<u16> {
    let mut ids: Vec<u16> = components.iter().map(Component::mirror_id).collect();
    ids.dedup();
    ids
}

/// Returns RAID0, overstriped if an OST occurs more than once.
pub(crate) fn pattern_of(stripes: &[Stripe]) -> Pattern {
    let osts: BTreeSet<u32> = stripes.iter().map(|s| s.ost).collect();
    if osts.len() < stripes.len() { Pattern::RAID0_OVERSTRIPED } else { Pattern::RAID0 }
}

/// [`Layout::check_usable`] for the components of one mirror.
pub(crate) fn check_components<'a>(
    composite: bool,
    components: impl Iterator<Item = &'a Component>,
) -> Result<(), LayoutError> {
    let mut expected = 0;
    for (i, c) in components.enumerate() {
        if c.start != expected {
            return Err(LayoutError::Gap { start: c.start, expected });
        }
        if c.start > c.end {
            return Err(LayoutError::Extent { start: c.start, end: c.end });
        }
        expected = c.end;
        match c.pattern {
            Pattern::MDT if i == 0 && composite => check_no_objects(c)?,
            Pattern::RAID0 | Pattern::RAID0_OVERSTRIPED if c.is_extension() => check_no_objects(c)?,
            Pattern::RAID0 | Pattern::RAID0_OVERSTRIPED => {
                let needs_objects = !composite || c.is_instantiated();
                if needs_objects && c.stripes.is_empty() {
                    return Err(LayoutError::Malformed("a component has no objects"));
                }
                check_stripe_size(u64::from(c.stripe_size))?;
            }
            _ => return Err(LayoutError::Unsupported("non-raid0")),
        }
    }
    Ok(())
}

fn check_no_objects(c: &Component) -> Result<(), LayoutError> {
    if c.objects().is_empty() { Ok(()) } else { Err(LayoutError::Malformed("a component has unexpected objects")) }
}

/// Checks that a stripe size is a positive multiple of 64 KiB below 4 GiB.
pub(crate) fn check_stripe_size(bytes: u64) -> Result<(), LayoutError> {
    if bytes == 0 || bytes > u64::from(u32::MAX) || !bytes.is_multiple_of(u64::from(STRIPE_SIZE_UNIT)) {
        return Err(LayoutError::StripeSize(bytes));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_names_have_1_to_15_characters() {
        assert!(Pool::new("fifteen-chars__").is_ok() && Pool::new("sixteen-chars___").is_err());
        assert!(Pool::new("bad pool").is_err() && Pool::new("").is_err());
    }
}
