//! CRC-32 as in zlib, which Lustre prints as the checksum of a mirror's data.

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

/// The checksum of the bytes so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Crc(u32);

impl Crc {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let step = |crc: u32, b: &u8| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ b)];
        self.0 = !bytes.iter().fold(!self.0, step);
    }

    /// Returns the checksum.
    pub fn value(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirror_crc32_equals_zlib() {
        let of = |pieces: &[&[u8]]| {
            let mut crc = Crc::default();
            pieces.iter().for_each(|p| crc.add(p));
            crc.value()
        };
        assert_eq!(of(&[b"123456789"]), 0xcbf4_3926);
        assert_eq!(of(&[b"1234", b"", b"56789"]), 0xcbf4_3926);
        // Lustre's tool printed the last number for 3 MiB of zeros.
        assert_eq!((of(&[]), of(&[b"x\n"]), of(&[&[0; 3 << 20]])), (0, of(&[b"x", b"\n"]), 0x7972_4fc6));
    }
}
