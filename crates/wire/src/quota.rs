//! Quotas: limits of space and files for users, groups and projects, as servers and `lfs` exchange
//! them.
//!
//! `lfs` reads and sets quotas by extended attributes of the file system's root. `getxattr` of
//! [`QUERY_PREFIX`] with an encoded [`Query`] returns an encoded [`Answer`]. `setxattr` of
//! [`XATTR`] takes an encoded [`Change`]. Both are never listed.
//!
//! Limits apply to all targets, or to the OSTs of a pool. A pool has limits of space alone.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{Errno, PoolName, Result};

/// Attribute of the root whose value is a [`Change`].
pub const XATTR: &str = "lustre.quota";
/// Begin of the names of the attributes of the root that answer a [`Query`].
pub const QUERY_PREFIX: &str = "lustre.quota.";
/// Maximum ids in one [`Answer::All`].
pub const ALL_MAX: usize = 400;
/// Grace time in seconds unless another one was set: a week, as in Lustre.
pub const GRACE_SECS: u64 = 7 * 24 * 3600;

/// Kind of those who have quotas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum Kind {
    /// A user.
    User,
    /// A group.
    Group,
    /// A project.
    Project,
}

impl Kind {
    /// All kinds, in the order in which they sort.
    pub const ALL: [Kind; 3] = [Kind::User, Kind::Group, Kind::Project];

    /// Returns its name in messages and parameters.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::User => "user",
            Kind::Group => "group",
            Kind::Project => "project",
        }
    }
}

/// A user, a group or a project.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Id {
    /// Which of them.
    pub kind: Kind,
    /// Uid, gid or project id.
    pub id: u32,
}

/// Those to whom a file's space and inode are charged.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project id.
    pub project: u32,
}

impl Owner {
    /// Returns its user, its group and its project.
    pub const fn ids(self) -> [Id; 3] {
        [
            Id { kind: Kind::User, id: self.uid },
            Id { kind: Kind::Group, id: self.gid },
            Id { kind: Kind::Project, id: self.project },
        ]
    }

    /// Whether no limit applies: files of the superuser are counted and never refused.
    pub const fn is_exempt(self) -> bool {
        self.uid == 0
    }
}

/// Limits of space in bytes, or of files. 0: no limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Limits {
    /// May be exceeded for the grace time.
    pub soft: u64,
    /// Is never exceeded.
    pub hard: u64,
}

impl Limits {
    /// Whether there is no limit at all.
    pub const fn is_none(self) -> bool {
        self.soft == 0 && self.hard == 0
    }
}

/// Both limits of an id.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Setting {
    /// Space in bytes.
    pub space: Limits,
    /// Files of any kind, directories included.
    pub files: Limits,
}

/// Grace times in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Grace {
    /// For space.
    pub space: u64,
    /// For files.
    pub files: u64,
}

impl Default for Grace {
    fn default() -> Grace {
        Grace { space: GRACE_SECS, files: GRACE_SECS }
    }
}

/// New limits; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NewLimits {
    /// Soft limit.
    pub soft: Option<u64>,
    /// Hard limit.
    pub hard: Option<u64>,
}

impl NewLimits {
    /// Applies them. EINVAL: the soft limit would exceed the hard one.
    ///
    /// # Errors
    /// EINVAL.
    pub fn apply(self, to: Limits) -> Result<Limits> {
        let limits = Limits { soft: self.soft.unwrap_or(to.soft), hard: self.hard.unwrap_or(to.hard) };
        if limits.hard > 0 && limits.soft > limits.hard { Err(Errno::EINVAL) } else { Ok(limits) }
    }
}

