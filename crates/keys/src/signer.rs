//! Proofs that servers of a cluster make for each other, and that clients pass on.
//!
//! Each purpose has a secret of its own, which is derived of a key of the cluster. So a proof for
//! one purpose is none for another. While a cluster has several keys, servers accept the proofs by
//! each of them.

use aws_lc_rs::{constant_time::verify_slices_are_equal, hmac};
use sheen_wire::auth::{KeyId, PROOF_BYTES, Proof};

use crate::Key;

/// Makes and checks proofs for one purpose.
#[derive(Clone, Debug, Default)]
pub struct Signer {
    /// The oldest first.
    keys: Vec<(KeyId, hmac::Key)>,
}

impl Signer {
    /// Returns the signer of the servers with these keys of the cluster.
    pub(crate) fn new(keys: &[Key], purpose: &[u8]) -> Signer {
        let derive = |key: &Key| {
            let secret = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key.secret.0), purpose);
            (key.id, hmac::Key::new(hmac::HMAC_SHA256, secret.as_ref()))
        };
        Signer { keys: keys.iter().map(derive).collect() }
    }

    /// Returns a proof of a message by each key, the oldest first.
    pub fn sign(&self, message: &[u8]) -> impl Iterator<Item = Proof> {
        self.keys.iter().map(move |(key, secret)| Proof { key: *key, mac: mac(secret, message) })
    }

    /// Returns whether a proof of this message is valid.
    pub fn is_valid(&self, message: &[u8], proof: &Proof) -> bool {
        let secret = self.keys.iter().find(|(key, _)| *key == proof.key).map(|(_, secret)| secret);
        secret.is_some_and(|secret| verify_slices_are_equal(&mac(secret, message), &proof.mac).is_ok())
    }
}

fn mac(secret: &hmac::Key, message: &[u8]) -> [u8; PROOF_BYTES] {
    let mut mac = [0; PROOF_BYTES];
    let whole = hmac::sign(secret, message);
    // A digest of SHA-256 is longer.
    mac.iter_mut().zip(whole.as_ref()).for_each(|(to, from)| *to = *from);
    mac
}

#[cfg(test)]
mod tests {
    use sheen_wire::auth::ClusterId;

    use super::*;

    #[test]
    fn proof_is_valid_for_its_message_purpose_and_key_only() {
        let key = |id: u8| Key::new(ClusterId(1), u64::from(id), [id; 32], 0);
        let (both, other) = (Signer::new(&[key(1), key(2)], b"a"), Signer::new(&[key(1), key(2)], b"b"));
        let proofs: Vec<Proof> = both.sign(b"message").collect();
        assert_eq!(proofs.iter().map(|proof| proof.key).collect::<Vec<_>>(), [KeyId(1), KeyId(2)]);
        let newer = Signer::new(&[key(2)], b"a");
        for proof in &proofs {
            assert!(both.is_valid(b"message", proof) && !both.is_valid(b"massage", proof));
            assert!(!other.is_valid(b"message", proof));
            assert_eq!(newer.is_valid(b"message", proof), proof.key == KeyId(2));
            let swapped = Proof { key: KeyId(3 - proof.key.0), ..*proof };
            assert!(!both.is_valid(b"message", &swapped));
        }
    }
}
