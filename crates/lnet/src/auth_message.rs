//! Messages of a handshake as frames.

use std::io;

use sheen_wire::{
    Errno,
    auth::Auth,
    frame::{self, FrameError, Kind},
};

use crate::{Frame, Receiver, RecvError, Sender, auth_error::AuthError};

/// Returns an error after which connecting again does not help.
pub(crate) fn denied(error: AuthError) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, error)
}

/// Sends a message.
pub(crate) fn post(sender: &Sender, message: &Auth) -> io::Result<()> {
    let body = frame::to_body(message).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
    sender.post(Frame { body: body.into(), ..Frame::new(Kind::Auth, 0) })
}

/// Returns the server's message, or the errno of its refusal.
pub(crate) async fn reply(receiver: &mut Receiver) -> io::Result<Result<Auth, Errno>> {
    let frame = receiver.recv().await.map_err(|e| match e {
        RecvError::Io(e) => e,
        RecvError::Eof => io::ErrorKind::ConnectionAborted.into(),
        RecvError::Frame(e @ FrameError::Version(_)) => denied(AuthError::Version(e)),
        e => io::Error::other(e),
    })?;
    match (frame.header.kind, frame.header.status) {
        (Kind::Auth, 0) => frame::from_body(&frame.body).map(Ok).map_err(|_| denied(AuthError::Unexpected)),
        (Kind::Auth, errno) => Ok(Err(Errno(errno))),
        _ => Err(denied(AuthError::Unexpected)),
    }
}
