//! Flow records, as the netflow workload of "Evaluating Dynamic File Striping For Lustre" reads
//! them. This module generates them, indexes them, and computes a model of the behaviour of each
//! internal host.
//!
//! A record is a line of comma-separated fields, of any length:
//! `start_ms,duration_ms,protocol,source,sport,destination,dport,bytes` and then the sizes of its
//! first packets (up to [`PACKETS_MAX`]). One end is an internal host, `10.…`. Two calls
//! of [`generate`] with the same size return the same records.

use std::{collections::BTreeMap, fmt::Write};

/// Number of internal hosts. Few of them cause most of the flows.
pub const HOSTS: u32 = 512;
/// Maximum number of packet sizes in a record. With this value, records have about 840 bytes on
/// average, as in the paper (55 GB for 70 million records).
const PACKETS_MAX: u64 = 360;
/// Number of bit lengths in a model's histogram of packet sizes.
const SIZE_BITS: usize = 12;

/// A source of pseudo-random numbers.
struct Random(u64);

impl Random {
    /// Returns a number below `bound`, which is above 0.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) % bound
    }
}

/// Generates whole records, of at least `bytes` bytes in total.
pub fn generate(bytes: usize) -> Vec<u8> {
    let mut random = Random(1);
    let mut out = String::with_capacity(bytes + 2048);
    let mut now_ms = 1_420_070_400_000;
    while out.len() < bytes {
        now_ms += random.below(20);
        record(&mut out, now_ms, &mut random);
    }
    out.into_bytes()
}

fn record(out: &mut String, now_ms: u64, random: &mut Random) {
    // The product of two random numbers prefers small numbers.
    let host = random.below(u64::from(HOSTS)) * random.below(u64::from(HOSTS)) / u64::from(HOSTS);
    let inside = format!("10.1.{}.{}", host / 256, host % 256);
    let outside = format!("198.{}.{}.{}", 18 + random.below(2), random.below(256), random.below(256));
    let (protocol, port) = [(6, 443), (6, 80), (17, 53), (6, 22), (17, 123)][random.below(5) as usize];
    let client = 1024 + random.below(64_000);
    let sizes: Vec<u64> = (0..=random.below(PACKETS_MAX)).map(|_| 40 + random.below(1460)).collect();
    let (duration, bytes) = (random.below(300_000), sizes.iter().sum::<u64>());
    let ends = match random.below(4) {
        0 => format!("{outside},{client},{inside},{port}"),
        _ => format!("{inside},{client},{outside},{port}"),
    };
    // Writing to a string cannot fail.
    let _ = write!(out, "{now_ms},{duration},{protocol},{ends},{bytes}");
    sizes.iter().for_each(|size| {
        let _ = write!(out, ",{size}");
    });
    out.push('\n');
}

/// Positions of the records, by internal host. Phase 1 of the workload creates it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Index(BTreeMap<u32, Vec<Extent>>);

/// Position of a record in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    /// Offset of its first byte.
    pub offset: u64,
    /// Its length in bytes, including the line end.
    pub len: u32,
}

impl Index {
    /// Adds the records of a segment: those that begin in `text[skip..limit]`, where `text` is at
    /// `offset` in the file. A record cut off by the end of `text` is left out. So `text` must
    /// extend beyond `limit` by the maximum length of a record.
    pub fn add(&mut self, text: &[u8], offset: u64, skip: usize, limit: usize) {
        let mut at = skip;
        while at < limit {
            let Some(len) = text[at..].iter().position(|b| *b == b'\n').map(|n| n + 1) else { return };
            if let Some(host) = Flow::parse(&text[at..at + len]).and_then(|flow| flow.host()) {
                let extent = Extent { offset: offset + at as u64, len: len as u32 };
                self.0.entry(host).or_default().push(extent);
            }
            at += len;
        }
    }

    /// Adds the index of another segment.
    pub fn merge(&mut self, other: Index) {
        for (host, extents) in other.0 {
            self.0.entry(host).or_default().extend(extents);
        }
    }

    /// Returns the hosts, with their records in the order of the file.
    pub fn hosts(&self) -> Vec<(u32, Vec<Extent>)> {
        let sorted = |(host, extents): (&u32, &Vec<Extent>)| {
            let mut extents = extents.clone();
            extents.sort_by_key(|p| p.offset);
            (*host, extents)
        };
        self.0.iter().map(sorted).collect()
    }

    /// Returns the number of records.
    pub fn records(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Returns the size of all records in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.values().flatten().map(|p| u64::from(p.len)).sum()
    }
}

/// Returns the start of the first record that begins at or after `text[1]`. `text` begins one byte
/// before the segment, so the result is 1 if a record begins with the segment.
pub fn first_record(text: &[u8]) -> usize {
    text.iter().position(|b| *b == b'\n').map_or(text.len(), |n| n + 1)
}

/// Maximum length of a record in bytes.
pub const RECORD_MAX: usize = 2048;

