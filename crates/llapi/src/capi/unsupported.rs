//! Functions for what Sheen does not have: archives (HSM), caches on clients (PCC), heat of files,
//! foreign layouts. They return -EOPNOTSUPP and set `errno`, so that programs which contain such
//! calls can be linked. They use no argument.

use std::ffi::{c_char, c_int, c_uint, c_ulonglong, c_void};

use sheen_admin::attributes::At;
use sheen_wire::Errno;

use crate::{
    capi::LuFid,
    ffi::{file, or_minus_errno, or_null},
    mounts,
};

/// Defines functions that return -EOPNOTSUPP.
macro_rules! unsupported {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*);)*) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub extern "C" fn $name($($arg: $type),*) -> c_int {
            or_minus_errno(|| Err(Errno::EOPNOTSUPP))
        }
    )*};
}

// Archives: files.
unsupported! {
    /// State of a file in an archive.
    fn llapi_hsm_state_get(_path: *const c_char, _state: *mut c_void);
    /// As [`llapi_hsm_state_get`], for an open file.
    fn llapi_hsm_state_get_fd(_fd: c_int, _state: *mut c_void);
    /// Sets and clears flags of that state.
    fn llapi_hsm_state_set(_path: *const c_char, _set: u64, _clear: u64, _archive: u32);
    /// As [`llapi_hsm_state_set`], for an open file.
    fn llapi_hsm_state_set_fd(_fd: c_int, _set: u64, _clear: u64, _archive: u32);
    /// Data version that the archive has.
    fn llapi_hsm_data_version_set(_fd: c_int, _version: u64);
    /// Action in progress for a file.
    fn llapi_hsm_current_action(_path: *const c_char, _action: *mut c_void);
    /// Requests actions for files.
    fn llapi_hsm_request(_path: *const c_char, _request: *const c_void);
    /// Creates a file whose data is in an archive.
    fn llapi_hsm_import(
        _path: *const c_char,
        _archive: c_int,
        _stat: *const c_void,
        _stripe_size: c_ulonglong,
        _stripe_offset: c_int,
        _stripe_count: c_int,
        _pattern: c_uint,
        _pool: *mut c_char,
        _fid: *mut LuFid
    );
}

// Archives: copytools.
unsupported! {
    /// Registers a copytool.
    fn llapi_hsm_copytool_register(
        _tool: *mut *mut c_void,
        _mount: *const c_char,
        _archives: c_int,
        _ids: *mut c_int,
        _flags: c_int
    );
    /// Unregisters a copytool.
    fn llapi_hsm_copytool_unregister(_tool: *mut *mut c_void);
    /// File on which a copytool waits.
    fn llapi_hsm_copytool_get_fd(_tool: *mut c_void);
    /// Receives actions.
    fn llapi_hsm_copytool_recv(_tool: *mut c_void, _list: *mut *mut c_void, _size: *mut c_int);
    /// Begins an action.
    fn llapi_hsm_action_begin(
        _action: *mut *mut c_void,
        _tool: *const c_void,
        _item: *const c_void,
        _mdt: c_int,
        _flags: c_int,
        _failed: bool
    );
    /// Ends an action.
    fn llapi_hsm_action_end(_action: *mut *mut c_void, _extent: *const c_void, _flags: c_int, _errval: c_int);
    /// Reports the progress of an action.
    fn llapi_hsm_action_progress(_action: *mut c_void, _extent: *const c_void, _total: u64, _flags: c_int);
    /// FID of the file with an action's data.
    fn llapi_hsm_action_get_dfid(_action: *const c_void, _fid: *mut LuFid);
    /// File with an action's data.
    fn llapi_hsm_action_get_fd(_action: *const c_void);
    /// Writes events of copytools to a pipe.
    fn llapi_hsm_register_event_fifo(_path: *const c_char);
    /// Ends [`llapi_hsm_register_event_fifo`].
    fn llapi_hsm_unregister_event_fifo(_path: *const c_char);
    /// Name of the client that runs a copytool.
    fn llapi_get_agent_uuid(_path: *mut c_char, _name: *mut c_char, _room: usize);
}

