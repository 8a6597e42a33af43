//! `lfs setquota`: limits and grace times of users, groups and projects.

use std::{ffi::OsString, path::Path};

use sheen_wire::{
    Errno,
    quota::{Answer, Change, Id, Kind, Limits, NewLimits, Query, Setting},
};

use super::{
    getopt::{Item, Spec, Value},
    numbers::{parse_size, parse_unsigned},
    quota::{
        ids, mount_of, pool_of,
        table::{NOTIFY_SECS, UNITS},
    },
    tool::{EXIT_USAGE, Tool, text},
};

/// Lustre's usage of `setquota`.
macro_rules! setquota_usage {
    () => {
        "\
Set filesystem quotas.
usage: setquota [-t] {-u|-U|-g|-G|-p|-P ID} {-b|-B|-i|-I LIMIT}
                [--lqa LQA_NAME] [--pool POOL] MOUNT_POINT
       setquota {-u|-g|-p ID} {--default|--delete} MOUNT_POINT

"
    };
}

/// `setquota`: for usage errors.
const USAGE: &str = setquota_usage!();

/// `lfs help setquota`: also explains the options.
pub const HELP: &str = concat!(
    setquota_usage!(),
    "\
  -u|--user  limits of a user
  -g|--group  limits of a group
  -p|--projid  limits of a project
  -U|--default-usr  limits of all users who have none of their own
  -G|--default-grp  limits of all groups that have none of their own
  -P|--default-prj  limits of all projects that have none of their own
  -b|--block-softlimit  soft limit of space in KiB, or with a unit
  -B|--block-hardlimit  hard limit of space in KiB, or with a unit
  -i|--inode-softlimit  soft limit of files
  -I|--inode-hardlimit  hard limit of files
  -D|--default  the default limits apply
  --delete  remove the limits
  -t|--times  grace times of a kind: with -b|--block-grace and -i|--inode-grace
  --pool  only within the OSTs of this pool: limits and grace times of space
A limit of 0 means no limit. Grace times are seconds, or such as 1w2d3h4m5s, or notify.
"
);

const LIMITS: Spec = Spec {
    short: "b:B:Dg:Gi:I:p:Pru:Uh",
    long: &[
        ("block-softlimit", Value::Required, "b"),
        ("block-hardlimit", Value::Required, "B"),
        ("default", Value::No, "D"),
        ("delete", Value::No, "delete"),
        ("group", Value::Required, "g"),
        ("default-grp", Value::No, "G"),
        ("help", Value::No, "h"),
        ("inode-softlimit", Value::Required, "i"),
        ("inode-hardlimit", Value::Required, "I"),
        ("lqa", Value::Required, "lqa"),
        ("pool", Value::Required, "pool"),
        ("projid", Value::Required, "p"),
        ("default-prj", Value::No, "P"),
        ("reset", Value::No, "r"),
        ("user", Value::Required, "u"),
        ("default-usr", Value::No, "U"),
    ],
};
/// With `-t` the same letters have other meanings.
const TIMES: Spec = Spec {
    short: "b:ghi:put",
    long: &[
        ("block-grace", Value::Required, "b"),
        ("group", Value::No, "g"),
        ("help", Value::No, "h"),
        ("inode-grace", Value::Required, "i"),
        ("lqa", Value::Required, "lqa"),
        ("pool", Value::Required, "pool"),
        ("projid", Value::No, "p"),
        ("times", Value::No, "t"),
        ("user", Value::No, "u"),
    ],
};

/// Limits up to which Lustre warns: 1 MiB of space in KiB, and 1,024 files. A limit that is shared
/// out among more targets than it has such units is inexact there.
const QUNIT_MIN: u64 = 1024;

/// The reason why a call is refused.
enum Wrong {
    /// `--help`.
    Help,
    /// Wrong usage.
    Usage(String),
    /// A failure with this errno.
    Failed(String, Errno),
}

impl From<String> for Wrong {
    fn from(text: String) -> Wrong {
        Wrong::Usage(text)
    }
}

type Parsed<T> = Result<T, Wrong>;

/// A parsed call.
struct Call {
    /// The change, so far without the pool.
    change: Change,
    /// The pool, as it was named.
    pool: Option<String>,
    /// The path on a mount.
    path: OsString,
}

