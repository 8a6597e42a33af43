//! `lfs mirror create`: creates mirrored files, and sets mirrored defaults of directories.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use sheen_layout::{Asked, Template};
use sheen_wire::{Errno, FileKind, Result};

use super::super::{
    setstripe::{self, MirrorOptions},
    tool::{Tool, keep_first},
};

/// Exit code of failures: Lustre's -1.
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
        // The check comes before the file is created.
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

/// Creates the file and sets its layout. A file that has a layout already stays as it is.
fn create(tool: &Tool, path: &Path, template: &Template, asked: &MirrorOptions) -> Result<()> {
    let path: PathBuf = match tool.fs.kind(path, true) {
        Ok(FileKind::Dir | FileKind::Regular) => path.to_owned(),
        Ok(_) => return Err(Errno::ENOTTY),
        Err(Errno::ENOENT) => setstripe::create(tool.fs, path, asked.mode)?,
        Err(e) => return Err(e),
    };
    tool.fs.fid(&tool.fs.resolve(&path)?)?;
    // With a single mirror, this is a composite file without mirrors.
    tool.fs.set(&path, "lustre.lov", &Asked::Composite(template.clone()).encode(), false)
}
