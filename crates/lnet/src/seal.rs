//! Protection of one direction of a connection ([`Flavor`]).
//!
//! Both ends call it for the same pieces in the same order: the header of a frame, its body, and
//! its bulk in pieces. So both count the same nonces.

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce},
    hkdf::{HKDF_SHA256, Salt},
};
use sheen_wire::auth::{Flavor, TAG_LEN};

use crate::noise::Secrets;

/// Distinguishes these keys from others that may be derived of the same secret.
const PURPOSE: &[u8] = b"sheen frames 1";

/// A tag of a piece.
pub(crate) type Tag = [u8; TAG_LEN];

/// A piece that the peer did not seal, or that was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Forged;

/// Seals or opens the pieces of one direction.
pub(crate) struct Seal {
    key: LessSafeKey,
    /// Number of pieces until now: the next nonce.
    pieces: u64,
    flavor: Flavor,
}

/// The two directions of a connection, as one of its ends uses them.
pub(crate) struct Seals {
    pub(crate) send: Seal,
    pub(crate) receive: Seal,
}

impl Seals {
    /// Returns the protection of a connection's server, by a flavor that has one.
    ///
    /// # Errors
    /// The library failed.
    pub(crate) fn of_server(flavor: Flavor, secrets: &Secrets) -> Result<Seals, Forged> {
        let send = Seal::new(flavor, &secrets.of_server)?;
        Ok(Seals { send, receive: Seal::new(flavor, &secrets.of_client)? })
    }

    /// Returns the protection of a connection's client, by a flavor that has one.
    ///
    /// # Errors
    /// The library failed.
    pub(crate) fn of_client(flavor: Flavor, secrets: &Secrets) -> Result<Seals, Forged> {
        let Seals { send, receive } = Seals::of_server(flavor, secrets)?;
        Ok(Seals { send: receive, receive: send })
    }
}

impl Seal {
    fn new(flavor: Flavor, secret: &[u8; 32]) -> Result<Seal, Forged> {
        let derived = Salt::new(HKDF_SHA256, PURPOSE).extract(secret);
        let key = derived.expand(&[], &AES_256_GCM).map_err(|_| Forged)?;
        Ok(Seal { key: LessSafeKey::new(key.into()), pieces: 0, flavor })
    }

    pub(crate) fn flavor(&self) -> Flavor {
        self.flavor
    }

    /// Returns whether pieces are encrypted.
    pub(crate) fn encrypts(&self) -> bool {
        self.flavor == Flavor::Privacy
    }

    fn nonce(&mut self) -> Nonce {
        let mut nonce = [0; NONCE_LEN];
        nonce[NONCE_LEN - 8..].copy_from_slice(&self.pieces.to_be_bytes());
        // 2^64 pieces do not occur: at 10^9 a second they take 500 years.
        self.pieces = self.pieces.wrapping_add(1);
        Nonce::assume_unique_for_key(nonce)
    }

    /// Returns the tag of a piece that is sent as it is.
    ///
    /// # Errors
    /// The library failed.
    pub(crate) fn tag(&mut self, piece: &[u8]) -> Result<Tag, Forged> {
        self.seal_with(Aad::from(piece), &mut [])
    }

    /// Seals a short piece in place. Returns its tag.
    ///
    /// # Errors
    /// The library failed.
    pub(crate) fn seal(&mut self, piece: &mut [u8]) -> Result<Tag, Forged> {
        if self.encrypts() { self.seal_with(Aad::empty(), piece) } else { self.tag(piece) }
    }

    fn seal_with<A: AsRef<[u8]>>(&mut self, plain: Aad<A>, secret: &mut [u8]) -> Result<Tag, Forged> {
        let nonce = self.nonce();
        let tag = self.key.seal_in_place_separate_tag(nonce, plain, secret).map_err(|_| Forged)?;
        tag.as_ref().try_into().map_err(|_| Forged)
    }

    /// Encrypts a piece into `out`, of the same length. Returns its tag.
    ///
    /// # Errors
    /// The library failed.
    pub(crate) fn encrypt(&mut self, piece: &[u8], out: &mut [u8]) -> Result<Tag, Forged> {
        let (nonce, mut tag) = (self.nonce(), Tag::default());
        let sealed = self.key.seal_out_of_place_scatter(nonce, Aad::empty(), piece, out, &[], &mut tag);
        sealed.map(|()| tag).map_err(|_| Forged)
    }

    /// Checks a piece that the peer sealed, and decrypts it in place.
    ///
    /// # Errors
    /// It is not the next piece that the peer sealed.
    pub(crate) fn open(&mut self, piece: &mut [u8], tag: &Tag) -> Result<(), Forged> {
        let nonce = self.nonce();
        let opened = if self.encrypts() {
            self.key.open_in_place_separate_tag(nonce, Aad::empty(), tag, piece)
        } else {
            self.key.open_in_place_separate_tag(nonce, Aad::from(&*piece), tag, &mut [])
        };
        opened.map(drop).map_err(|_| Forged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRETS: Secrets = Secrets { of_server: [1; 32], of_client: [2; 32] };

    fn ends(flavor: Flavor) -> (Seals, Seals) {
        (Seals::of_server(flavor, &SECRETS).unwrap(), Seals::of_client(flavor, &SECRETS).unwrap())
    }

    #[test]
    fn sealed_pieces_are_opened_in_their_order_only() {
        for flavor in [Flavor::Integrity, Flavor::Privacy] {
            let (mut server, mut client) = ends(flavor);
            let mut sealed = Vec::new();
            for text in [&b"one"[..], b"two", b""] {
                let mut piece = text.to_vec();
                let tag = server.send.seal(&mut piece).unwrap();
                assert_eq!(piece == text, flavor == Flavor::Integrity || text.is_empty());
                sealed.push((text, piece, tag));
            }
            let (text, piece, tag) = &sealed[0];
            let mut opened = piece.clone();
            client.receive.open(&mut opened, tag).unwrap();
            assert_eq!(opened, *text);
            // Again, then the next but one: each is refused in place of another one.
            assert_eq!(client.receive.open(&mut piece.clone(), tag), Err(Forged));
            assert_eq!(ends(flavor).1.receive.open(&mut sealed[1].1.clone(), &sealed[1].2), Err(Forged));
            // Reflected to its sender.
            assert_eq!(ends(flavor).0.receive.open(&mut piece.clone(), tag), Err(Forged));
        }
    }

    #[test]
    fn changed_pieces_are_refused() {
        for flavor in [Flavor::Integrity, Flavor::Privacy] {
            let mut piece = b"a header".to_vec();
            let tag = ends(flavor).0.send.seal(&mut piece).unwrap();
            for bit in 0..piece.len() * 8 {
                let mut changed = piece.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(ends(flavor).1.receive.open(&mut changed, &tag), Err(Forged), "bit {bit}");
            }
            for bit in 0..TAG_LEN * 8 {
                let mut changed = tag;
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(ends(flavor).1.receive.open(&mut piece.clone(), &changed), Err(Forged), "bit {bit}");
            }
            assert_eq!(ends(flavor).1.receive.open(&mut piece[1..].to_vec(), &tag), Err(Forged));
        }
    }

    #[test]
    fn encryption_into_a_buffer_is_opened_as_sealed_in_place() {
        let (mut server, mut client) = ends(Flavor::Privacy);
        let (piece, mut out) = (vec![7; 10_000], vec![0; 10_000]);
        let tag = server.send.encrypt(&piece, &mut out).unwrap();
        assert_ne!(out, piece);
        client.receive.open(&mut out, &tag).unwrap();
        assert_eq!(out, piece);
    }
}
