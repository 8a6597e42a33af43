//! Frames: the form of a message on a byte stream.
//!
//! ```text
//! header (64 bytes, little-endian) · body (postcard, `body_len`) · bulk (raw bytes, `bulk_len`)
//! ```
//!
//! The body of a request ends with its job, if it has one ([`crate::JobId`], `job_len` bytes).
//!
//! `header_crc` is CRC-32C over the header with that field zero, and the body. `bulk_crc` covers
//! the bulk if flag [`FLAG_BULK_CRC`] is set (parameter `osc.*.checksums`). A reader checks magic,
//! version and lengths before it uses anything else. The bytes of a foreign peer therefore cost at
//! most one header.

use serde::{Serialize, de::DeserializeOwned};
use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{I32, U16, U32, U64},
};

use crate::{OpId, bulk::BULK_BYTES_MAX, protocol::PROTOCOL_VERSION};

/// First bytes of every frame.
pub const MAGIC: u32 = u32::from_le_bytes(*b"SHN\x1b");
/// Bytes of a header.
pub const HEADER_LEN: usize = 64;
/// Largest body, in bytes. It has room for a readdir reply of 1 MiB, or for 65,536 bytes of layout
/// beside an xattr of the same size.
pub const BODY_BYTES_MAX: usize = 4 << 20;

/// Bulk checksum is present and must match.
pub const FLAG_BULK_CRC: u8 = 1;
/// The request was sent before on another connection: look for its reply first.
pub const FLAG_RESENT: u8 = 2;
/// In a reply: the bulk was sent from a file's pages, without a copy. A concurrent write to them
/// shows as a checksum that does not match. The client then repeats the request with
/// [`FLAG_BULK_COPY`].
pub const FLAG_BULK_LIVE: u8 = 4;
/// In a request: the reply's bulk must be a copy that no write changes.
pub const FLAG_BULK_COPY: u8 = 8;

/// Feature bit of `rpc` itself, whatever the protocol: [`Header::op_id`] may be set. A peer without
/// it ignores the bytes of the field, but computes the header's checksum as if they were 0. Bits of
/// services count from 0.
pub const FEATURE_OP_ID: u64 = 1 << 63;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// First frame of a client, once it is authenticated: body is [`Hello`].
    Hello = 1,
    /// Reply to `Hello`: body is [`Welcome`], or the status is an errno.
    Welcome = 2,
    /// A request of the protocol agreed on in `Hello`.
    Request = 3,
    /// Reply to a request: status 0 and a body, or an errno and no body.
    Reply = 4,
    /// Asks whether the peer is alive. No body.
    Ping = 5,
    /// Reply to `Ping`. No body.
    Pong = 6,
    /// The sender disconnects in order: no request is to be resent.
    Goodbye = 7,
    /// Sent by a server without a request: body is the protocol's [`crate::Protocol::Callback`]. No
    /// reply.
    Callback = 8,
    /// Authentication, before `Hello`: body is [`crate::auth::Auth`], or the status is an errno.
    Auth = 9,
}

impl Kind {
    fn from_u8(v: u8) -> Option<Kind> {
        Some(match v {
            1 => Kind::Hello,
            2 => Kind::Welcome,
            3 => Kind::Request,
            4 => Kind::Reply,
            5 => Kind::Ping,
            6 => Kind::Pong,
            7 => Kind::Goodbye,
            8 => Kind::Callback,
            9 => Kind::Auth,
            _ => return None,
        })
    }
}

/// Introduction of a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Hello {
    /// Id of the client: the same over reconnects, new at each mount.
    pub client: String,
    /// Name of the protocol, [`crate::Protocol::NAME`].
    pub protocol: String,
    /// Name of the target: `sheen-OST0000`, or `MGS`.
    pub target: String,
    /// The target's uuid. It distinguishes the target from one of another file system of the same
    /// name, at an address that this target once had. Empty: any target with the name.
    pub target_uuid: String,
    /// Feature bits that the client has.
    pub features: u64,
    /// Whether the client had a connection to this target before. A server that does not know the
    /// client then reports this.
    pub reconnect: bool,
}

/// Reply of a server to [`Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct Welcome {
    /// Feature bits that both have.
    pub features: u64,
    /// Changes whenever the service starts: distinguishes a broken connection from a restarted
    /// server.
    pub incarnation: u64,
    /// Whether the server knew the client. Then requests without a reply may be resent, and are
    /// executed once.
    pub known: bool,
    /// All transactions up to this one are durable.
    pub last_committed: u64,
    /// The server is in recovery, and executes new requests at the latest after this many seconds.
    /// `None`: it executes them now.
    pub recovery_secs: Option<u32>,
}

