//! Striping: layouts, their Lustre binary form, byte mapping, placement of objects on OSTs.
