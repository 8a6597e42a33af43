//! The options of `lfs quota`.

use std::ffi::OsString;

use sheen_wire::{
    mgs::TargetKind,
    quota::{Id, Kind},
};

use super::{
    super::{
        getopt::{Item, Spec, Value},
        numbers::parse_unsigned,
        tool::text,
    },
    ids,
    table::{Column, Table},
};

const OPTIONS: Spec = Spec {
    // As in Lustre: the user, group or project of the short options is the first operand.
    short: "abBe:gGhi:I:m:no:pPqs:tuUv",
    long: &[
        ("all", Value::No, "a"),
        ("end-qid", Value::Required, "e"),
        ("delimiter", Value::Required, "delimiter"),
        ("default", Value::No, "default"),
        ("group", Value::Required, "g"),
        ("default-grp", Value::No, "G"),
        ("human-readable", Value::No, "h"),
        ("mdt-index", Value::Required, "m"),
        ("mdt", Value::Required, "m"),
        ("num", Value::No, "n"),
        ("ost-index", Value::Required, "o"),
        ("ost", Value::Required, "o"),
        ("lqa", Value::Required, "lqa"),
        ("pool", Value::Required, "pool"),
        ("projid", Value::Required, "p"),
        ("default-prj", Value::No, "P"),
        ("quiet", Value::No, "q"),
        ("start-qid", Value::Required, "s"),
        ("times", Value::No, "t"),
        ("user", Value::Required, "u"),
        ("default-usr", Value::No, "U"),
        ("verbose", Value::No, "v"),
        ("filesystem", Value::No, "filesystem"),
        ("mount-point", Value::No, "filesystem"),
        ("blocks", Value::No, "blocks"),
        ("busage", Value::No, "blocks"),
        ("space", Value::No, "blocks"),
        ("kbytes", Value::No, "blocks"),
        ("block-softlimit", Value::No, "b"),
        ("bsoftlimit", Value::No, "b"),
        ("bquota", Value::No, "b"),
        ("block-hardlimit", Value::No, "B"),
        ("bhardlimit", Value::No, "B"),
        ("blimit", Value::No, "B"),
        ("block-grace", Value::No, "bgrace"),
        ("bgrace", Value::No, "bgrace"),
        ("btime", Value::No, "bgrace"),
        ("inodes", Value::No, "inodes"),
        ("iusage", Value::No, "inodes"),
        ("files", Value::No, "inodes"),
        ("inode-softlimit", Value::No, "isoftlimit"),
        ("isoftlimit", Value::No, "isoftlimit"),
        ("iquota", Value::No, "isoftlimit"),
        ("inode-hardlimit", Value::No, "ihardlimit"),
        ("ihardlimit", Value::No, "ihardlimit"),
        ("ilimit", Value::No, "ihardlimit"),
        ("inode-grace", Value::No, "igrace"),
        ("igrace", Value::No, "igrace"),
        ("itime", Value::No, "igrace"),
        ("show-root", Value::No, "show-root"),
    ],
};

/// A parsed call.
pub struct Asked {
    /// Content.
    pub view: View,
    /// Form.
    pub table: Table,
    /// No titles.
    pub quiet: bool,
    /// Also the part of each target.
    pub verbose: bool,
    /// Only the part of this target.
    pub target: Option<Selected>,
    /// Within the OSTs of this pool.
    pub pool: Option<String>,
    /// Paths on the mounts. None: all mounts.
    pub mounts: Vec<OsString>,
}

/// The content of a call's tables.
pub enum View {
    /// Use and limits of each of these.
    Ids(Vec<Id>),
    /// Use and limits of all of a kind.
    All(Kind, IdRange),
    /// Default limits of a kind.
    Default(Kind),
    /// Grace times of a kind.
    Grace(Kind),
}

/// The ids of a list, and their form.
pub struct IdRange {
    /// The first id.
    pub first: u32,
    /// The last id.
    pub last: u32,
    /// Also the id 0.
    pub show_root: bool,
    /// Ids in place of names.
    pub numeric: bool,
}

/// A target.
#[derive(Clone, Copy)]
pub struct Selected {
    /// Its kind.
    pub kind: TargetKind,
    /// Its index.
    pub index: u32,
}

/// The reason why a call is refused.
pub enum Wrong {
    /// Wrong usage.
    Usage(String),
    /// An option of Lustre's that has no meaning in Sheen.
    Unsupported(String),
}

impl From<String> for Wrong {
    fn from(text: String) -> Wrong {
        Wrong::Usage(text)
    }
}

/// The options as they were given.
#[derive(Default)]
struct Given {
    kind: Option<Kind>,
    /// The user, group or project of a long option.
    name: Option<OsString>,
    default: bool,
    all: bool,
    times: bool,
    first: Option<u32>,
    last: Option<u32>,
    show_root: bool,
    numeric: bool,
    human: bool,
    quiet: bool,
    verbose: bool,
    target: Option<Selected>,
    pool: Option<String>,
    delimiter: Option<String>,
    columns: Vec<Column>,
}

