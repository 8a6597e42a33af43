//! Error numbers: Linux's, wherever the process runs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A Linux errno, which crosses the wire and which a program on the mount sees.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Errno(pub i32);

/// A result whose failure is an [`Errno`].
pub type Result<T, E = Errno> = std::result::Result<T, E>;

macro_rules! errnos {
    ($($name:ident = $value:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($value);)*

            /// Returns the symbol, such as `ENOENT`.
            pub fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($name),)* _ => "E?" }
            }

            /// Returns the text of `strerror`, such as `No such file or directory`.
            pub fn text(self) -> &'static str {
                match self.0 { $($value => $text,)* _ => "Unknown error" }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Operation not permitted";
    ENOENT = 2, "No such file or directory";
    ESRCH = 3, "No such process";
    EINTR = 4, "Interrupted system call";
    EIO = 5, "Input/output error";
    ENXIO = 6, "No such device or address";
    E2BIG = 7, "Argument list too long";
    EBADF = 9, "Bad file descriptor";
    EAGAIN = 11, "Resource temporarily unavailable";
    ENOMEM = 12, "Cannot allocate memory";
    EACCES = 13, "Permission denied";
    EFAULT = 14, "Bad address";
    EBUSY = 16, "Device or resource busy";
    EEXIST = 17, "File exists";
    EXDEV = 18, "Invalid cross-device link";
    ENODEV = 19, "No such device";
    ENOTDIR = 20, "Not a directory";
    EISDIR = 21, "Is a directory";
    EINVAL = 22, "Invalid argument";
    ENFILE = 23, "Too many open files in system";
    EMFILE = 24, "Too many open files";
    ENOTTY = 25, "Inappropriate ioctl for device";
    ETXTBSY = 26, "Text file busy";
    EFBIG = 27, "File too large";
    ENOSPC = 28, "No space left on device";
    ESPIPE = 29, "Illegal seek";
    EROFS = 30, "Read-only file system";
    EMLINK = 31, "Too many links";
    ERANGE = 34, "Numerical result out of range";
    EDEADLK = 35, "Resource deadlock avoided";
    ENAMETOOLONG = 36, "File name too long";
    ENOLCK = 37, "No locks available";
    ENOSYS = 38, "Function not implemented";
    ENOTEMPTY = 39, "Directory not empty";
    ELOOP = 40, "Too many levels of symbolic links";
    ENODATA = 61, "No data available";
    EREMOTE = 66, "Object is remote";
    EPROTO = 71, "Protocol error";
    EBADMSG = 74, "Bad message";
    EOVERFLOW = 75, "Value too large for defined data type";
    EMSGSIZE = 90, "Message too long";
    EOPNOTSUPP = 95, "Operation not supported";
    ENOTCONN = 107, "Transport endpoint is not connected";
    ESHUTDOWN = 108, "Cannot send after transport endpoint shutdown";
    ETIMEDOUT = 110, "Connection timed out";
    ECONNREFUSED = 111, "Connection refused";
    EHOSTUNREACH = 113, "No route to host";
    EALREADY = 114, "Operation already in progress";
    EINPROGRESS = 115, "Operation now in progress";
    ESTALE = 116, "Stale file handle";
    EUCLEAN = 117, "Structure needs cleaning";
    EDQUOT = 122, "Disk quota exceeded";
    ECANCELED = 125, "Operation canceled";
}

impl Errno {
    /// Not an errno of Linux: the MDT's decision depends on the caller's supplementary groups,
    /// which the request did not carry (`Cred::groups` is `None`). The client looks them up and
    /// repeats the request. Clients decode this value where the reply arrives.
    pub const NEED_GROUPS: Errno = Errno(0x1_0001);
    /// Not an errno of Linux: an OST has sealed the object ([`crate::ost::Request::Seal`]). The
    /// file's bytes are elsewhere, or are about to be. The client asks the MDT where, and repeats
    /// the operation there. Clients decode this value where the reply arrives.
    pub const MOVED: Errno = Errno(0x1_0003);
    /// As [`Errno::MOVED`], but a part of the operation may have been done before.
    pub const MOVED_PARTLY: Errno = Errno(0x1_0004);
    /// Not an errno of Linux: the MDT cannot place objects at the moment, because all OSTs that
    /// could take them are disconnected. Nothing was done. The client repeats the request later,
    /// and so occupies none of its slots meanwhile.
    pub const OSTS_DISCONNECTED: Errno = Errno(0x1_0005);
    /// Not an errno of Linux: the client acts as one user, and has not presented a capability for
    /// an object of the request ([`crate::ost::Capability`]). Nothing was done. The client presents
    /// one and repeats the request.
    pub const NO_CAPABILITY: Errno = Errno(0x1_0006);
    /// Not an errno of Linux: the client acts as one user, and the MDT does not know the sequence
    /// of a new file's FID. Nothing was done. The client shows its sequences
    /// ([`crate::mds::Request::OwnSequences`]) and repeats the request.
    pub const UNKNOWN_SEQUENCE: Errno = Errno(0x1_0007);
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

impl std::error::Error for Errno {}

impl From<std::io::Error> for Errno {
    /// Returns the operating system's number, or EIO if the error has none.
    fn from(e: std::io::Error) -> Errno {
        Errno(e.raw_os_error().unwrap_or(Errno::EIO.0))
    }
}

impl From<Errno> for std::io::Error {
    fn from(e: Errno) -> std::io::Error {
        std::io::Error::from_raw_os_error(e.0)
    }
}
