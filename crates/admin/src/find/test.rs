//! The tests that an entry must pass to be found.
//!
//! All tests must hold. The cheapest test is tried first. A test that has no meaning for an entry
//! fails, whether it is negated or not. An example is the mirror state of a file without mirrors.

use std::ops::RangeInclusive;

use sheen_wire::{FileKind, Result, control::TargetInfo, glob::Glob};

use super::{
    facts::{Cost, Facts, Moment, Stamp, Striping},
    needs::Needs,
    range::Range,
};

/// Comparison of permissions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Perm {
    /// Exactly these.
    Exactly(u32),
    /// All of these, and perhaps others.
    All(u32),
    /// Any of these. If there are none, all permissions match.
    Any(u32),
}

/// Bits that must be set and bits that must not be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bits<T> {
    /// Must be set.
    pub set: T,
    /// Must not be set.
    pub clear: T,
}

/// A property, and the value that a test compares it with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Property {
    /// The last part of the path.
    Name(Glob),
    /// File type.
    Type(FileKind),
    /// Size in bytes.
    Size(Range),
    /// Allocated bytes.
    Blocks(Range),
    /// Age by one of the times.
    Age(Stamp, Range),
    /// One of the times is later than this one.
    Newer(Stamp, Moment),
    /// Permissions.
    Perm(Perm),
    /// Number of links.
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
    /// Hash function of a striped directory.
    MdtHash(Hash),
    /// Number of stripes.
    StripeCount(Range),
    /// Stripe size in bytes.
    StripeSize(Range),
    /// OSTs with objects.
    Ost(Targets),
    /// Pool of any component. An empty name: no pool.
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
    /// State of the mirrors, and whether it must be another one.
    MirrorState(u16, bool),
    /// Extension size of any component.
    ExtensionSize(Range),
    /// A foreign layout.
    Foreign,
    /// An extended attribute and, if given, a pattern for its value.
    Xattr(String, Option<Glob>),
}

/// The targets of a test. Names are looked up before the search begins.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Targets {
    /// Indices.
    pub indices: Vec<RangeInclusive<u32>>,
    /// Names that are not looked up yet.
    pub names: Vec<String>,
}

impl Targets {
    /// Looks up the names among the known targets. A name is a UUID, such as
    /// `sheen-OST0001_UUID`. The suffix and the file system's name may be left out.
    ///
    /// # Errors
    /// The first name that no target has.
    pub fn look_up<'a>(&mut self, known: impl Iterator<Item = &'a TargetInfo> + Clone) -> Result<(), String> {
        for name in std::mem::take(&mut self.names) {
            let is_it = |t: &&TargetInfo| {
                let short = t.uuid.strip_suffix("_UUID").unwrap_or(&t.uuid);
                let bare = short.rsplit_once('-').map(|(_, bare)| bare);
                t.uuid == name || short == name || bare == Some(name.as_str())
            };
            match known.clone().find(is_it) {
                Some(target) => self.indices.push(target.index..=target.index),
                None => return Err(name),
            }
        }
        Ok(())
    }

    /// Whether the target of this index is among them.
    pub fn has(&self, index: u32) -> bool {
        self.indices.iter().any(|range| range.contains(&index))
    }
}

/// Hash functions of striped directories, and their flags.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hash {
    /// One of these functions. If there are none, all match.
    pub any: Vec<&'static str>,
    /// None of these functions and flags.
    pub none: Vec<&'static str>,
    /// All of these flags.
    pub flags: Vec<&'static str>,
}

impl Hash {
    /// Whether `shown`, a hash function and its flags separated by commas, matches.
    fn holds(&self, shown: &str) -> bool {
        let has = |name: &&str| shown.split(',').any(|part| part == *name);
        (self.any.is_empty() || self.any.iter().any(has)) && !self.none.iter().any(has) && self.flags.iter().all(has)
    }
}

/// A test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Test {
    /// The property.
    pub property: Property,
    /// Whether the property must not match.
    pub negated: bool,
}

impl Test {
    /// Returns the request that the test needs.
    pub fn cost(&self) -> Cost {
        match self.property {
            Property::Name(_) | Property::Type(_) => Cost::Entry,
            Property::Size(_)
            | Property::Blocks(_)
            | Property::Age(..)
            | Property::Newer(..)
            | Property::Perm(_)
            | Property::Links(_)
            | Property::User(_)
            | Property::Group(_)
            | Property::Attributes(_) => Cost::Stat,
            Property::Mdt(_) => Cost::Client,
            Property::Xattr(..) | Property::Project(_) | Property::MdtCount(_) | Property::MdtHash(_) => Cost::Xattr,
            _ => Cost::Layout,
        }
    }

    /// Returns what the test needs.
    pub fn needs(&self) -> Needs {
        let cost = self.cost();
        Needs {
            stat: cost == Cost::Stat,
            birth: matches!(self.property, Property::Age(Stamp::Birth, _) | Property::Newer(Stamp::Birth, _)),
            sizes: self.needs_sizes(),
            layout: cost == Cost::Layout,
            other: matches!(cost, Cost::Client | Cost::Xattr),
        }
    }

