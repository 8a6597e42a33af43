//! `llapi_layout_comp_*` and similar functions: components of a layout that is read or built.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::Path,
    ptr,
};

use sheen_admin::attributes::At;
use sheen_wire::{Errno, Result, mgs::TargetKind};

use crate::{
    capi::messages,
    ffi::{exclusive, optional, or_minus_errno, or_minus_one, path, shared},
    layout::{Layout, Move},
    mounts,
    sanity::{self, LayoutDefect},
};

/// `LLAPI_LAYOUT_ITER_CONT`.
const GO_ON: c_int = 0;

/// The function that `llapi_layout_comp_iterate` calls for each component, which is then the
/// current one.
pub type Visit = unsafe extern "C" fn(layout: *mut Layout, data: *mut c_void) -> c_int;

/// Appends a component that starts where the last one ends, with its stripe size, count and pool,
/// and makes it current. EINVAL: the last one has no end. E2BIG: too many components.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_add(layout: *mut Layout) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.add().map(|()| 0))
}

/// Appends the first component of another mirror and makes it current. E2BIG: too many components.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_add_first_comp(layout: *mut Layout) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.add_first_of_mirror().map(|()| 0))
}

/// Removes the current component. EINVAL: it is not the last one, or it is the only one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_del(layout: *mut Layout) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.remove().map(|()| 0))
}

/// Goes to another component: 1 the first, 2 the last, 3 the next, 4 the previous one. Returns 1
/// with ENOENT if there is none, and -1 with EINVAL for any other number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_use(layout: *mut Layout, position: u32) -> c_int {
    let mut end = false;
    let code = or_minus_one(|| {
        let to = match position {
            1 => Move::First,
            2 => Move::Last,
            3 => Move::Next,
            4 => Move::Previous,
            _ => return Err(Errno::EINVAL),
        };
        end = !unsafe { exclusive(layout)? }.go(to);
        if end { Err(Errno::ENOENT) } else { Ok(0) }
    });
    if end { 1 } else { code }
}

/// Goes to the component with this id. ENOENT: there is none. EINVAL: the layout is plain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_use_id(layout: *mut Layout, id: u32) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.go_to(id).map(|()| 0))
}

/// Goes to the last component that has its objects. Stays at the current one if none has them, or
/// if the layout is plain. Returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_get_last_init_comp(layout: *mut Layout) -> c_int {
    or_minus_one(|| {
        unsafe { exclusive(layout)? }.go_to_last_init();
        Ok(0)
    })
}

/// Calls `visit` for each component, until it returns another value than `LLAPI_LAYOUT_ITER_CONT`.
/// Returns that value, or `LLAPI_LAYOUT_ITER_CONT`. EINVAL, returned as -1: null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_iterate(
    layout: *mut Layout,
    visit: Option<Visit>,
    data: *mut c_void,
) -> c_int {
    or_minus_one(|| {
        let visit = visit.ok_or(Errno::EINVAL)?;
        // No reference is held during the call: the program may go elsewhere in the layout, or add
        // to it.
        let mut more = unsafe { exclusive(layout)? }.go(Move::First);
        while more {
            match unsafe { visit(layout, data) } {
                GO_ON => more = unsafe { exclusive(layout)? }.go(Move::Next),
                answer => return Ok(answer),
            }
        }
        Ok(GO_ON)
    })
}

/// Appends copies of another layout's components. If `*into` is null, it becomes a copy. EINVAL:
/// one of the two layouts is plain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_merge(into: *mut *mut Layout, from: *const Layout) -> c_int {
    or_minus_one(|| {
        let (into, from) = unsafe { (exclusive(into)?, shared(from)?) };
        if into.is_null() {
            *into = Box::into_raw(Box::new(from.clone()));
            return Ok(0);
        }
        unsafe { exclusive(*into)? }.merge(from).map(|()| 0)
    })
}

/// Returns 0, or the number of a defect, for `llapi_layout_sanity_perror`. -1 with EINVAL: null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_sanity(layout: *const Layout, incomplete: bool, mirrors: bool) -> c_int {
    or_minus_one(|| {
        Ok(sanity::check(unsafe { shared(layout)? }, incomplete, mirrors).map_or_else(|e| e as c_int, |()| 0))
    })
}

/// As [`llapi_layout_sanity`]. Also checks that a file system has the pools and OSTs that are
/// named. `fsname`: its name or an absolute path on it; null: no such check.
///
/// -1 with ENODEV: it is not mounted here; ENOTTY, ENOENT: the path; EINVAL: no layout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_v2_sanity(
    layout: *const Layout,
    incomplete: bool,
    mirrors: bool,
    fsname: *const c_char,
) -> c_int {
    or_minus_one(|| {
        let layout = unsafe { shared(layout)? };
        let found = match sanity::check(layout, incomplete, mirrors) {
            Ok(()) => match unsafe { optional(fsname) } {
                Some(name) => check_names(layout, &mounts::root_of(path(name))?)?,
                None => Ok(()),
            },
            wrong => wrong,
        };
        Ok(found.map_or_else(|e| e as c_int, |()| 0))
    })
}

fn check_names(layout: &Layout, root: &Path) -> Result<Result<(), LayoutDefect>> {
    let osts = mounts::targets(At::Path(root), TargetKind::Ost)?;
    let osts: Vec<u32> = osts.iter().map(|ost| ost.index).collect();
    Ok(sanity::check_names(layout, &osts, &mounts::pools(At::Path(root))?))
}

/// Copies stripe size and count of the current component of `file` to that of `mirror`. A new
/// mirror without these settings thus gets those of the file. -EINVAL: null, or one of the
/// components is extension space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_mirror_inherit(file: *const Layout, mirror: *mut Layout) -> c_int {
    or_minus_errno(|| {
        if ptr::eq(file, mirror) {
            return unsafe { shared(file) }.map(|_| 0);
        }
        let (from, to) = unsafe { (shared(file)?.current(), exclusive(mirror)?.current_mut()) };
        // The size of an extension is no stripe size.
        if from.is_extension() || to.is_extension() {
            return Err(Errno::EINVAL);
        }
        (to.stripe_size, to.stripe_count) = (from.stripe_size, from.stripe_count);
        Ok(0)
    })
}

/// Prints the meaning of such a number on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_layout_sanity_perror(number: c_int) {
    let _ = or_minus_one(|| {
        let text =
            LayoutDefect::text_of(number).map_or_else(|| format!("invalid layout: error {number}"), str::to_owned);
        messages::say(messages::ERROR, None, &text);
        Ok(0)
    });
}

/// Names of the states `LCM_FL_…`. `0`: a file without mirrors.
const STATES: [(u16, &CStr); 4] = [(0, c"0"), (1, c"ro"), (2, c"wp"), (3, c"sp")];

/// Returns the name of a state of mirrors. Ignores other bits.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_layout_flags_string(flags: u32) -> *const c_char {
    STATES[(flags & 3) as usize].1.as_ptr()
}

/// Returns the state of mirrors with this name; 0 for any other name, or null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_string_flags(name: *const c_char) -> u16 {
    let found = || -> Result<u16> {
        let name = unsafe { crate::ffi::text(name)? };
        Ok(STATES.iter().find(|(_, state)| *state == name).map_or(0, |(flags, _)| *flags))
    };
    crate::ffi::or_else(0, found)
}