/// The fixed part of a frame, as on the wire.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: U32,
    version: U16,
    kind: u8,
    flags: u8,
    xid: U64,
    transno: U64,
    last_committed: U64,
    status: I32,
    body_len: U32,
    bulk_len: U32,
    header_crc: U32,
    bulk_crc: U32,
    op_id: U64,
    job_len: u8,
    reserved: [u8; 3],
}

const _: () = assert!(size_of::<RawHeader>() == HEADER_LEN);

/// The fixed part of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Kind of the frame.
    pub kind: Kind,
    /// `FLAG_*`.
    pub flags: u8,
    /// Identifies the request among all of its client; a reply has its request's xid.
    pub xid: u64,
    /// In a reply: the transaction of the request, 0 if it changed nothing.
    pub transno: u64,
    /// In a reply: all transactions up to this one are durable. In a request: the client has
    /// received the replies to all its xids up to this one (Lustre's `pb_last_xid`), so the server
    /// may forget them.
    pub last_committed: u64,
    /// In a reply: 0, or an errno.
    pub status: i32,
    /// Bytes of body.
    pub body_len: u32,
    /// Bytes of bulk.
    pub bulk_len: u32,
    /// CRC-32C of the bulk, if [`FLAG_BULK_CRC`].
    pub bulk_crc: u32,
    /// In a request: the operation that caused it. [`OpId::NONE`] if the peer lacks
    /// [`FEATURE_OP_ID`].
    pub op_id: OpId,
    /// In a request: length of the [`crate::JobId`] at the end of the body.
    pub job_len: u8,
}

/// Reason why bytes are not a frame. Their connection cannot be read any further and is closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Not Sheen's protocol at all.
    #[error("not a Sheen frame (magic {0:#010x})")]
    Magic(u32),
    /// A peer of another version.
    #[error(
        "the peer speaks protocol version {0}, this process speaks {PROTOCOL_VERSION}; run the same release on both sides"
    )]
    Version(u16),
    /// Unknown kind.
    #[error("unknown frame kind {0}")]
    Kind(u8),
    /// Body or bulk over the limit.
    #[error("frame too large: body {body} bytes (limit {BODY_BYTES_MAX}), bulk {bulk} bytes (limit {BULK_BYTES_MAX})")]
    TooLarge {
        /// Announced body.
        body: u32,
        /// Announced bulk.
        bulk: u32,
    },
    /// Damaged in transit.
    #[error("checksum of the {0} does not match: damaged in transit")]
    Checksum(&'static str),
    /// A body that does not conform to the protocol.
    #[error("malformed message body")]
    Body,
}

impl Header {
    /// Returns a header with everything zero but the kind and the xid.
    pub fn new(kind: Kind, xid: u64) -> Header {
        Header {
            kind,
            flags: 0,
            xid,
            transno: 0,
            last_committed: 0,
            status: 0,
            body_len: 0,
            bulk_len: 0,
            bulk_crc: 0,
            op_id: OpId::NONE,
            job_len: 0,
        }
    }

    /// Returns the 64 bytes for the wire, checksummed together with `body` (which must be the
    /// frame's body).
    pub fn encode(&self, body: &[u8]) -> [u8; HEADER_LEN] {
        let mut raw = self.raw();
        raw.header_crc = U32::new(header_crc(&raw, body));
        let mut out = [0; HEADER_LEN];
        out.copy_from_slice(raw.as_bytes());
        out
    }

    fn raw(&self) -> RawHeader {
        RawHeader {
            magic: U32::new(MAGIC),
            version: U16::new(PROTOCOL_VERSION),
            kind: self.kind as u8,
            flags: self.flags,
            xid: U64::new(self.xid),
            transno: U64::new(self.transno),
            last_committed: U64::new(self.last_committed),
            status: I32::new(self.status),
            body_len: U32::new(self.body_len),
            bulk_len: U32::new(self.bulk_len),
            header_crc: U32::new(0),
            bulk_crc: U32::new(self.bulk_crc),
            op_id: U64::new(self.op_id.to_wire()),
            job_len: self.job_len,
            reserved: [0; 3],
        }
    }

