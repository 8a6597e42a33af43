//! Columns of Lustre's tables of reads and writes: counts with their shares in percent.

use std::{fmt::Display, iter};

/// A count with its share of the column, and the share of all counts up to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// The count.
    pub count: u64,
    /// Its share, in percent, rounded down.
    pub percent: u64,
    /// The share of this count and those before it.
    pub cumulative: u64,
}

/// Returns the rows of two columns of counts, at least one.
pub fn shares(reads: &[u64], writes: &[u64]) -> impl Iterator<Item = (Share, Share)> {
    let rows = reads.len().max(writes.len()).max(1);
    column(reads, rows).zip(column(writes, rows))
}

/// Returns a line of `rpc_stats` or `brw_stats`: a label, reads and writes. `width`: minimum width
/// of the count of writes.
pub fn share_line(label: impl Display, (read, write): (Share, Share), width: usize) -> String {
    format!(
        "{label}:\t\t{:10} {:3} {:3}   | {:width$} {:3} {:3}\n",
        read.count, read.percent, read.cumulative, write.count, write.percent, write.cumulative,
    )
}

/// Returns a column of `rows` counts.
fn column(counts: &[u64], rows: usize) -> impl Iterator<Item = Share> {
    let total = counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count)).max(1);
    let percent = move |count: u64| (u128::from(count) * 100 / u128::from(total)) as u64;
    let counts = counts.iter().copied().chain(iter::repeat(0)).take(rows);
    counts.scan(0u64, move |sum, count| {
        *sum = sum.saturating_add(count);
        Some(Share { count, percent: percent(count), cumulative: percent(*sum) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(reads: &[u64], writes: &[u64]) -> Vec<[u64; 6]> {
        let row = |(r, w): (Share, Share)| [r.count, r.percent, r.cumulative, w.count, w.percent, w.cumulative];
        shares(reads, writes).map(row).collect()
    }

    #[test]
    fn shares_accumulate_and_the_shorter_column_is_filled() {
        assert_eq!(of(&[1, 0, 2], &[5]), [[1, 33, 33, 5, 100, 100], [0, 0, 33, 0, 0, 100], [2, 66, 100, 0, 0, 100]]);
        assert_eq!(of(&[], &[]), [[0; 6]]);
    }

    #[test]
    fn share_lines_have_the_given_width_for_the_count_of_writes() {
        let row = shares(&[2], &[3]).next().unwrap();
        assert_eq!(share_line("4K", row, 4), "4K:\t\t         2 100 100   |    3 100 100\n");
        assert_eq!(share_line(1, row, 10), "1:\t\t         2 100 100   |          3 100 100\n");
    }

    #[test]
    fn shares_of_any_counts_do_not_overflow() {
        assert_eq!(of(&[u64::MAX, u64::MAX], &[])[1][..3], [u64::MAX, 100, 100]);
    }
}
