//! `--component-add`, `--component-del`, `--component-set`: changes to the components of an
//! existing file.
//!
//! The requests are Lustre's own: the value of `lustre.lov.add`, `.del` or `.set.flags`. Added
//! components begin where the file's last one ends.

use std::path::Path;

use sheen_admin::not_sheen;
use sheen_layout::{Asked, Layout, Mark, Template};
use sheen_wire::{Errno, Result};

use super::{
    super::{getstripe::flag, tool::Tool},
    sanity,
};

/// Exit code of a failed component operation: Lustre's -1.
const FAILED: Errno = Errno(1);

/// A change to a file's components.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Edit {
    /// Deletes the component of this id (0: none), or the components with, and without, these
    /// flags.
    Del {
        /// Component id.
        id: u32,
        /// Flags that are set.
        with: u32,
        /// Flags that are clear.
        without: u32,
    },
    /// Changes flags of a component.
    Set {
        /// Component id.
        id: u32,
        /// Flags to set.
        set: u32,
        /// Flags to clear.
        clear: u32,
    },
}

impl Edit {
    /// Applies the change. Reports failures.
    pub fn apply(self, tool: &mut Tool, path: &Path) -> Result<()> {
        match self {
            Edit::Del { id, with, without } => del(tool, path, id, with, without),
            Edit::Set { id, set: with, clear } => set(tool, path, id, with, clear),
        }
    }
}

/// Moves the components of `template` to the end of a file's layout. ENODATA: the file has no
/// layout, so they will be its first components. Reports other failures.
pub fn append(tool: &mut Tool, path: &Path, template: &Template) -> Result<Template> {
    let value = match tool.fs.resolve(path).and_then(|p| tool.fs.get(&p, "lustre.lov")) {
        Ok(value) => value,
        Err(Errno::ENODATA) => return Err(Errno::ENODATA),
        Err(e) => {
            let e = not_sheen(e);
            let what = format!("lfs setstripe setstripe: cannot read layout from '{}': {e}", path.display());
            return invalid(tool, what);
        }
    };
    let layout = Layout::decode(&value)?;
    if layout.composite().is_none() {
        return invalid(tool, format!("lfs setstripe setstripe: '{}' not a composite file", path.display()));
    }
    let end = layout.components().last().map_or(0, |c| c.end);
    let mut added = template.clone();
    if let [first, rest @ ..] = &mut added.components[..] {
        match rest.first_mut().filter(|next| next.is_extension()) {
            // The first component begins empty, unlike at the beginning of a file.
            Some(extension) => (first.end, extension.start) = (end, end),
            None if first.end < end => {
                let what = format!(
                    "lfs setstripe setstripe: first extent [0, {}) not adjacent with extent end {end}",
                    first.end
                );
                return invalid(tool, what);
            }
            None => {}
        }
        first.start = end;
    }
    if let Err(what) = sanity::check_added(&added, end) {
        tool.complain(format_args!("lfs setstripe: Invalid layout: {what}"));
        return Err(failed_to_add(tool, path, Errno::EINVAL));
    }
    Ok(added)
}

fn invalid(tool: &mut Tool, what: String) -> Result<Template> {
    tool.complain(format_args!("{what}\nerror: lfs setstripe: invalid layout"));
    Err(Errno::EINVAL)
}

/// Adds the components.
pub fn add(tool: &mut Tool, path: &Path, added: Template) -> Result<()> {
    let value = Asked::Composite(added).encode();
    tool.fs.set(path, "lustre.lov.add", &value, false).map_err(|e| failed_to_add(tool, path, e))
}

fn failed_to_add(tool: &mut Tool, path: &Path, e: Errno) -> Errno {
    tool.complain(format_args!("Add layout component(s) to {} failed. {e}", path.display()));
    FAILED
}

fn del(tool: &mut Tool, path: &Path, id: u32, with: u32, without: u32) -> Result<()> {
    let wrong = match (id, with, without) {
        (_, 1.., 1..) => "cannot specify both positive and negative flags",
        (1.., 1.., _) | (1.., _, 1..) => "cannot specify component ID and flags at the same time",
        (0, 0, 0) => "neither flags nor component ID is specified",
        _ => "",
    };
    if !wrong.is_empty() {
        tool.complain(format_args!("lfs setstripe: {wrong}"));
        return Err(Errno::EINVAL);
    }
    let which = Mark { id, flags: with | without, negative: without != 0 };
    tool.fs.set(path, "lustre.lov.del", &Mark::encode(&[which]), false).map_err(|e| {
        let path = path.display();
        tool.complain(format_args!("lfs setstripe setstripe: cannot delete component {id:#x} from '{path}': {e}"));
        FAILED
    })
}

fn set(tool: &mut Tool, path: &Path, id: u32, set: u32, clear: u32) -> Result<()> {
    if clear & flag::STALE != 0 {
        tool.complain(format_args!(
            "lfs setstripe: cannot clear 'stale' flags from component. Please use lfs-mirror-resync(1) instead"
        ));
        return Err(Errno::EINVAL);
    }
    let changes: Vec<Mark> = [(set, false), (clear, true)]
        .into_iter()
        .filter(|(flags, _)| *flags != 0)
        .map(|(flags, negative)| Mark { id, flags, negative })
        .collect();
    if changes.is_empty() {
        return Ok(());
    }
    tool.fs.set(path, "lustre.lov.set.flags", &Mark::encode(&changes), false).map_err(|e| {
        const EUCLEAN: Errno = Errno(117);
        let path = path.display();
        if e == EUCLEAN {
            tool.complain(format_args!(
                "lfs setstripe: cannot set 'stale' flag on component '{id:#x}' of the last non-stale mirror of '{path}'"
            ));
            return EUCLEAN;
        }
        tool.complain(format_args!(
            "lfs setstripe: cannot change the flags of component '{id:#x}' of file '{path}': {set:x} / ^({clear:x})"
        ));
        FAILED
    })
}
