//! Why a request failed: its target, its name, its xid and the cause, besides the errno.
//!
//! A failed request is logged once, by [`RequestError::into_errno`], where its error becomes that
//! of an operation. Callers that repeat the request, or can do without it, log nothing or a line of
//! their own.

use std::{
    fmt,
    mem::{Discriminant, discriminant},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use sheen_rt::Rt;
use sheen_wire::Errno;

use super::error::ConnectError;
use crate::line_limit::LineLimits;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Cause {
    /// The service executed the request and answered with this error.
    #[error("the target answered")]
    Answered(Errno),
    /// The target was never reached. ENOTCONN.
    #[error("cannot reach the target: {reason}; check that the server runs and that the address is right")]
    Unreachable {
        /// The last attempt and its outcome.
        reason: String,
    },
    /// The connection was lost and not restored in time. The request may have been executed.
    /// ETIMEDOUT.
    #[error("lost the connection and could not restore it in {seconds} s; check that the server runs")]
    Disconnected {
        /// The time allowed.
        seconds: u64,
    },
    /// The connection broke again each time that the request was sent. The request may have been
    /// executed. ETIMEDOUT.
    #[error("the connection broke {times} times while the request waited for its reply")]
    ResentTooOften {
        /// Number of times that the request was sent again.
        times: u32,
    },
    /// The connection broke during a request of the restart hook. ENOTCONN.
    #[error("the connection broke during the recovery")]
    RecoveryBroke,
    /// No reply came within the time that the caller allowed. ETIMEDOUT.
    #[error("no reply within {seconds} s")]
    NoReply {
        /// The time allowed.
        seconds: u64,
    },
    /// The import was closed. ESHUTDOWN.
    #[error("this client closed the connection")]
    Closed,
    /// The target evicted this client, and the request was valid only under its locks. EIO.
    #[error("the target evicted this client, and the request was valid only under the lost locks")]
    Evicted,
    /// The reply has no meaning for this client. EPROTO.
    #[error("cannot use the reply: {0}")]
    Undecodable(String),
    /// The data of the reply does not match its checksum. EIO.
    #[error("the data of the reply does not match its checksum")]
    Damaged,
    /// The request is larger than a message may be. EINVAL.
    #[error("the request is larger than a message may be")]
    Limits,
    /// The caller did not send the request.
    #[error("{reason}")]
    NotSent {
        /// The reason.
        reason: &'static str,
        /// The error for the program.
        errno: Errno,
    },
}

impl Cause {
    /// Returns the error for a program.
    pub fn errno(&self) -> Errno {
        match self {
            Cause::Answered(errno) | Cause::NotSent { errno, .. } => *errno,
            Cause::Unreachable { .. } | Cause::RecoveryBroke => Errno::ENOTCONN,
            Cause::Disconnected { .. } | Cause::ResentTooOften { .. } | Cause::NoReply { .. } => Errno::ETIMEDOUT,
            Cause::Closed => Errno::ESHUTDOWN,
            Cause::Evicted | Cause::Damaged => Errno::EIO,
            Cause::Undecodable(_) => Errno::EPROTO,
            Cause::Limits => Errno::EINVAL,
        }
    }

    /// Returns whether an administrator should know of it. Not of an ordinary answer such as
    /// ENOENT, and not of the end of a mount.
    fn is_news(&self) -> bool {
        match self {
            Cause::Answered(errno) => matches!(
                *errno,
                Errno::EIO
                    | Errno::EPROTO
                    | Errno::EBADMSG
                    | Errno::EUCLEAN
                    | Errno::ENOTCONN
                    | Errno::ESHUTDOWN
                    | Errno::ETIMEDOUT
            ),
            Cause::Closed => false,
            _ => true,
        }
    }
}

impl From<ConnectError> for Cause {
    fn from(error: ConnectError) -> Cause {
        match error {
            ConnectError::Unreachable { reason, .. } => Cause::Unreachable { reason },
            ConnectError::TimedOut { seconds, .. } => Cause::Disconnected { seconds },
            ConnectError::Closed { .. } => Cause::Closed,
        }
    }
}

/// The failure of a request. Cheap to move and to clone.
///
/// Callers that need only the errno convert it by `?`.
#[derive(Clone)]
pub struct RequestError(Arc<Details>);

struct Details {
    log: Arc<ErrorLog>,
    op: &'static str,
    xid: Option<u64>,
    cause: Cause,
    is_logged: AtomicBool,
}

impl RequestError {
    /// Returns the name of the target, such as `sheen-OST0001`.
    pub fn target(&self) -> &str {
        &self.0.log.target
    }

    /// Returns the name of the request, as in the statistics.
    pub fn op(&self) -> &'static str {
        self.0.op
    }

    /// Returns the number of the request on its connection, which is in the server's log as well.
    /// `None`: the request was not sent, or the target is in this process.
    pub fn xid(&self) -> Option<u64> {
        self.0.xid
    }

    /// Returns why it failed.
    pub fn cause(&self) -> &Cause {
        &self.0.cause
    }

    /// Returns the error for a program.
    pub fn errno(&self) -> Errno {
        self.0.cause.errno()
    }

    /// Returns the error for a program, and logs the failure unless it is an ordinary answer of the
    /// service. To be called where the error becomes that of an operation.
    ///
    /// Logs an error and its clones once, and at most one line per target and kind of cause in
    /// 10 s. The next line says how many were suppressed.
    pub fn into_errno(self) -> Errno {
        self.report();
        self.errno()
    }

    fn report(&self) {
        let Details { log, cause, is_logged, .. } = &*self.0;
        if !cause.is_news() || is_logged.swap(true, Relaxed) {
            return;
        }
        match log.limits.lock().admit(discriminant(cause), log.rt.now()) {
            None => {}
            Some(0) => tracing::warn!("request failed: {self}"),
            Some(suppressed) => {
                tracing::warn!("request failed: {self}; failures since the last line: {suppressed}")
            }
        }
    }
}