/// Runs `lfs setquota`.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let has_times = args.iter().any(|arg| arg == "-t" || arg == "--times");
    let done = match has_times {
        true => parse_times(args),
        false => parse_limits(tool, args),
    };
    match done.and_then(|call| apply(tool, &call)) {
        Ok(()) => 0,
        Err(Wrong::Help) => tool.help(USAGE),
        Err(Wrong::Usage(wrong)) => {
            tool.usage(USAGE, format_args!("lfs setquota: {wrong}"));
            // As in Lustre, which takes the exit code for an errno.
            tool.complain(format_args!("setquota failed: Unknown error -{EXIT_USAGE}"));
            EXIT_USAGE
        }
        Err(Wrong::Failed(wrong, e)) => {
            tool.complain(format_args!("lfs setquota: {wrong}\nsetquota failed: {e}"));
            e.0
        }
    }
}

fn apply(tool: &Tool, call: &Call) -> Parsed<()> {
    let path = Path::new(&call.path);
    let mount = mount_of(tool, path).map_err(|e| failed(e, path))?;
    let failed_in_pool = |e| match (e, &call.pool) {
        (Errno::ENOENT, Some(pool)) => {
            Wrong::Failed(format!("file system '{}' has no pool '{pool}'", mount.fsname), Errno::ENOENT)
        }
        (e, _) => failed(e, path),
    };
    let pool = call.pool.as_deref().map(|name| pool_of(name, &mount)).transpose().map_err(failed_in_pool)?;
    let (at, change) = (Path::new(&mount.mountpoint), call.change.within(pool));
    match tool.fs.set_quota(at, &change) {
        Err(Errno::EINVAL) => {
            let why = conflict(tool, at, &change).map(|why| format!("\nlfs setquota: {why}")).unwrap_or_default();
            Err(Wrong::Failed(format!("quotactl failed: {}{why}", Errno::EINVAL), Errno::EINVAL))
        }
        done => done.map_err(failed_in_pool),
    }
}

fn failed(e: Errno, path: &Path) -> Wrong {
    let path = path.display();
    let why = match e {
        Errno::ENODEV => format!("'{path}' is not on a mounted Lustre filesystem"),
        Errno::EOPNOTSUPP => format!("only a subdirectory is mounted on '{path}': name a mount of all files"),
        e => format!("quotactl failed: {e}"),
    };
    Wrong::Failed(why, e)
}

/// Returns the present limit that contradicts a given one. `None`: the given limits contradict each
/// other, or the present ones cannot be read.
fn conflict(tool: &Tool, mount: &Path, change: &Change) -> Option<String> {
    let (present, space, files) = match *change {
        Change::Limits { id, pool, space, files } => {
            let answer = tool.fs.quota(mount, &Query::Of { id, pool, targets: false }).ok()?;
            let Answer::Of { report, .. } = answer else { return None };
            (Setting { space: report.space.limits, files: report.files.limits }, space, files)
        }
        Change::Default { kind, pool, space, files } => {
            let answer = tool.fs.quota(mount, &Query::Default { kind, pool }).ok()?;
            let Answer::Default { setting, .. } = answer else { return None };
            (setting, space, files)
        }
        _ => return None,
    };
    let of_space = conflict_of(space, present.space, "space", |bytes| format!("{} KiB", bytes / 1024));
    of_space.or_else(|| conflict_of(files, present.files, "files", |files| files.to_string()))
}

fn conflict_of(new: NewLimits, present: Limits, what: &str, text: impl Fn(u64) -> String) -> Option<String> {
    new.apply(present).err()?;
    match (new.soft, new.hard) {
        (Some(_), None) => {
            let hard = text(present.hard);
            Some(format!("the soft limit of {what} would exceed the present hard limit of {hard}"))
        }
        (None, Some(_)) => {
            let soft = text(present.soft);
            Some(format!("the hard limit of {what} would be below the present soft limit of {soft}"))
        }
        _ => None,
    }
}

/// Returns the only operand.
fn mount_point(mut operands: Vec<OsString>) -> Parsed<OsString> {
    match (operands.pop(), operands.first()) {
        (Some(path), None) => Ok(path),
        (None, _) => Err("filesystem not specified".to_owned().into()),
        (Some(last), Some(_)) => Err(format!("unexpected argument '{}'", last.display()).into()),
    }
}

