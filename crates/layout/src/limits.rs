//! Limits, units and default values of layouts; most are Lustre's.

/// Maximum number of stripes of a file or component, as in Lustre: the number of objects that fit
/// into a layout of 64 KiB beside its headers, rounded.
pub const STRIPES_MAX: usize = 2000;
/// A stripe size is a multiple of this many bytes: the largest page size of any client.
pub const STRIPE_SIZE_UNIT: u32 = 64 << 10;
/// Largest stripe size in bytes: below 4 GiB, a multiple of the unit.
pub const STRIPE_SIZE_MAX: u32 = u32::MAX - (STRIPE_SIZE_UNIT - 1);
/// Default stripe size, in bytes (Lustre 2.17's default).
pub const STRIPE_SIZE_DEFAULT: u32 = 4 << 20;
/// Maximum size of a layout, in bytes: the limit of an extended attribute.
pub const LAYOUT_BYTES_MAX: usize = 65536;
/// Maximum length of a pool name, in bytes.
pub const POOL_NAME_MAX: usize = 15;
/// Maximum number of stripes per OST that `-C -N` can request.
pub const PER_OST_MAX: u16 = 32;
/// Maximum number of mirrors of a file.
pub const MIRRORS_MAX: u16 = 16;
/// Unit of an extension size in the binary form, in bytes.
pub const SEL_UNIT: u64 = 1024;
/// Minimum extension size, in bytes. Each extension of a growing file costs a request to the MDT.
pub const EXTENSION_SIZE_MIN: u64 = 64 << 20;
/// Maximum extension size, in bytes: the limit of its field.
pub const EXTENSION_SIZE_MAX: u64 = (u32::MAX as u64) * SEL_UNIT;
/// Default limit of the bytes of a file on the MDT (Lustre's `dom_stripesize`).
pub const MDT_BYTES_DEFAULT: u64 = 1 << 20;
/// Value of [`crate::Stripe::ost`] for the single stripe of a Data-on-MDT component: larger than
/// every OST index. The object's FID is the file's FID with a version above 0. The MDT's data
/// service holds the object and accepts the same requests as an OST.
pub const MDT_OST: u32 = 1 << 31;
/// Maximum size of any file, in bytes: the limit of `off_t`.
pub const FILE_SIZE_MAX: u64 = i64::MAX as u64;