/// The fields of a record.
struct Flow<'a> {
    fields: std::str::Split<'a, char>,
    source: &'a str,
    destination: &'a str,
    port: &'a str,
    bytes: u64,
}

impl Flow<'_> {
    fn parse(line: &[u8]) -> Option<Flow<'_>> {
        let mut fields = std::str::from_utf8(line).ok()?.trim_end().split(',');
        let source = fields.nth(3)?;
        let (destination, port) = (fields.nth(1)?, fields.next()?);
        let bytes = fields.next()?.parse().ok()?;
        Some(Flow { fields, source, destination, port, bytes })
    }

    /// Returns the number of the internal host.
    fn host(&self) -> Option<u32> {
        let inside = [self.source, self.destination].into_iter().find_map(|end| end.strip_prefix("10.1."))?;
        let (high, low) = inside.split_once('.')?;
        Some(high.parse::<u32>().ok()? * 256 + low.parse::<u32>().ok()?)
    }
}

/// The behaviour of a host.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Model {
    /// Number of outgoing flows, and of incoming flows.
    pub flows: [u64; 2],
    /// Bytes of these flows.
    pub bytes: u64,
    /// Number of flows by destination port.
    pub ports: BTreeMap<u16, u64>,
    /// Number of packets by the bit length of their sizes.
    pub sizes: [u64; SIZE_BITS],
}

impl Model {
    /// Adds a record. Returns whether it is a record of `host`.
    pub fn learn(&mut self, host: u32, line: &[u8]) -> bool {
        let Some(flow) = Flow::parse(line).filter(|flow| flow.host() == Some(host)) else { return false };
        self.flows[usize::from(!flow.source.starts_with("10."))] += 1;
        self.bytes += flow.bytes;
        *self.ports.entry(flow.port.parse().unwrap_or(0)).or_default() += 1;
        for size in flow.fields.filter_map(|size| size.parse::<u64>().ok()) {
            self.sizes[((64 - size.leading_zeros()) as usize).min(SIZE_BITS - 1)] += 1;
        }
        true
    }

    /// Adds the counts of another model.
    pub fn merge(&mut self, other: &Model) {
        self.bytes += other.bytes;
        self.flows.iter_mut().zip(other.flows).for_each(|(all, flows)| *all += flows);
        self.sizes.iter_mut().zip(other.sizes).for_each(|(all, packets)| *all += packets);
        other.ports.iter().for_each(|(port, flows)| *self.ports.entry(*port).or_default() += flows);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_records_are_reproducible_and_like_the_papers() {
        let text = generate(1 << 20);
        assert_eq!(text, generate(1 << 20));
        let mut index = Index::default();
        index.add(&text, 0, 0, text.len());
        assert_eq!(index.bytes(), text.len() as u64, "every record is indexed");
        let mean = text.len() / index.records();
        assert!((800..900).contains(&mean), "{mean} bytes");
        assert!(text.split(|b| *b == b'\n').all(|line| line.len() < RECORD_MAX));
        let mut counts: Vec<usize> = index.hosts().iter().map(|(_, extents)| extents.len()).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let busiest: usize = counts.iter().take(counts.len() / 4).sum();
        assert!(busiest * 2 > index.records(), "{busiest} of {}", index.records());
    }

    #[test]
    fn segments_with_any_boundaries_index_each_record_once() {
        let text = generate(200_000);
        let mut whole = Index::default();
        whole.add(&text, 0, 0, text.len());
        for segment in [1000, 4096, 70_001] {
            let mut all = Index::default();
            for start in (0..text.len()).step_by(segment).rev() {
                let from = start.saturating_sub(1);
                let end = (start + segment).min(text.len());
                let upto = (end + RECORD_MAX).min(text.len());
                let skip = if start == 0 { 0 } else { first_record(&text[from..upto]) };
                let mut part = Index::default();
                part.add(&text[from..upto], from as u64, skip, end - from);
                all.merge(part);
            }
            assert_eq!(all.hosts(), whole.hosts(), "segments of {segment}");
        }
    }

    #[test]
    fn model_counts_only_records_of_its_host() {
        let line = b"1,2,6,10.1.1.4,5000,198.18.0.1,443,1500,40,1460\n";
        let mut model = Model::default();
        assert!(!model.learn(3, line));
        assert_eq!(model, Model::default());
        assert!(model.learn(260, line));
        assert!(model.learn(260, b"1,2,6,198.18.0.1,5000,10.1.1.4,22,100,100\n"));
        assert!(!model.learn(260, b"torn,line\n"));
        assert_eq!((model.flows, model.bytes, model.ports[&443], model.ports[&22]), ([1, 1], 1600, 1, 1));
        assert_eq!((model.sizes[6], model.sizes[7], model.sizes[11]), (1, 1, 1));
        let mut network = model.clone();
        network.merge(&model);
        assert_eq!((network.bytes, network.flows, network.ports[&443]), (3200, [2, 2], 2));
    }
}