/// Parses the arguments.
pub fn parse(args: &[OsString]) -> Result<Asked, Wrong> {
    let (mut given, mut operands) = (Given::default(), Vec::new());
    for item in OPTIONS.parse(args) {
        match item {
            Item::Option { id, value, .. } => given.option(id, value)?,
            Item::Operand(operand) => operands.push(operand),
            Item::Unrecognized(arg) => return Err(format!("unrecognized option '{}'", arg.display()).into()),
        }
    }
    let view = given.view(&mut operands)?;
    let Given { human, quiet, verbose, target, pool, delimiter, columns, .. } = given;
    let table = Table::new(all_columns(&view), &columns, delimiter, human);
    Ok(Asked { view, table, quiet, verbose, target, pool, mounts: operands })
}

/// Columns of a view, if the options select none.
fn all_columns(view: &View) -> &'static [Column] {
    match view {
        View::All(..) => &Column::ALL,
        View::Default(_) => &Column::OF_DEFAULTS,
        View::Ids(_) | View::Grace(_) => &Column::OF_IDS,
    }
}

impl Given {
    fn option(&mut self, id: &'static str, value: Option<OsString>) -> Result<(), Wrong> {
        let words = value.as_deref().map_or("", text);
        match id {
            "u" | "U" => self.set_kind(Kind::User)?,
            "g" | "G" => self.set_kind(Kind::Group)?,
            "p" | "P" => self.set_kind(Kind::Project)?,
            "a" => self.all = true,
            "t" => self.times = true,
            "s" => self.first = Some(number(words)?),
            "e" => self.last = Some(number(words)?),
            "n" => self.numeric = true,
            "show-root" => self.show_root = true,
            "h" => self.human = true,
            "q" => self.quiet = true,
            "v" => self.verbose = true,
            "m" | "i" => self.target = Some(target(TargetKind::Mdt, words)?),
            "o" | "I" => self.target = Some(target(TargetKind::Ost, words)?),
            "pool" => self.pool = Some(words.to_owned()),
            "delimiter" => self.delimiter = Some(words.to_owned()),
            "lqa" => return Err(Wrong::Unsupported("there are no quotas of ranges of ids (--lqa)".to_owned())),
            _ => self.columns.extend(column(id)),
        }
        match id {
            "U" | "G" | "P" | "default" => self.default = true,
            "u" | "g" | "p" => self.name = value,
            _ => {}
        }
        Ok(())
    }

    fn set_kind(&mut self, kind: Kind) -> Result<(), Wrong> {
        match self.kind.replace(kind) {
            None => Ok(()),
            Some(_) => Err("only one of -u, -g, -p, -U, -G and -P may be specified".to_owned().into()),
        }
    }

    /// Returns the content. Removes the name of the user, group or project from the operands.
    fn view(&mut self, operands: &mut Vec<OsString>) -> Result<View, Wrong> {
        let Some(kind) = self.kind else {
            return match self.default || self.all || self.times {
                true => Err("one of -u, -g and -p must be specified".to_owned().into()),
                false => Ok(View::Ids(own_ids())),
            };
        };
        if self.times {
            return Ok(View::Grace(kind));
        }
        if self.default {
            return Ok(View::Default(kind));
        }
        if self.all {
            let (first, last) = (self.first.unwrap_or(0), self.last.unwrap_or(u32::MAX));
            return Ok(View::All(kind, IdRange { first, last, show_root: self.show_root, numeric: self.numeric }));
        }
        let name = match self.name.take() {
            Some(name) => name,
            None if operands.is_empty() => return Err("missing user, group or project".to_owned().into()),
            None => operands.remove(0),
        };
        let id = ids::parse(kind, text(&name)).ok_or_else(|| format!("invalid id '{}'", name.display()))?;
        Ok(View::Ids(vec![id]))
    }
}

/// Returns the caller's user and group.
fn own_ids() -> Vec<Id> {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    vec![Id { kind: Kind::User, id: uid }, Id { kind: Kind::Group, id: gid }]
}

fn column(id: &str) -> Option<Column> {
    Some(match id {
        "filesystem" => Column::Place,
        "blocks" => Column::Space,
        "b" => Column::SpaceSoft,
        "B" => Column::SpaceHard,
        "bgrace" => Column::SpaceGrace,
        "inodes" => Column::Files,
        "isoftlimit" => Column::FilesSoft,
        "ihardlimit" => Column::FilesHard,
        "igrace" => Column::FilesGrace,
        _ => return None,
    })
}

fn number(text: &str) -> Result<u32, String> {
    let number = parse_unsigned(text).and_then(|number| u32::try_from(number).ok());
    number.ok_or_else(|| format!("invalid id '{text}'"))
}

/// Parses the index of a target, or its uuid such as `sheen-OST0001_UUID`.
fn target(kind: TargetKind, text: &str) -> Result<Selected, String> {
    let word = if kind == TargetKind::Mdt { "MDT" } else { "OST" };
    let of_name = || {
        let (_, index) = text.strip_suffix("_UUID").unwrap_or(text).rsplit_once(&format!("-{word}"))?;
        u32::from_str_radix(index, 16).ok()
    };
    let index = parse_unsigned(text).and_then(|index| u32::try_from(index).ok()).or_else(of_name);
    index.map(|index| Selected { kind, index }).ok_or_else(|| format!("invalid {word} index '{text}'"))
}