/// A change of quotas. Superuser only (EPERM). EINVAL: a soft limit above the hard one, or a pool
/// and a limit or grace time of files. ENOENT: there is no such pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Change {
    /// Gives an id limits of its own.
    Limits {
        /// Whose.
        id: Id,
        /// Within which pool.
        pool: Option<PoolName>,
        /// Space in bytes.
        space: NewLimits,
        /// Files.
        files: NewLimits,
    },
    /// Lets the default limits apply to an id.
    UseDefault {
        /// Whose.
        id: Id,
        /// Within which pool, which need not exist any more.
        pool: Option<PoolName>,
    },
    /// Removes the limits of an id. The default limits apply to it, if there are some.
    Delete {
        /// Whose.
        id: Id,
        /// Within which pool, which need not exist any more.
        pool: Option<PoolName>,
    },
    /// Sets the limits of all ids that have none of their own.
    Default {
        /// Of which ids.
        kind: Kind,
        /// Within which pool.
        pool: Option<PoolName>,
        /// Space in bytes.
        space: NewLimits,
        /// Files.
        files: NewLimits,
    },
    /// Sets grace times in seconds.
    Grace {
        /// Of which ids.
        kind: Kind,
        /// Within which pool.
        pool: Option<PoolName>,
        /// For space.
        space: Option<u64>,
        /// For files.
        files: Option<u64>,
    },
}

impl Change {
    /// Returns the id whose limits it changes.
    pub const fn id(&self) -> Option<Id> {
        match self {
            Change::Limits { id, .. } | Change::UseDefault { id, .. } | Change::Delete { id, .. } => Some(*id),
            Change::Default { .. } | Change::Grace { .. } => None,
        }
    }

    /// Returns the pool to which it applies. `None`: it applies to all targets.
    pub const fn pool(&self) -> Option<PoolName> {
        match self {
            Change::Limits { pool, .. }
            | Change::UseDefault { pool, .. }
            | Change::Delete { pool, .. }
            | Change::Default { pool, .. }
            | Change::Grace { pool, .. } => *pool,
        }
    }

    /// Returns the change within a pool.
    #[must_use]
    pub const fn within(mut self, of: Option<PoolName>) -> Change {
        match &mut self {
            Change::Limits { pool, .. }
            | Change::UseDefault { pool, .. }
            | Change::Delete { pool, .. }
            | Change::Default { pool, .. }
            | Change::Grace { pool, .. } => *pool = of,
        }
        self
    }

    /// Whether it removes an id's own limits, also those of a pool that does not exist any more.
    pub const fn removes(&self) -> bool {
        matches!(self, Change::UseDefault { .. } | Change::Delete { .. })
    }
}

/// A question about quotas. Everybody may ask for their own user, their own groups, projects,
/// defaults and grace times; the superuser for everything (else EPERM). With a pool, the answer has
/// the use and the limits of space within its OSTs. ENOENT: there is no such pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Query {
    /// Use and limits of an id. `targets`: also each target's part.
    Of {
        /// Whose.
        id: Id,
        /// Within which pool.
        pool: Option<PoolName>,
        /// Whether the answer has the targets.
        targets: bool,
    },
    /// Use and limits of the ids from `first` on that have any: at most [`ALL_MAX`].
    All {
        /// Of which ids.
        kind: Kind,
        /// Within which pool.
        pool: Option<PoolName>,
        /// The first id.
        first: u32,
    },
    /// Default limits and grace times.
    Default {
        /// Of which ids.
        kind: Kind,
        /// Within which pool.
        pool: Option<PoolName>,
    },
}

/// Use and limits of one resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Bytes, or files.
    pub used: u64,
    /// The limits that apply, own or default.
    pub limits: Limits,
    /// While the soft limit is exceeded: seconds until it acts as a hard limit. Negative: it does
    /// since then.
    pub grace: Option<i64>,
}

/// Use and limits of an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Space in bytes.
    pub space: Usage,
    /// Files.
    pub files: Usage,
    /// Whether it has no limits of its own, so that the default ones apply.
    pub uses_default: bool,
}

/// One target's part.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TargetReport {
    /// Such as `sheen-OST0000`.
    pub target: String,
    /// Bytes in use there. `None`: it does not answer, or does not know yet.
    pub space: Option<u64>,
    /// Files of an MDT, or objects of an OST.
    pub files: u64,
    /// Bytes that the id may use there without asking the MDT; `None`: no limit.
    pub space_allowed: Option<u64>,
}