/// Refuses limits and grace times of files within a pool.
fn refuse_files(is_wrong: bool) -> Parsed<()> {
    let wrong = "a pool has no limits of files (-i, -I)";
    if is_wrong { Err(wrong.to_owned().into()) } else { Ok(()) }
}

/// Returns the refusal of an option that Lustre has.
fn unsupported(id: &str) -> Wrong {
    let why = match id {
        "lqa" => "there are no quotas of ranges of ids (--lqa)",
        _ => "--reset cannot compare the OSTs' records of owners with the MDT yet",
    };
    Wrong::Failed(why.to_owned(), Errno::EOPNOTSUPP)
}

/// The options of a call without `-t`.
#[derive(Default)]
struct Given {
    /// The kind, and the id unless it is about the default limits.
    whose: Option<(Kind, Option<Id>)>,
    use_default: bool,
    delete: bool,
    pool: Option<String>,
    space: NewLimits,
    files: NewLimits,
}

fn parse_limits(tool: &mut Tool, args: &[OsString]) -> Parsed<Call> {
    let (mut given, mut operands) = (Given::default(), Vec::new());
    for item in LIMITS.parse(args) {
        match item {
            Item::Option { id, value, .. } => given.option(tool, id, value.as_deref().map_or("", text))?,
            Item::Operand(operand) => operands.push(operand),
            Item::Unrecognized(arg) => return Err(format!("unrecognized option '{}'", arg.display()).into()),
        }
    }
    let pool = given.pool.take();
    let change = given.change()?;
    let has_files = match change {
        Change::Limits { files, .. } | Change::Default { files, .. } => files != NewLimits::default(),
        _ => false,
    };
    refuse_files(pool.is_some() && has_files)?;
    Ok(Call { change, pool, path: mount_point(operands)? })
}

impl Given {
    fn option(&mut self, tool: &mut Tool, id: &'static str, value: &str) -> Parsed<()> {
        match id {
            "u" => self.set_id(Kind::User, value),
            "g" => self.set_id(Kind::Group, value),
            "p" => self.set_id(Kind::Project, value),
            "U" => self.set_whose(Kind::User, None),
            "G" => self.set_whose(Kind::Group, None),
            "P" => self.set_whose(Kind::Project, None),
            "D" => {
                self.use_default = true;
                Ok(())
            }
            "delete" => {
                self.delete = true;
                Ok(())
            }
            "pool" => {
                self.pool = Some(value.to_owned());
                Ok(())
            }
            "h" => Err(Wrong::Help),
            "b" => set(&mut self.space.soft, space_limit(tool, "softlimit", value)),
            "B" => set(&mut self.space.hard, space_limit(tool, "hardlimit", value)),
            "i" => set(&mut self.files.soft, files_limit(tool, "softlimit", value)),
            "I" => set(&mut self.files.hard, files_limit(tool, "hardlimit", value)),
            id => Err(unsupported(id)),
        }
    }

    fn set_id(&mut self, kind: Kind, value: &str) -> Parsed<()> {
        let refused = |why: String| Wrong::Failed(why, Errno::EPERM);
        let invalid = || refused(format!("invalid {} id '{value}'", kind.name()));
        let id = ids::parse(kind, value).ok_or_else(invalid)?;
        if id.id == 0 {
            return Err(refused("can't set quota for root usr/group/project.".to_owned()));
        }
        self.set_whose(kind, Some(id))
    }

    fn set_whose(&mut self, kind: Kind, id: Option<Id>) -> Parsed<()> {
        match self.whose.replace((kind, id)) {
            None => Ok(()),
            Some(_) => Err("only one of -u, -U, -g, -G, -p or -P may be specified".to_owned().into()),
        }
    }

    fn change(self) -> Parsed<Change> {
        let Given { whose, use_default, delete, space, files, .. } = self;
        let Some((kind, id)) = whose else {
            return Err("either -u or -g must be specified".to_owned().into());
        };
        let is_limited = space != NewLimits::default() || files != NewLimits::default();
        let wrong = match (use_default || delete, is_limited, id) {
            (true, true, _) => "limits should not be specified when using default quota",
            (true, false, None) => "can not set default quota for root user/group/project",
            (true, false, Some(id)) if delete => return Ok(Change::Delete { id, pool: None }),
            (true, false, Some(id)) => return Ok(Change::UseDefault { id, pool: None }),
            (false, false, _) => "at least one limit must be specified",
            (false, true, Some(id)) => return Ok(Change::Limits { id, pool: None, space, files }),
            (false, true, None) => return Ok(Change::Default { kind, pool: None, space, files }),
        };
        Err(wrong.to_owned().into())
    }
}

