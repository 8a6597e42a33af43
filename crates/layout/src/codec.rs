//! Lustre's binary forms of layouts: `lov_mds_md_v1`/`_v3`, `lov_user_md`, `lov_comp_md_v1`.
//! Little-endian.
//!
//! Sizes: v1 32 + 24·n bytes, v3 48 + 24·n, composite header 32, entry 48. The tests contain
//! layouts stored by a real Lustre.
//!
//! * `structs`: the fields of these forms, with unchecked values. The C
//!   library uses them directly, because it tolerates more than the file system does.
//! * `file`: [`Layout::decode`](crate::Layout::decode) and its like.
//! * `request`: [`Asked`](crate::Asked), [`Spec`](crate::Spec), [`Template`](crate::Template),
//!   [`Mark`](crate::Mark).
//! * `plain_view`: a composite layout for programs that know only plain ones.

mod file;
mod plain_view;
mod request;
mod structs;

pub use structs::{
    COMP_ENTRY_BYTES, COMP_HEADER_BYTES, COMPONENTS_MAX, CompositeParts, Entry, Magic, OBJECT_BYTES, Object,
    PlainFields, PlainPart, PlainRequest, V1_BYTES, V3_BYTES, encode_composite, plain_layout_gen, set_stripe_offset,
    stated_len,
};

#[cfg(test)]
pub(crate) mod fixtures;
#[cfg(test)]
mod tests;
