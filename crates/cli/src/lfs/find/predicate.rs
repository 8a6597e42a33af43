//! The tests of `lfs find`: what must hold of an entry for it to be found.
//!
//! All tests must hold; they are tried cheapest first. A test that has no meaning for an entry,
//! such as the state of mirrors that it does not have, fails whether it is negated or not.

use std::ops::RangeInclusive;

use sheen_wire::{FileKind, Result};

use super::{
    facts::{Cost, Facts, Moment, Stamp, Striping},
    glob::Glob,
    range::Range,
};

/// How permissions are compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Perm {
    /// Exactly these.
    Exactly(u32),
    /// All of these, and perhaps others.
    All(u32),
    /// Any of these, or anything if there are none.
    Any(u32),
}

/// Bits that must be set and bits that must not be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bits<T> {
    /// Must be set.
    pub set: T,
    /// Must not be.
    pub clear: T,
}

/// What is tested.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum What {
    /// The last part of the path.
    Name(Glob),
    /// What it is.
    Type(FileKind),
    /// Bytes.
    Size(Range),
    /// Allocated bytes.
    Blocks(Range),
    /// How long ago.
    Age(Stamp, Range),
    /// Later than.
    Newer(Stamp, Moment),
    /// Permissions.
    Perm(Perm),
    /// Number of names.
    Links(Range),
    /// Owner.
    User(u32),
    /// Group.
    Group(u32),
    /// `STATX_ATTR_*`.
    Attributes(Bits<u64>),
    /// Project.
    Project(u32),
    /// Index of the MDT.
    Mdt(Targets),
    /// Number of MDTs of a striped directory.
    MdtCount(Range),
    /// How a striped directory spreads its names.
    MdtHash(Hash),
    /// Number of stripes.
    StripeCount(Range),
    /// Bytes.
    StripeSize(Range),
    /// OSTs with objects.
    Ost(Targets),
    /// Pool of any component; of an empty name: none.
    Pool(String),
    /// Pattern of any component.
    Layout(u32),
    /// Number of components.
    ComponentCount(Range),
    /// Start of any component.
    ComponentStart(Range),
    /// End of any component.
    ComponentEnd(Range),
    /// Flags of any component.
    ComponentFlags(Bits<u32>),
    /// Number of mirrors.
    MirrorCount(Range),
    /// State of mirrors, and whether it is meant to be another.
    MirrorState(u16, bool),
    /// Extension size of any component.
    ExtensionSize(Range),
    /// Data of another system.
    Foreign,
    /// An extended attribute and perhaps its value.
    Xattr(String, Option<Glob>),
}

/// Indices of targets. The names among them are looked up before the search begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Targets {
    /// Indices.
    pub indices: Vec<RangeInclusive<u32>>,
    /// What is no number.
    pub names: Vec<String>,
}

impl Targets {
    /// Whether it is one of them.
    pub fn has(&self, index: u32) -> bool {
        self.indices.iter().any(|range| range.contains(&index))
    }
}

/// Hashes of striped directories, and their flags.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hash {
    /// Any of these, or of all if there are none.
    pub any: Vec<&'static str>,
    /// Not these.
    pub none: Vec<&'static str>,
    /// With these flags.
    pub flags: Vec<&'static str>,
}

impl Hash {
    /// Whether `shown`, a hash and its flags with commas between, is meant.
    fn holds(&self, shown: &str) -> bool {
        let has = |name: &&str| shown.split(',').any(|part| part == *name);
        (self.any.is_empty() || self.any.iter().any(has)) && !self.none.iter().any(has) && self.flags.iter().all(has)
    }
}

/// A test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Test {
    /// What is tested.
    pub what: What,
    /// Whether it is to fail.
    pub negated: bool,
}

impl Test {
    /// What has to be fetched for it.
    pub fn cost(&self) -> Cost {
        match self.what {
            What::Name(_) | What::Type(_) | What::Project(_) => Cost::Entry,
            What::Size(_)
            | What::Blocks(_)
            | What::Age(..)
            | What::Newer(..)
            | What::Perm(_)
            | What::Links(_)
            | What::User(_)
            | What::Group(_)
            | What::Attributes(_) => Cost::Stat,
            What::Mdt(_) => Cost::Client,
            What::Xattr(..) | What::MdtCount(_) | What::MdtHash(_) => Cost::Xattr,
            _ => Cost::Layout,
        }
    }

    /// Whether it is about what the OSTs know of a file.
    pub fn needs_sizes(&self) -> bool {
        let written = |stamp: &Stamp| matches!(stamp, Stamp::Modify | Stamp::Change);
        match &self.what {
            What::Size(_) | What::Blocks(_) => true,
            What::Age(stamp, _) | What::Newer(stamp, _) => written(stamp),
            _ => false,
        }
    }

