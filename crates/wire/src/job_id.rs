//! [`JobId`]: the job for which a client works, for statistics.

use std::fmt;

use crate::frame::FrameError;

/// Longest job id in bytes, as in Lustre.
pub const JOB_ID_BYTES_MAX: usize = 31;

/// Name of the job that caused a request: of a batch system, such as `4711`, or made from a
/// program, such as `dd.1000`. The client chooses it, and the servers count by it. It is no
/// evidence.
///
/// Invariant: it has printable ASCII characters only, and no space, quote or backslash.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct JobId {
    /// Followed by zeros.
    bytes: [u8; JOB_ID_BYTES_MAX],
    len: u8,
}

impl JobId {
    /// No job: the client counts no jobs, or no single job caused the request.
    pub const NONE: JobId = JobId { bytes: [0; JOB_ID_BYTES_MAX], len: 0 };

    /// Returns the id that consists of the first [`JOB_ID_BYTES_MAX`] bytes of a text. Other
    /// characters than those of a job id become `_`.
    pub fn new(text: &[u8]) -> JobId {
        let mut id = JobId::NONE;
        for (to, from) in id.bytes.iter_mut().zip(text) {
            let fits = from.is_ascii_graphic() && !matches!(from, b'"' | b'\'' | b'\\');
            *to = if fits { *from } else { b'_' };
            id.len += 1;
        }
        id
    }

    /// Returns the form on the wire: at most [`JOB_ID_BYTES_MAX`] bytes, none for
    /// [`JobId::NONE`].
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        // It is ASCII.
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    /// Returns whether this is [`JobId::NONE`].
    pub fn is_none(&self) -> bool {
        self.len == 0
    }

    /// Appends the id to the body of a request. Returns its length, for the frame's header.
    pub fn append_to(&self, body: &mut Vec<u8>) -> u8 {
        body.extend_from_slice(self.as_bytes());
        self.len
    }

    /// Splits the body of a request into the request and the id behind it, of length `len`.
    ///
    /// # Errors
    /// [`FrameError::Body`]: the body is too short, or the id too long.
    pub fn split_from(body: &[u8], len: u8) -> Result<(&[u8], JobId), FrameError> {
        let len = Some(usize::from(len)).filter(|len| *len <= JOB_ID_BYTES_MAX);
        let at = len.and_then(|len| body.len().checked_sub(len)).ok_or(FrameError::Body)?;
        let (request, id) = body.split_at(at);
        Ok((request, JobId::new(id)))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_id_has_printable_characters_and_a_bounded_length() {
        for (text, id) in [
            ("dd.1000", "dd.1000"),
            ("", ""),
            ("a b\n\"é\"", "a_b_____"),
            ("0123456789abcdef0123456789abcdef0", "0123456789abcdef0123456789abcde"),
        ] {
            assert_eq!(JobId::new(text.as_bytes()).to_string(), id);
        }
        assert!(JobId::new(b"").is_none() && JobId::default() == JobId::NONE && !JobId::new(b"1").is_none());
        assert_eq!(format!("[{:4}]", JobId::new(b"ab")), "[ab  ]");
    }

    #[test]
    fn job_id_stands_behind_a_request() {
        let mut body = b"request".to_vec();
        let len = JobId::new(b"job").append_to(&mut body);
        assert_eq!(JobId::split_from(&body, len), Ok((&b"request"[..], JobId::new(b"job"))));
        assert_eq!(JobId::split_from(&body, 0), Ok((&body[..], JobId::NONE)));
        assert_eq!(JobId::split_from(&body, 11), Err(FrameError::Body));
        assert_eq!(JobId::split_from(&[b'a'; 99], 32), Err(FrameError::Body));
    }
}
