//! `lfs mirror create`: files, and defaults of directories, of several mirrors. Also reads the
//! options of `lfs mirror extend`.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use sheen_layout::{Asked, Template};
use sheen_wire::{Errno, FileKind, Result};

use super::super::{
    Tool, fs, keep_first,
    setstripe::{self, Mirrored},
};

/// Exit code of what failed: Lustre's -1.
const FAILED: i32 = 1;

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let asked = match setstripe::mirrored(tool, args) {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    let mut code = 0;
    for path in &asked.paths {
        if !setstripe::pools_exist(tool, path, &asked.pools) {
            tool.complain(format_args!("lfs mirror mirror: Invalid layout, unrecognized error: -1"));
            keep_first(&mut code, Errno(FAILED));
            continue;
        }
        let Some(template) = &asked.template else { continue };
        // Before there is a file.
        let sane = setstripe::check(template).map_err(|what| {
            tool.complain(format_args!("lfs mirror mirror: Invalid layout: {what}"));
            Errno::EINVAL
        });
        if let Err(e) = sane.and_then(|()| create(tool, path, template, &asked)) {
            let what = match tool.fs.kind(path, true) {
                Ok(FileKind::Dir) => "set default composite layout for",
                _ => "create composite file",
            };
            let path = path.display();
            tool.complain(format_args!("lfs mirror mirror: lfs create: cannot {what} '{path}': {e} ({})", e.0));
            keep_first(&mut code, Errno(FAILED));
        }
    }
    code
}

/// A file that has a layout already stays as it is.
fn create(tool: &Tool, path: &Path, template: &Template, asked: &Mirrored) -> Result<()> {
    let path: PathBuf = match tool.fs.kind(path, true) {
        Ok(FileKind::Dir | FileKind::Regular) => path.to_owned(),
        Ok(_) => return Err(Errno::ENOTTY),
        Err(Errno::ENOENT) => setstripe::create(tool.fs, path, asked.mode)?,
        Err(e) => return Err(e),
    };
    fs::fid_of(tool.fs, &tool.fs.resolve(&path)?)?;
    // One mirror alone is a file of components.
    tool.fs.set(&path, "lustre.lov", &Asked::Composite(template.clone()).encode(), false)
}