    /// Whether it is about attributes or the layout as the MDT has them.
    pub fn is_of_mdt(&self) -> bool {
        matches!(self.cost(), Cost::Stat | Cost::Layout) && !self.needs_sizes()
    }

    /// Whether a later test of the same kind takes this one's place, as Lustre has it; others add
    /// up.
    pub fn replaces(&self, other: &Test) -> bool {
        match (&self.what, &other.what) {
            (What::Newer(..), _) | (What::Xattr(..), _) => false,
            (What::Age(one, _), What::Age(other, _)) => one == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }

    /// Whether the entry passes at the time `now`.
    ///
    /// # Errors
    /// What could not be fetched.
    pub fn passes(&self, entry: &mut impl Facts, now: i64) -> Result<bool> {
        let holds = match self.cost() {
            Cost::Entry | Cost::Client | Cost::Xattr => self.of_entry(entry)?,
            Cost::Stat => self.of_stat(entry, now)?,
            Cost::Layout => self.of_layout(entry)?,
        };
        Ok(holds.is_some_and(|holds| holds != self.negated))
    }

    fn of_entry(&self, entry: &mut impl Facts) -> Result<Option<bool>> {
        Ok(match &self.what {
            What::Name(glob) => Some(glob.matches(entry.name())),
            What::Type(kind) => Some(entry.kind()? == *kind),
            // Every file is of project 0 until there are projects.
            What::Project(id) => Some(*id == 0),
            What::Mdt(targets) => entry.mdt()?.map(|index| targets.has(index)),
            What::MdtCount(range) => {
                entry.dir_striping()?.map(|lmv| range.holds(u64::from(lmv.stripe_count.unsigned_abs())))
            }
            // A directory that is not striped has no hash.
            What::MdtHash(hash) => {
                entry.dir_striping()?.map(|lmv| lmv.stripe_count != 0 && hash.holds(&lmv.hash.to_string()))
            }
            What::Xattr(name, value) => {
                let found = entry.xattr(name)?;
                Some(found.is_some_and(|found| value.as_ref().is_none_or(|glob| glob.matches(&found))))
            }
            _ => None,
        })
    }

    fn of_stat(&self, entry: &mut impl Facts, now: i64) -> Result<Option<bool>> {
        let stat = entry.stat()?;
        let perm = stat.mode & 0o7777;
        Ok(match &self.what {
            What::Size(range) => Some(range.holds(stat.size)),
            What::Blocks(range) => Some(range.holds(stat.blocks.saturating_mul(512))),
            What::Age(stamp, range) => stat.time(*stamp).map(|(at, _)| range.holds_age(now.saturating_sub(at))),
            What::Newer(stamp, than) => stat.time(*stamp).map(|at| at > *than),
            What::Perm(Perm::Exactly(bits)) => Some(perm == *bits),
            What::Perm(Perm::All(bits)) => Some(perm & bits == *bits),
            What::Perm(Perm::Any(bits)) => Some(*bits == 0 || perm & bits != 0),
            What::Links(range) => Some(range.holds(u64::from(stat.links))),
            What::User(id) => Some(stat.uid == *id),
            What::Group(id) => Some(stat.gid == *id),
            What::Attributes(bits) => Some(stat.attributes & bits.set == bits.set && stat.attributes & bits.clear == 0),
            _ => None,
        })
    }

    fn of_layout(&self, entry: &mut impl Facts) -> Result<Option<bool>> {
        let is_dir = entry.kind()? == FileKind::Dir;
        let striping = entry.striping()?;
        let mut parts = striping.components().iter();
        Ok(match &self.what {
            What::StripeCount(range) => Some(range.holds(striping.stripe_count())),
            What::StripeSize(range) => Some(range.holds(striping.stripe_size())),
            What::Ost(targets) => Some(striping.osts().any(|ost| targets.has(ost))),
            What::Pool(name) => Some(striping.is_in_pool(name)),
            What::Layout(bits) => Some(parts.any(|c| c.pattern.0 & bits == *bits)),
            What::ComponentCount(range) => Some(range.holds(striping.component_count())),
            What::ComponentStart(range) => Some(parts.any(|c| range.holds(c.start))),
            What::ComponentEnd(range) => Some(parts.any(|c| range.holds(c.end))),
            What::ComponentFlags(bits) => {
                Some(striping.flags(is_dir).any(|f| f & bits.set == bits.set && f & bits.clear == 0))
            }
            What::MirrorCount(range) => Some(range.holds(striping.mirror_count())),
            What::MirrorState(state, other) => striping.mirror_state().map(|is| (is == *state) != *other),
            What::ExtensionSize(range) => {
                Some(parts.filter_map(|c| c.extension_size()).any(|bytes| range.holds(bytes)))
            }
            What::Foreign => Some(*striping == Striping::Foreign),
            _ => None,
        })
    }
}