    /// Whether the test needs attributes that only the OSTs know.
    fn needs_sizes(&self) -> bool {
        let written = |stamp: &Stamp| matches!(stamp, Stamp::Modify | Stamp::Change);
        match &self.property {
            Property::Size(_) | Property::Blocks(_) => true,
            Property::Age(stamp, _) | Property::Newer(stamp, _) => written(stamp),
            _ => false,
        }
    }

    /// Whether the test needs only attributes or the layout from the MDT.
    pub fn is_of_mdt(&self) -> bool {
        matches!(self.cost(), Cost::Stat | Cost::Layout) && !self.needs_sizes()
    }

    /// Whether this later test replaces `other`. As in Lustre, a later test of the same kind does.
    /// Several tests of `-newer` or `-xattr` must all hold.
    pub fn replaces(&self, other: &Test) -> bool {
        match (&self.property, &other.property) {
            (Property::Newer(..), _) | (Property::Xattr(..), _) => false,
            (Property::Age(one, _), Property::Age(other, _)) => one == other,
            (one, other) => std::mem::discriminant(one) == std::mem::discriminant(other),
        }
    }

    /// Whether the entry passes at the time `now`, in seconds since the epoch.
    ///
    /// # Errors
    /// The errno of a failed request.
    pub fn passes(&self, entry: &mut impl Facts, now: i64) -> Result<bool> {
        let holds = match self.cost() {
            Cost::Entry | Cost::Client | Cost::Xattr => self.of_entry(entry)?,
            Cost::Stat => self.of_stat(entry, now)?,
            Cost::Layout => self.of_layout(entry)?,
        };
        Ok(holds.is_some_and(|holds| holds != self.negated))
    }

    fn of_entry(&self, entry: &mut impl Facts) -> Result<Option<bool>> {
        Ok(match &self.property {
            Property::Name(glob) => Some(glob.matches(entry.name())),
            Property::Type(kind) => Some(entry.kind()? == *kind),
            Property::Project(id) => Some(entry.project()? == *id),
            Property::Mdt(targets) => entry.mdt()?.map(|index| targets.has(index)),
            Property::MdtCount(range) => {
                entry.dir_striping()?.map(|lmv| range.holds(u64::from(lmv.stripe_count.unsigned_abs())))
            }
            // A directory that is not striped has no hash function.
            Property::MdtHash(hash) => {
                entry.dir_striping()?.map(|lmv| lmv.stripe_count != 0 && hash.holds(&lmv.hash.to_string()))
            }
            Property::Xattr(name, value) => {
                let found = entry.xattr(name)?;
                Some(found.is_some_and(|found| value.as_ref().is_none_or(|glob| glob.matches(&found))))
            }
            _ => None,
        })
    }

    fn of_stat(&self, entry: &mut impl Facts, now: i64) -> Result<Option<bool>> {
        let stat = entry.stat()?;
        let perm = stat.mode & 0o7777;
        Ok(match &self.property {
            Property::Size(range) => Some(range.holds(stat.size)),
            Property::Blocks(range) => Some(range.holds(stat.blocks.saturating_mul(512))),
            Property::Age(stamp, range) => stat.time(*stamp).map(|(at, _)| range.holds_age(now.saturating_sub(at))),
            Property::Newer(stamp, than) => stat.time(*stamp).map(|at| at > *than),
            Property::Perm(Perm::Exactly(bits)) => Some(perm == *bits),
            Property::Perm(Perm::All(bits)) => Some(perm & bits == *bits),
            Property::Perm(Perm::Any(bits)) => Some(*bits == 0 || perm & bits != 0),
            Property::Links(range) => Some(range.holds(u64::from(stat.links))),
            Property::User(id) => Some(stat.uid == *id),
            Property::Group(id) => Some(stat.gid == *id),
            Property::Attributes(bits) => {
                Some(stat.attributes & bits.set == bits.set && stat.attributes & bits.clear == 0)
            }
            _ => None,
        })
    }

    fn of_layout(&self, entry: &mut impl Facts) -> Result<Option<bool>> {
        let is_dir = entry.kind()? == FileKind::Dir;
        let striping = entry.striping()?;
        let mut parts = striping.components().iter();
        Ok(match &self.property {
            Property::StripeCount(range) => Some(range.holds(striping.stripe_count())),
            Property::StripeSize(range) => Some(range.holds(striping.stripe_size())),
            Property::Ost(targets) => Some(striping.osts().any(|ost| targets.has(ost))),
            Property::Pool(name) => Some(striping.is_in_pool(name)),
            Property::Layout(bits) => Some(parts.any(|c| c.pattern.0 & bits == *bits)),
            Property::ComponentCount(range) => Some(range.holds(striping.component_count())),
            Property::ComponentStart(range) => Some(parts.any(|c| range.holds(c.start))),
            Property::ComponentEnd(range) => Some(parts.any(|c| range.holds(c.end))),
            Property::ComponentFlags(bits) => {
                Some(striping.flags(is_dir).any(|f| f & bits.set == bits.set && f & bits.clear == 0))
            }
            Property::MirrorCount(range) => Some(range.holds(striping.mirror_count())),
            Property::MirrorState(state, other) => striping.mirror_state().map(|is| (is == *state) != *other),
            Property::ExtensionSize(range) => {
                Some(parts.filter_map(|c| c.extension_size()).any(|bytes| range.holds(bytes)))
            }
            Property::Foreign => Some(*striping == Striping::Foreign),
            _ => None,
        })
    }
}
