//! `lfs swap_layouts`: exchanges the layouts, and so the data, of two files.

use std::{ffi::OsString, path::Path};

use rustix::{
    fs::{Mode, OFlags, open},
    ioctl::{Setter, ioctl as call},
};
use sheen_wire::{
    Errno,
    ioctl::{self, FileId},
};

use super::{Tool, migrate::copy::fid_of, mirror};

/// `swap_layouts`
pub const USAGE: &str = "\
Swap layouts between 2 files.\n\
usage: swap_layouts <path1> <path2>\n\
";

/// Failures of an exchange.
#[derive(Debug, PartialEq, Eq)]
pub enum NotSwapped {
    /// The first (0) or second (1) file cannot be opened.
    Open(usize, Errno),
    /// The layouts cannot be exchanged.
    Swap(Errno),
}

/// Runs the command.
pub fn run(tool: &mut Tool, args: &[OsString]) -> i32 {
    let [one, other] = args else { return tool.help(USAGE) };
    let paths = [Path::new(one), Path::new(other)];
    match tool.fs.swap_layouts(paths) {
        Ok(()) => 0,
        Err(NotSwapped::Open(n, e)) => {
            let path = paths.get(n).unwrap_or(&paths[0]).display();
            tool.complain(format_args!("lfs swap_layouts: error: cannot open '{path}' for write: {e} ({})", e.0));
            e.0
        }
        Err(NotSwapped::Swap(e)) => {
            let is_mirrored = |path: &&Path| mirror::layout_of(tool, path).is_ok_and(|layout| layout.is_mirrored());
            let why = match paths.iter().find(|path| e == Errno::EBUSY && is_mirrored(path)) {
                Some(path) => format!(": '{}' is mirrored, and one file is open elsewhere", path.display()),
                None => String::new(),
            };
            let [one, other] = paths.map(Path::display);
            let what = "error: cannot swap layout between";
            tool.complain(format_args!("lfs swap_layouts: {what} '{one}' and '{other}': {e} ({}){why}", e.0));
            e.0
        }
    }
}

/// Exchanges the layouts of two files through system calls on their mount.
///
/// # Errors
/// ENOTTY: a file is not on a Sheen mount. EXDEV: the files are on different mounts. Otherwise the
/// errno of the failed system call.
pub fn swap(paths: [&Path; 2]) -> Result<(), NotSwapped> {
    let opened = |n: usize| {
        let flags = OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let e = |e: rustix::io::Errno| NotSwapped::Open(n, Errno(e.raw_os_error()));
        let file = open(paths[n], flags, Mode::empty()).map_err(e)?;
        let device = rustix::fs::fstat(&file).map_err(e)?.st_dev;
        Ok((file, device))
    };
    let ((one, first), (other, second)) = (opened(0)?, opened(1)?);
    fid_of(&one).map_err(NotSwapped::Swap)?;
    let fid = fid_of(&other).map_err(NotSwapped::Swap)?;
    if first != second {
        return Err(NotSwapped::Swap(Errno::EXDEV));
    }
    // SAFETY: the ioctl number encodes that the argument is read, and its size, which is that of
    // `FileId`.
    let swap = unsafe { Setter::<{ ioctl::SWAP_LAYOUTS }, FileId>::new(FileId::from(fid)) };
    // SAFETY: as above.
    unsafe { call(&one, swap) }.map_err(|e| NotSwapped::Swap(Errno(e.raw_os_error())))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fake, check_case};

    #[test]
    fn swap_layouts_exchanges_layouts_and_refuses_bad_paths() {
        let mut fake = Fake::new("/mnt/c1");
        check_case(&mut fake, "$ lfs setstripe -c 1 sw1\n[exit 0]\n");
        check_case(&mut fake, "$ lfs setstripe -c 2 sw2\n[exit 0]\n");
        check_case(&mut fake, "$ lfs swap_layouts sw1 sw2\n[exit 0]\n");
        check_case(&mut fake, "$ lfs getstripe -c sw1 sw2\n[exit 0]\n--- stdout\n2\n\n1\n\n");
        check_case(
            &mut fake,
            "$ lfs swap_layouts sw1 nosuch\n[exit 2]\n--- stderr
lfs swap_layouts: error: cannot open 'nosuch' for write: No such file or directory (2)
",
        );
        check_case(
            &mut fake,
            "$ lfs swap_layouts . sw1\n[exit 21]\n--- stderr
lfs swap_layouts: error: cannot open '.' for write: Is a directory (21)
",
        );
    }
}
