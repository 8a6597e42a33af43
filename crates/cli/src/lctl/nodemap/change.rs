//! The commands that change nodemaps.

use std::io;

use sheen_mgs::nodemaps::{
    CLEAR, ID_MAX, IdPair, IdType, MapChange, NodemapChange, Property, check_fileset, check_name, text,
};
use sheen_wire::{
    Errno,
    nodemap::{FILESET_MAX, NAME_MAX, Range},
};

use super::super::{
    mgs,
    options::{self, ParsedArgs},
    tool::Tool,
    usage,
};
use super::{refusal, stored};
use crate::lfs::getopt::{Long, Spec, Value};

const NAME: Long = ("name", Value::Required, "n");
const ID_TYPE: Long = ("idtype", Value::Required, "i");

const ACTIVATE: Spec = Spec { short: "", long: &[] };
const WHOLE: Spec = Spec { short: "n:", long: &[NAME] };
const MODIFY: Spec =
    Spec { short: "n:p:v:", long: &[NAME, ("property", Value::Required, "p"), ("value", Value::Required, "v")] };
const RANGE: Spec = Spec { short: "n:r:", long: &[NAME, ("range", Value::Required, "r")] };
const IDMAP: Spec = Spec { short: "n:i:m:", long: &[NAME, ID_TYPE, ("idmap", Value::Required, "m")] };
const FILESET: Spec = Spec { short: "n:f:", long: &[NAME, ("fileset", Value::Required, "f")] };

/// Why the arguments of a command are no change.
enum Wrong {
    /// Something is missing or superfluous.
    Usage,
    /// A value is invalid, for this reason.
    Value(Errno, String),
}

/// Runs a command that changes nodemaps.
///
/// # Errors
/// The output cannot be written.
pub fn run(command: &str, args: &[String], tool: &mut Tool<'_>) -> io::Result<i32> {
    let Some(given) = options::parse(command, &spec(command), args, tool)? else { return Ok(usage::EXIT) };
    let change = match change(command, &given) {
        Ok(change) => change,
        Err(Wrong::Usage) => return options::wrong(command, tool),
        Err(Wrong::Value(errno, why)) => return refuse(command, errno, &why, tool),
    };
    let place = match stored::find(command, tool)? {
        Ok(place) => place,
        Err(errno) => return Ok(errno.0),
    };
    match mgs::order(&place.param, text::write(&change), tool) {
        Errno(0) => {
            stored::wait_until_received(&place, tool)?;
            Ok(0)
        }
        errno => {
            let all = stored::read(&place.param, tool).unwrap_or_default();
            refuse(command, errno, &refusal::text(&change, errno, &all), tool)
        }
    }
}

fn refuse(command: &str, errno: Errno, why: &str, tool: &mut Tool<'_>) -> io::Result<i32> {
    writeln!(tool.err, "error: {command}: {why}")?;
    Ok(errno.0)
}

fn spec(command: &str) -> Spec {
    match command {
        "nodemap_activate" => ACTIVATE,
        "nodemap_modify" => MODIFY,
        "nodemap_add_range" | "nodemap_del_range" => RANGE,
        "nodemap_add_idmap" | "nodemap_del_idmap" => IDMAP,
        "nodemap_set_fileset" => FILESET,
        _ => WHOLE,
    }
}

/// Returns the change that the arguments of a command describe.
fn change<'a>(command: &str, given: &'a ParsedArgs) -> Result<NodemapChange<'a>, Wrong> {
    if command == "nodemap_activate" {
        return match given.rest.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            ["0"] => Ok(NodemapChange::Activate(false)),
            ["1"] => Ok(NodemapChange::Activate(true)),
            _ => Err(Wrong::Usage),
        };
    }
    let name = match (given.value("n"), &given.rest[..]) {
        (Some(name), []) => name,
        (None, [name]) if matches!(command, "nodemap_add" | "nodemap_del") => name.as_str(),
        _ => return Err(Wrong::Usage),
    };
    check_name(name).map_err(|errno| {
        Wrong::Value(errno, format!("invalid name '{name}': expected 1 to {NAME_MAX} letters, digits and '_'"))
    })?;
    let value = |letter: &str| given.value(letter).ok_or(Wrong::Usage);
    let change = match command {
        "nodemap_add" => MapChange::New,
        "nodemap_del" => MapChange::Delete,
        "nodemap_modify" => set(value("p")?, value("v")?)?,
        "nodemap_add_range" => MapChange::AddRange(range(value("r")?)?),
        "nodemap_del_range" => MapChange::DeleteRange(range(value("r")?)?),
        "nodemap_add_idmap" => MapChange::AddId(ids(value("i")?, value("m")?)?),
        "nodemap_del_idmap" => MapChange::DeleteId(ids(value("i")?, value("m")?)?),
        "nodemap_set_fileset" => MapChange::SetFileset(fileset(value("f")?)?),
        _ => return Err(Wrong::Usage),
    };
    Ok(NodemapChange::Map { name, change })
}

fn invalid(why: String) -> Wrong {
    Wrong::Value(Errno::EINVAL, why)
}

fn set(name: &str, value: &str) -> Result<MapChange<'static>, Wrong> {
    let property = Property::of_name(name).ok_or_else(|| {
        let known = Property::ALL.map(Property::name).join(", ");
        invalid(format!("invalid property '{name}': expected one of {known}"))
    })?;
    let number = value.parse::<u32>().ok().filter(|number| *number <= property.max());
    let number = number
        .ok_or_else(|| invalid(format!("invalid value '{value}' of {name}: expected 0 to {}", property.max())))?;
    Ok(MapChange::Set { property, value: number })
}

fn range(text: &str) -> Result<Range, Wrong> {
    text.parse::<Range>().map_err(|e| invalid(format!("invalid range '{text}': {e}")))
}

fn ids(id_type: &str, idmap: &str) -> Result<IdPair, Wrong> {
    let id_type = IdType::of_name(id_type)
        .ok_or_else(|| invalid(format!("invalid type of ids '{id_type}': expected uid or gid")))?;
    let pair = IdPair::parse(id_type, idmap).filter(|pair| pair.client <= ID_MAX && pair.fs <= ID_MAX);
    pair.ok_or_else(|| {
        invalid(format!("invalid mapping '{idmap}': expected CLIENT_ID:FS_ID, with ids from 0 to {ID_MAX}"))
    })
}

fn fileset(path: &str) -> Result<&str, Wrong> {
    let why = format!(
        "invalid fileset '{path}': expected an absolute path of at most {FILESET_MAX} bytes without '.', '..' and empty \
         components, or '{CLEAR}'"
    );
    check_fileset(path).map(|()| path).map_err(|errno| Wrong::Value(errno, why))
}
