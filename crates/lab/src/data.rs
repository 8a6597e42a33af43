//! The data that tasks write, so that a reader can check it.
//!
//! The data of a record depends on the rank of its writer, on the signature of the run and, except
//! for [`Packet::Timestamp`], on its offset in the file. So a check finds bytes of another task, of
//! a former run, or from another place.

use serde::{Deserialize, Serialize};

/// Bytes whose first word contains the offset.
const MARKED_BYTES: usize = 4096;
const WORD: usize = 8;

/// Kind of the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Packet {
    /// All records of a task are the same. Costs no time during the measurement.
    #[default]
    Timestamp,
    /// As [`Packet::Timestamp`], and the offset is in each 4096 bytes.
    Offset,
    /// Random bytes, the same in all records of a task, and the offset in each 4096 bytes.
    Incompressible,
    /// Each record has its own random bytes.
    Random,
}

impl Packet {
    /// Reads IOR's name of a kind, or its first letter.
    ///
    /// # Errors
    /// A message for the user.
    pub fn parse(text: &str) -> Result<Packet, String> {
        match text {
            "t" | "timestamp" => Ok(Packet::Timestamp),
            "o" | "offset" => Ok(Packet::Offset),
            "i" | "incompressible" => Ok(Packet::Incompressible),
            "r" | "random" => Ok(Packet::Random),
            _ => Err(format!("-l {text}: expected timestamp, offset, incompressible or random")),
        }
    }
}

/// The data of one task.
#[derive(Clone, Copy, Debug)]
pub struct Data {
    /// Kind of the data.
    pub packet: Packet,
    /// Rank of the writer.
    pub rank: u64,
    /// Signature of the run.
    pub signature: u64,
}

impl Data {
    /// Fills a buffer with what is common to all records.
    pub fn fill(&self, buffer: &mut [u8]) {
        for (index, word) in buffer.chunks_mut(WORD).enumerate() {
            copy(word, self.common(index as u64));
        }
    }

    /// Gives a filled buffer the data of the record at `offset`.
    pub fn update(&self, buffer: &mut [u8], offset: u64) {
        match self.packet {
            Packet::Timestamp => {}
            Packet::Offset | Packet::Incompressible => {
                for (block, bytes) in buffer.chunks_mut(MARKED_BYTES).enumerate() {
                    let len = WORD.min(bytes.len());
                    copy(&mut bytes[..len], self.mark(offset, block));
                }
            }
            Packet::Random => {
                let mut words = self.random(offset);
                for word in buffer.chunks_mut(WORD) {
                    copy(word, words.next());
                }
            }
        }
    }

    /// Whether the buffer has the data of the record at `offset`.
    pub fn matches(&self, buffer: &[u8], offset: u64) -> bool {
        let mut words = self.random(offset);
        buffer.chunks(WORD).enumerate().all(|(index, word)| {
            let marked = (index * WORD).is_multiple_of(MARKED_BYTES);
            let expected = match self.packet {
                Packet::Random => words.next(),
                Packet::Offset | Packet::Incompressible if marked => self.mark(offset, index * WORD / MARKED_BYTES),
                _ => self.common(index as u64),
            };
            *word == expected.to_le_bytes()[..word.len()]
        })
    }

    fn common(&self, index: u64) -> u64 {
        let plain = self.rank << 32 | (self.signature.wrapping_add(index) & 0xffff_ffff);
        if self.packet == Packet::Incompressible { mix(plain) } else { plain }
    }

    fn mark(&self, offset: u64, block: usize) -> u64 {
        mix((offset + (block * MARKED_BYTES) as u64) ^ self.rank << 48 ^ self.signature << 24)
    }

    fn random(&self, offset: u64) -> Words {
        Words(mix(self.mark(offset, 0)))
    }
}

/// Random words: a Weyl sequence whose elements are mixed (splitmix64).
struct Words(u64);

impl Words {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }
}

fn mix(mut word: u64) -> u64 {
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn copy(to: &mut [u8], word: u64) {
    to.copy_from_slice(&word.to_le_bytes()[..to.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Packet; 4] = [Packet::Timestamp, Packet::Offset, Packet::Incompressible, Packet::Random];

    fn record(data: Data, offset: u64, len: usize) -> Vec<u8> {
        let mut buffer = vec![0; len];
        data.fill(&mut buffer);
        data.update(&mut buffer, offset);
        buffer
    }

    #[test]
    fn check_finds_data_of_other_ranks_runs_and_places() {
        for packet in KINDS {
            let data = Data { packet, rank: 3, signature: 77 };
            for len in [8, 1001, 4096, 47_008] {
                let written = record(data, 47_008, len);
                assert!(data.matches(&written, 47_008), "{packet:?}, {len}");
                assert!(!Data { rank: 2, ..data }.matches(&written, 47_008), "{packet:?}, {len}: another rank");
                assert!(!Data { signature: 78, ..data }.matches(&written, 47_008), "{packet:?}, {len}: another run");
                let elsewhere = data.matches(&written, 0);
                assert_eq!(elsewhere, packet == Packet::Timestamp, "{packet:?}, {len}: another place");
                let mut damaged = written;
                damaged[len - 1] ^= 1;
                assert!(!data.matches(&damaged, 47_008), "{packet:?}, {len}: damage");
            }
        }
    }

    #[test]
    fn a_buffer_serves_one_record_after_the_other() {
        for packet in KINDS {
            let data = Data { packet, rank: 1, signature: 5 };
            let mut buffer = record(data, 0, 9000);
            data.update(&mut buffer, 9000);
            assert_eq!(buffer, record(data, 9000, 9000), "{packet:?}");
        }
    }
}
