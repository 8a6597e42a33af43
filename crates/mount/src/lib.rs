//! A mounted file system: translates FUSE requests to client calls.