    /// Decodes a header and checks everything but the checksums. Returns it with the header
    /// checksum, to be passed to [`Header::verify`] once the body has arrived.
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<(Header, u32), FrameError> {
        let raw = RawHeader::read_from_bytes(bytes).map_err(|_| FrameError::Body)?;
        if raw.magic.get() != MAGIC {
            return Err(FrameError::Magic(raw.magic.get()));
        }
        if raw.version.get() != PROTOCOL_VERSION {
            return Err(FrameError::Version(raw.version.get()));
        }
        let kind = Kind::from_u8(raw.kind).ok_or(FrameError::Kind(raw.kind))?;
        let (body, bulk) = (raw.body_len.get(), raw.bulk_len.get());
        if body as usize > BODY_BYTES_MAX || bulk as usize > BULK_BYTES_MAX {
            return Err(FrameError::TooLarge { body, bulk });
        }
        let header = Header {
            kind,
            flags: raw.flags,
            xid: raw.xid.get(),
            transno: raw.transno.get(),
            last_committed: raw.last_committed.get(),
            status: raw.status.get(),
            body_len: body,
            bulk_len: bulk,
            bulk_crc: raw.bulk_crc.get(),
            op_id: OpId::from_wire(raw.op_id.get()),
            job_len: raw.job_len,
        };
        Ok((header, raw.header_crc.get()))
    }

    /// Checks header and body against the header's checksum.
    pub fn verify(&self, crc: u32, body: &[u8]) -> Result<(), FrameError> {
        if header_crc(&self.raw(), body) == crc { Ok(()) } else { Err(FrameError::Checksum("header")) }
    }
}

fn header_crc(raw: &RawHeader, body: &[u8]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    digest.update(raw.as_bytes());
    digest.update(body);
    digest.finalize() as u32
}

/// Encodes a body.
pub fn to_body<T: Serialize>(value: &T) -> Result<Vec<u8>, FrameError> {
    postcard::to_stdvec(value).map_err(|_| FrameError::Body)
}

/// Decodes a body; trailing bytes are an error.
pub fn from_body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, FrameError> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        _ => Err(FrameError::Body),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::mds;

    fn sample() -> Header {
        Header {
            flags: FLAG_BULK_CRC,
            transno: 7,
            last_committed: 5,
            status: 2,
            body_len: 3,
            bulk_len: 9,
            bulk_crc: 1,
            op_id: OpId::new(7, 8),
            job_len: 3,
            ..Header::new(Kind::Reply, 42)
        }
    }

    #[test]
    fn frame_header_round_trips() {
        let (header, crc) = Header::decode(&sample().encode(b"abc")).unwrap();
        assert_eq!(header, sample());
        assert_eq!(header.verify(crc, b"abc"), Ok(()));
        assert_eq!(header.verify(crc, b"abd"), Err(FrameError::Checksum("header")));
    }

    #[test]
    fn frame_header_bytes_are_pinned() {
        let bytes = sample().encode(b"abc");
        assert_eq!(&bytes[..8], b"SHN\x1b\x12\x00\x04\x01", "magic and version");
        assert_eq!(bytes[8], 42);
        assert_eq!(&bytes[32..44], &[2, 0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0]);
        assert_eq!(&bytes[52..], &[8, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0], "operation id, length of job id, reserved");
    }

    #[test]
    fn flipped_bit_in_a_frame_header_is_detected() {
        let good = sample().encode(b"abc");
        for bit in 0..HEADER_LEN * 8 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            if bit / 8 >= 61 {
                continue; // reserved: ignored so that a later release can use it behind a feature bit
            }
            let seen = Header::decode(&bad).and_then(|(h, crc)| h.verify(crc, b"abc"));
            assert!(seen.is_err(), "bit {bit}");
        }
    }

    #[test]
    fn frame_sizes_over_the_limit_are_refused() {
        let mut h = sample();
        h.body_len = BODY_BYTES_MAX as u32 + 1;
        assert!(matches!(Header::decode(&h.encode(b"")), Err(FrameError::TooLarge { .. })));
    }

    proptest! {
        #[test]
        fn frame_decode_of_arbitrary_bytes_never_panics(bytes: [u8; HEADER_LEN], body: Vec<u8>) {
            if let Ok((h, crc)) = Header::decode(&bytes) { let _ = h.verify(crc, &body); }
            let _ = from_body::<mds::Request>(&body);
            let _ = from_body::<crate::ost::Request>(&body);
            let _ = from_body::<crate::mgs::Request>(&body);
            let _ = from_body::<crate::auth::Auth>(&body);
        }
    }
}