/// The answer to a [`Query`].
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Query::Of`].
    Of {
        /// Sum of all targets.
        report: Report,
        /// Each target's part, if asked for.
        targets: Vec<TargetReport>,
        /// Whether a target is missing in the sum: it does not answer, or does not know yet.
        inexact: bool,
    },
    /// To [`Query::All`].
    All {
        /// Ids in ascending order.
        ids: Vec<(u32, Report)>,
        /// Whether there are more ids after them.
        more: bool,
        /// As in `Of`.
        inexact: bool,
    },
    /// To [`Query::Default`].
    Default {
        /// Limits.
        setting: Setting,
        /// Grace times.
        grace: Grace,
    },
}

fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|_| Errno::EINVAL)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(Errno::EINVAL),
    }
}

impl Change {
    /// Encodes the value of [`XATTR`].
    ///
    /// # Errors
    /// EINVAL: it cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>> {
        encode(self)
    }

    /// Decodes the value of [`XATTR`].
    ///
    /// # Errors
    /// EINVAL: it is no change.
    pub fn decode(bytes: &[u8]) -> Result<Change> {
        decode(bytes)
    }
}

impl Answer {
    /// Encodes the value of the attribute.
    ///
    /// # Errors
    /// EINVAL: it cannot be encoded.
    pub fn encode(&self) -> Result<Vec<u8>> {
        encode(self)
    }

    /// Decodes the value of the attribute.
    ///
    /// # Errors
    /// EINVAL: it is no answer.
    pub fn decode(bytes: &[u8]) -> Result<Answer> {
        decode(bytes)
    }
}

impl Query {
    /// Returns the pool to which it applies. `None`: it applies to all targets.
    pub const fn pool(&self) -> Option<PoolName> {
        match self {
            Query::Of { pool, .. } | Query::All { pool, .. } | Query::Default { pool, .. } => *pool,
        }
    }

    /// Returns the name of the attribute with the answer.
    ///
    /// # Errors
    /// EINVAL: it cannot be encoded.
    pub fn name(&self) -> Result<String> {
        let hex: String = encode(self)?.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{QUERY_PREFIX}{hex}"))
    }

    /// Returns the query that an attribute answers; `None` for another attribute.
    pub fn of_name(name: &[u8]) -> Option<Query> {
        let hex = name.strip_prefix(QUERY_PREFIX.as_bytes()).filter(|hex| hex.len() % 2 == 0)?;
        let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok();
        let bytes: Option<Vec<u8>> = hex.chunks(2).map(byte).collect();
        decode(&bytes?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_is_the_name_of_an_attribute() {
        for pool in [None, Some(PoolName::new("fifteen_letters").unwrap())] {
            let query = Query::Of { id: Id { kind: Kind::Project, id: u32::MAX - 1 }, pool, targets: true };
            let name = query.name().unwrap();
            assert!(name.len() < 64 && name.is_ascii(), "{name}");
            assert_eq!(Query::of_name(name.as_bytes()), Some(query));
            assert_eq!(query.pool(), pool);
        }
        for bad in ["lustre.quota", "lustre.quota.", "lustre.quota.0", "lustre.quota.zz", "lustre.quota.ff", "user.a"] {
            assert_eq!(Query::of_name(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn soft_limit_cannot_exceed_the_hard_one() {
        let old = Limits { soft: 5, hard: 10 };
        let new = |soft, hard| NewLimits { soft, hard }.apply(old);
        assert_eq!(new(Some(10), None), Ok(Limits { soft: 10, hard: 10 }));
        assert_eq!(new(Some(11), None), Err(Errno::EINVAL));
        assert_eq!(new(None, Some(4)), Err(Errno::EINVAL));
        assert_eq!(new(None, Some(0)), Ok(Limits { soft: 5, hard: 0 }));
        assert_eq!(new(None, None), Ok(old));
    }

    #[test]
    fn change_and_answer_are_read_as_written() {
        let id = Id { kind: Kind::User, id: 1000 };
        let limits = NewLimits { soft: Some(1), hard: None };
        let pool = PoolName::new("ssd").ok();
        let change = Change::Limits { id, pool, space: limits, files: NewLimits::default() };
        assert_eq!(Change::decode(&change.encode().unwrap()), Ok(change));
        assert_eq!((change.id(), change.pool(), change.removes()), (Some(id), pool, false));
        assert_eq!(Change::decode(b"\xff"), Err(Errno::EINVAL));
        let target = TargetReport { target: "a-OST0000".into(), space: None, files: 3, space_allowed: Some(4) };
        let answer = Answer::Of { report: Report::default(), targets: vec![target], inexact: true };
        assert_eq!(Answer::decode(&answer.encode().unwrap()), Ok(answer));
    }
}
