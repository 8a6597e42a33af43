//! Representation of a composite layout for programs that know only plain layouts.
//!
//! MPI libraries read `lmm_stripe_size` and `lmm_stripe_count` at the offsets of the plain forms,
//! without checking the magic number, and divide by them. Lustre's ioctl therefore returns one
//! component (`lov_getstripe`), and so does Sheen's.

use super::file::encode_plain;
use crate::{Component, Count, Layout, STRIPES_MAX, component::ANY_OST};

impl Layout {
    /// Encodes a plain layout that represents this one. For a plain layout it is
    /// [`Layout::encode_xattr`]. For a composite layout it is a component of the first mirror,
    /// without Data-on-MDT and extensions: the last one with objects, or the last one if the file
    /// is `empty`.
    ///
    /// `osts`: the number of OSTs. A component without objects shows this number as its stripe
    /// count if it requests a stripe on each OST.
    pub fn encode_plain_view(&self, empty: bool, osts: usize) -> Vec<u8> {
        if self.is_plain() {
            return self.encode_xattr();
        }
        let mirror = self.components().first().map(Component::mirror_id);
        let of_mirror: Vec<&Component> = self.components().iter().filter(|c| Some(c.mirror_id()) == mirror).collect();
        let on_osts: Vec<&Component> =
            of_mirror.iter().copied().filter(|c| !c.is_on_mdt() && !c.is_extension()).collect();
        let written = on_osts.iter().rfind(|c| !empty && c.is_instantiated());
        let Some(&c) = written.or(on_osts.last()).or(of_mirror.last()) else { return Vec::new() };
        let stripes = c.objects().to_vec();
        let stripe_count = if stripes.is_empty() { expected_stripe_count(c, osts) } else { c.stripe_count };
        let layout_gen = if stripes.is_empty() { c.layout_gen } else { ANY_OST };
        let mut out = Vec::new();
        encode_plain(&Component { stripes, stripe_count, ..c.clone() }, layout_gen, &mut out);
        out
    }
}

/// Returns the expected stripe count of a component without objects, at least one.
fn expected_stripe_count(c: &Component, osts: usize) -> u16 {
    let most = u16::try_from(osts.clamp(1, STRIPES_MAX)).unwrap_or(u16::MAX);
    match Count::from_raw(c.stripe_count) {
        None => 1,
        Some(Count::Stripes(n)) => n,
        Some(Count::All) => most,
        Some(Count::PerOst(n)) => n.saturating_mul(most),
    }
}