impl From<RequestError> for Errno {
    fn from(error: RequestError) -> Errno {
        error.errno()
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.target(), self.op())?;
        if let Some(xid) = self.xid() {
            write!(f, " xid {xid}")?;
        }
        write!(f, ": {} ({})", self.cause(), self.errno().name())
    }
}

impl fmt::Debug for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestError({self})")
    }
}

impl std::error::Error for RequestError {}

impl PartialEq for RequestError {
    fn eq(&self, other: &RequestError) -> bool {
        let parts = |error: &RequestError| (error.op(), error.xid());
        self.target() == other.target() && parts(self) == parts(other) && self.cause() == other.cause()
    }
}

impl Eq for RequestError {}

impl PartialEq<Errno> for RequestError {
    fn eq(&self, other: &Errno) -> bool {
        self.errno() == *other
    }
}

/// Makes the errors of the requests to one target, and limits their log lines.
pub(super) struct ErrorLog {
    target: String,
    rt: Rt,
    limits: Mutex<LineLimits<Discriminant<Cause>>>,
}

impl ErrorLog {
    pub(super) fn new(target: &str, rt: Rt) -> Arc<ErrorLog> {
        Arc::new(ErrorLog { target: target.to_owned(), rt, limits: Mutex::default() })
    }

    /// Makes the error of a request.
    #[cold]
    pub(super) fn error(self: &Arc<Self>, op: &'static str, xid: Option<u64>, cause: Cause) -> RequestError {
        RequestError(Arc::new(Details { log: self.clone(), op, xid, cause, is_logged: AtomicBool::new(false) }))
    }
}

#[cfg(test)]
mod tests {
    use sheen_rt::sim::{Sim, SimConfig};

    use super::*;

    #[test]
    fn error_says_target_request_xid_cause_and_errno() {
        let log = ErrorLog::new("sheen-OST0001", Sim::new(1, SimConfig::default()).rt(1));
        let reason = "10.0.0.9@tcp: no answer".to_owned();
        for (xid, cause, text) in [
            (Some(1842), Cause::Answered(Errno::EIO), "write xid 1842: the target answered (EIO)"),
            (
                None,
                Cause::Unreachable { reason },
                "write: cannot reach the target: 10.0.0.9@tcp: no answer; check that the server runs and that the \
                 address is right (ENOTCONN)",
            ),
            (
                Some(3),
                Cause::Disconnected { seconds: 100 },
                "write xid 3: lost the connection and could not restore it in 100 s; check that the server runs \
                 (ETIMEDOUT)",
            ),
            (
                Some(4),
                Cause::Undecodable("end of file".into()),
                "write xid 4: cannot use the reply: end of file (EPROTO)",
            ),
            (
                None,
                Cause::NotSent { reason: "the OST is inactive", errno: Errno::EIO },
                "write: the OST is inactive (EIO)",
            ),
        ] {
            let error = log.error("write", xid, cause);
            assert_eq!(error.to_string(), format!("sheen-OST0001: {text}"));
        }
    }
}