// Caches on clients.
unsupported! {
    /// Attaches a file to a cache.
    fn llapi_pcc_attach(_path: *const c_char, _id: u32, _type: c_uint);
    /// As [`llapi_pcc_attach`], by FID.
    fn llapi_pcc_attach_fid(_mount: *const c_char, _fid: *const LuFid, _id: u32, _type: c_uint);
    /// As [`llapi_pcc_attach`], by a FID as text.
    fn llapi_pcc_attach_fid_str(_mount: *const c_char, _fid: *const c_char, _id: u32, _type: c_uint);
    /// Detaches an open file.
    fn llapi_pcc_detach_fd(_fd: c_int, _flags: u32);
    /// As [`llapi_pcc_detach_fd`], by FID.
    fn llapi_pcc_detach_fid(_mount: *const c_char, _fid: *const LuFid, _flags: u32);
    /// As [`llapi_pcc_detach_fd`], by a FID as text.
    fn llapi_pcc_detach_fid_str(_mount: *const c_char, _fid: *const c_char, _flags: u32);
    /// As [`llapi_pcc_detach_fd`], by path.
    fn llapi_pcc_detach_file(_path: *const c_char, _flags: u32);
    /// As [`llapi_pcc_detach_fd`], by FID and an open file of the mount.
    fn llapi_pcc_detach_at(_fd: c_int, _fid: *const LuFid, _flags: c_uint);
    /// Keeps a file in a cache.
    fn llapi_pcc_pin_file(_path: *const c_char, _id: u32);
    /// Ends [`llapi_pcc_pin_file`].
    fn llapi_pcc_unpin_file(_path: *const c_char, _id: u32);
    /// Id of the cache of a file.
    fn llapi_pcc_backend_id_get(_path: *const c_char, _type: c_uint, _id: *mut u32);
    /// State of a file in a cache.
    fn llapi_pcc_state_get(_path: *const c_char, _state: *mut c_void);
    /// As [`llapi_pcc_state_get`], for an open file.
    fn llapi_pcc_state_get_fd(_fd: c_int, _state: *mut c_void);
    /// Configures the caches of a mount.
    fn llapi_pccdev_set(_mount: *const c_char, _command: *const c_char);
    /// Prints the caches of a mount.
    fn llapi_pccdev_get(_mount: *const c_char);
    /// Removes a cache of a mount.
    fn llapi_pcc_del(_mount: *const c_char, _cache: *const c_char, _flags: c_uint);
    /// Removes all caches of a mount.
    fn llapi_pcc_clear(_mount: *const c_char, _flags: c_uint);
}

// Others.
unsupported! {
    /// Heat of an open file.
    fn llapi_heat_get(_fd: c_int, _heat: *mut c_void);
    /// Sets flags of the heat of an open file.
    fn llapi_heat_set(_fd: c_int, _flags: u64);
    /// Creates a file with a foreign layout.
    fn llapi_file_create_foreign(_path: *const c_char, _mode: u32, _type: u32, _flags: u32, _value: *mut c_char);
    /// Creates a directory with a foreign layout.
    fn llapi_dir_create_foreign(_path: *const c_char, _mode: u32, _type: u32, _flags: u32, _value: *const c_char);
    /// Removes a file or a directory with a foreign layout.
    fn llapi_unlink_foreign(_path: *mut c_char);
    /// An older form of `llapi_lease_acquire`.
    fn llapi_lease_get(_fd: c_int, _mode: c_int);
    /// Releases a lease together with a change of the file.
    fn llapi_lease_release_intent(_fd: c_int, _intent: *mut c_void);
}

/// Does nothing. In Lustre it writes an event to the pipe of [`llapi_hsm_register_event_fifo`], and
/// here there is no such pipe. `_values`: a `va_list`.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_hsm_log_error(_level: c_int, _error: c_int, _format: *const c_char, _values: *mut c_void) {}

/// Size in bytes of `struct hsm_user_request` without items, and of an item.
const REQUEST_BYTES: usize = 24;
const ITEM_BYTES: usize = 32;

/// Allocates a zeroed request for [`llapi_hsm_request`], to be freed with `free`. Null with
/// `errno`: EINVAL (a negative number), ENOMEM.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_hsm_user_request_alloc(items: c_int, data: c_int) -> *mut c_void {
    or_null(|| {
        let sizes = usize::try_from(items).ok().zip(usize::try_from(data).ok());
        let (items, data) = sizes.ok_or(Errno::EINVAL)?;
        let bytes = items.checked_mul(ITEM_BYTES).and_then(|bytes| bytes.checked_add(data)?.checked_add(REQUEST_BYTES));
        // SAFETY: calloc accepts any size.
        let request = unsafe { libc::calloc(1, bytes.ok_or(Errno::ENOMEM)?) };
        if request.is_null() { Err(Errno::ENOMEM) } else { Ok(request) }
    })
}

/// Returns 0, because no file is encrypted. -EBADF; -ENOTTY: not on a mount.
#[unsafe(no_mangle)]
pub extern "C" fn llapi_file_is_encrypted(fd: c_int) -> c_int {
    // SAFETY: C keeps the file open.
    or_minus_errno(|| mounts::info(At::File(unsafe { file(fd)? })).map(|_| 0))
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn calls_for_missing_features_return_eopnotsupp() {
        assert_eq!(llapi_hsm_state_get(ptr::null(), ptr::null_mut()), -Errno::EOPNOTSUPP.0);
        assert_eq!(llapi_pcc_detach_fd(-1, 0), -Errno::EOPNOTSUPP.0);
    }

    #[test]
    fn hsm_requests_are_allocated_with_their_items() {
        assert!(llapi_hsm_user_request_alloc(-1, 0).is_null());
        let request = llapi_hsm_user_request_alloc(2, 10).cast::<u8>();
        assert!(!request.is_null());
        // SAFETY: the request has 24 + 2 * 32 + 10 bytes, which calloc has initialised.
        let last = unsafe { *request.add(97) };
        assert_eq!(last, 0);
        // SAFETY: calloc has returned it.
        unsafe { libc::free(request.cast()) };
    }
}
