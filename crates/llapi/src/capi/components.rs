//! `llapi_layout_comp_*` and its like: components of a layout being read or built.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr,
};

use sheen_wire::{Errno, Result, mgs::TargetKind};

use crate::{
    border::{exclusive, optional, or_minus_errno, or_minus_one, shared},
    capi::messages,
    layout::{Layout, Move},
    mounts,
    sanity::{self, Wrong},
    sys::At,
};

/// `LLAPI_LAYOUT_ITER_CONT`.
const GO_ON: c_int = 0;

/// What `llapi_layout_comp_iterate` calls for each component, which is the current one then.
pub type Visit = unsafe extern "C" fn(layout: *mut Layout, data: *mut c_void) -> c_int;

/// Appends a component that begins where the last one ends, with its stripe size, count and pool,
/// and makes it the current one. EINVAL: the last one has no end. E2BIG: too many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_add(layout: *mut Layout) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.add().map(|()| 0))
}

/// Appends the first component of another mirror and makes it the current one. E2BIG: too many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_add_first_comp(layout: *mut Layout) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.add_first_of_mirror().map(|()| 0))
}

/// Takes the current component out. EINVAL: it is not the last, or the only one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_del(layout: *mut Layout) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.remove().map(|()| 0))
}

/// Goes to another component: 1 to the first, 2 the last, 3 the next, 4 the one before. Returns 1,
/// with ENOENT, if there is none; -1 with EINVAL for anything else.
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

/// Goes to the component of that id. ENOENT: there is none. EINVAL: the layout is plain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_use_id(layout: *mut Layout, id: u32) -> c_int {
    or_minus_one(|| unsafe { exclusive(layout)? }.go_to(id).map(|()| 0))
}

/// Goes to the last component that has its objects; where none has them, or the layout is plain, it
/// stays where it is. 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_get_last_init_comp(layout: *mut Layout) -> c_int {
    or_minus_one(|| {
        unsafe { exclusive(layout)? }.go_to_last_init();
        Ok(0)
    })
}

/// Calls for each component until told to stop: the first answer that is not
/// `LLAPI_LAYOUT_ITER_CONT`, or that. EINVAL, returned as -1: null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_comp_iterate(
    layout: *mut Layout,
    visit: Option<Visit>,
    data: *mut c_void,
) -> c_int {
    or_minus_one(|| {
        let visit = visit.ok_or(Errno::EINVAL)?;
        // No reference is held while the program has its turn: it may go elsewhere in the layout,
        // or add to it.
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

/// Appends copies of another's components; where the first is null it becomes a copy. EINVAL: one
/// is plain.
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

/// 0, or a number for what does not fit together: `llapi_layout_sanity_perror`. -1 with EINVAL:
/// null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_sanity(layout: *const Layout, incomplete: bool, mirrors: bool) -> c_int {
    or_minus_one(|| {
        Ok(sanity::check(unsafe { shared(layout)? }, incomplete, mirrors).map_or_else(|e| e as c_int, |()| 0))
    })
}

/// The same, and whether the file system of that name (or of an absolute path; null: it is not
/// asked) has the pools and OSTs that are named.
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
                Some(name) => check_names(layout, &mounts::root_of(name)?)?,
                None => Ok(()),
            },
            wrong => wrong,
        };
        Ok(found.map_or_else(|e| e as c_int, |()| 0))
    })
}

fn check_names(layout: &Layout, root: &CStr) -> Result<Result<(), Wrong>> {
    let osts = mounts::targets(At::Path(root), TargetKind::Ost)?;
    let osts: Vec<u32> = osts.iter().map(|ost| ost.index).collect();
    Ok(sanity::check_names(layout, &osts, &mounts::pools(At::Path(root))?))
}

/// Gives the current component of a layout the stripe size and count of the current one of another,
/// as a new mirror that is asked for without saying them has those of the file. -EINVAL: null, or
/// one of them is extension space.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_mirror_inherit(file: *const Layout, mirror: *mut Layout) -> c_int {
    or_minus_errno(|| {
        if ptr::eq(file, mirror) {
            return unsafe { shared(file) }.map(|_| 0);
        }
        let (from, to) = unsafe { (shared(file)?.current(), exclusive(mirror)?.current_mut()) };
        // What an extension has for a stripe size is none.
        if from.is_extension() || to.is_extension() {
            return Err(Errno::EINVAL);
        }
        (to.stripe_size, to.stripe_count) = (from.stripe_size, from.stripe_count);
        Ok(0)
    })
}

/// Says what such a number means, on standard error.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_layout_sanity_perror(number: c_int) {
    let _ = or_minus_one(|| {
        let text = Wrong::text_of(number).map_or_else(|| format!("invalid layout: error {number}"), str::to_owned);
        messages::say(messages::ERROR, None, &text);
        Ok(0)
    });
}

/// What `LCM_FL_…` is called: `0` for a file without mirrors.
const STATES: [(u16, &CStr); 4] = [(0, c"0"), (1, c"ro"), (2, c"wp"), (3, c"sp")];

/// The name of a state of mirrors; other bits are left out.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_layout_flags_string(flags: u32) -> *const c_char {
    STATES[(flags & 3) as usize].1.as_ptr()
}

/// The state of mirrors that is called so; 0 for any other name, or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn llapi_layout_string_flags(name: *const c_char) -> u16 {
    let found = || -> Result<u16> {
        let name = unsafe { crate::border::text(name)? };
        Ok(STATES.iter().find(|(_, state)| *state == name).map_or(0, |(flags, _)| *flags))
    };
    crate::border::or_else(0, found)
}