fn set(limit: &mut Option<u64>, value: Parsed<u64>) -> Parsed<()> {
    *limit = Some(value?);
    Ok(())
}

/// Parses a limit of space: KiB, or a size with a unit, which is rounded down to KiB. Returns
/// bytes.
fn space_limit(tool: &mut Tool, name: &str, text: &str) -> Parsed<u64> {
    let bytes = match parse_unsigned(text) {
        Some(kib) => kib.checked_mul(1024),
        None => parse_size(text),
    };
    let kib = bytes.ok_or_else(|| format!("invalid limit '{text}'"))? / 1024;
    warn(tool, &format!("block {name}"), kib);
    Ok(kib * 1024)
}

fn files_limit(tool: &mut Tool, name: &str, text: &str) -> Parsed<u64> {
    let files = parse_size(text).ok_or_else(|| format!("invalid limit '{text}'"))?;
    warn(tool, &format!("inode {name}"), files);
    Ok(files)
}

fn warn(tool: &mut Tool, name: &str, limit: u64) {
    if (1..=QUNIT_MIN).contains(&limit) {
        tool.complain(format_args!(
            "lfs setquota: warning: {name} '{limit}' smaller than minimum qunit size\n\
             See 'lfs help setquota' or Lustre manual for details"
        ));
    }
}

/// Parses a call with `-t`.
fn parse_times(args: &[OsString]) -> Parsed<Call> {
    let (mut kind, mut space, mut files, mut pool, mut operands) = (None, None, None, None, Vec::new());
    for item in TIMES.parse(args) {
        let (id, value) = match item {
            Item::Option { id, value, .. } => (id, value.unwrap_or_default()),
            Item::Operand(operand) => {
                operands.push(operand);
                continue;
            }
            Item::Unrecognized(arg) => return Err(format!("unrecognized option '{}'", arg.display()).into()),
        };
        let of_option = match id {
            "u" => Some(Kind::User),
            "g" => Some(Kind::Group),
            "p" => Some(Kind::Project),
            "b" => {
                space = Some(grace("block-grace", text(&value))?);
                None
            }
            "i" => {
                files = Some(grace("inode-grace", text(&value))?);
                None
            }
            "pool" => {
                pool = Some(text(&value).to_owned());
                None
            }
            "t" => None,
            "h" => return Err(Wrong::Help),
            id => return Err(unsupported(id)),
        };
        if of_option.is_some() && kind.is_some() {
            return Err("-u/g/p can't be used more than once".to_owned().into());
        }
        kind = kind.or(of_option);
    }
    let Some(kind) = kind else { return Err("neither -u, -g nor -p specified".to_owned().into()) };
    if space.is_none() && files.is_none() {
        return Err("at least one grace time must be specified".to_owned().into());
    }
    refuse_files(pool.is_some() && files.is_some())?;
    let change = Change::Grace { kind, pool: None, space, files };
    Ok(Call { change, pool, path: mount_point(operands)? })
}

fn grace(name: &str, text: &str) -> Parsed<u64> {
    duration(text).ok_or_else(|| format!("bad {name}: {text}").into())
}

/// Parses a grace time: `notify`, a number of seconds, or numbers with the letters of [`UNITS`] in
/// any order.
fn duration(text: &str) -> Option<u64> {
    if text == "notify" {
        return Some(NOTIFY_SECS);
    }
    let (mut secs, mut rest) = (0u64, text);
    while let Some(end) = rest.find(|c: char| !c.is_ascii_digit()) {
        let letter = rest[end..].chars().next()?;
        let (unit, _) = UNITS.into_iter().find(|(_, known)| *known == letter)?;
        secs = secs.checked_add(rest[..end].parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = &rest[end + 1..];
    }
    // A number without a letter is all of the text.
    let secs = match (rest.len() == text.len(), rest.is_empty()) {
        (true, _) => text.parse().ok()?,
        (false, true) => secs,
        (false, false) => return None,
    };
    (secs < NOTIFY_SECS).then_some(secs)
}

#[cfg(test)]
mod tests;
