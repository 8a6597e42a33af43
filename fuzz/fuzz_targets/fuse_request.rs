//! Messages from the kernel.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| sheen_fuse::fuzz_parse(data));
