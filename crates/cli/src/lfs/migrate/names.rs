//! The names of the files to migrate: operands, or a list.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufRead, Read},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use sheen_wire::Errno;

use super::super::{
    setstripe::Wrong,
    tool::{Tool, keep_first},
};

/// Longest name in a list of files in bytes, with the byte that ends it: PATH_MAX.
const NAME_BYTES_MAX: u64 = 4096;

/// Source of the file names.
pub enum Names {
    Operands(Vec<PathBuf>),
    /// A list in which this byte ends each name.
    List(Box<dyn BufRead>, u8),
}

impl Names {
    /// Returns the number of names, if it is known beforehand.
    pub fn count(&self) -> Option<usize> {
        match self {
            Names::Operands(paths) => Some(paths.len()),
            Names::List(..) => None,
        }
    }

    /// Calls `f` with each name.
    pub fn each(self, mut f: impl FnMut(&Path)) -> io::Result<()> {
        let (mut list, end) = match self {
            Names::Operands(paths) => {
                paths.iter().for_each(|path| f(path));
                return Ok(());
            }
            Names::List(list, end) => (list, end),
        };
        loop {
            let mut name = Vec::new();
            (&mut list).take(NAME_BYTES_MAX).read_until(end, &mut name)?;
            match name.last() {
                None => return Ok(()),
                Some(last) if *last == end => drop(name.pop()),
                Some(_) if name.len() as u64 == NAME_BYTES_MAX => return Err(io::ErrorKind::InvalidFilename.into()),
                Some(_) => {}
            }
            if !name.is_empty() {
                f(Path::new(&OsString::from_vec(name)));
            }
        }
    }
}

/// Returns the source of the names. `null`: a NUL ends each name of a list.
pub fn names(paths: Vec<PathBuf>, null: bool, list: Option<&OsStr>) -> Result<Names, Wrong> {
    let end = if null { 0 } else { b'\n' };
    match (list, &paths[..]) {
        (Some(_), [_, ..]) => {
            Err(Wrong::Call("lfs migrate migrate: give either --files-from or files as operands".to_owned()))
        }
        (Some(list), []) if list == "-" => Ok(Names::List(Box::new(io::BufReader::new(io::stdin())), end)),
        (Some(list), []) => {
            let open = File::open(list).map_err(|e| {
                let e = Errno::from(e);
                Wrong::Value(format!("lfs migrate: cannot open '{}': {e}", list.display()), e)
            })?;
            Ok(Names::List(Box::new(io::BufReader::new(open)), end))
        }
        (None, []) if null => Ok(Names::List(Box::new(io::BufReader::new(io::stdin())), 0)),
        (None, []) => Err(Wrong::Call("lfs migrate migrate: FILE must be specified".to_owned())),
        (None, _) => Ok(Names::Operands(paths)),
    }
}

/// Reports if not all names could be read. Returns the exit code.
pub fn report_unread_names(tool: &mut Tool, read: io::Result<()>, mut code: i32) -> i32 {
    if let Err(e) = read {
        let e = Errno::from(e);
        tool.complain(format_args!("lfs migrate: cannot read the list of files: {e}"));
        keep_first(&mut code, e);
    }
    code
}
