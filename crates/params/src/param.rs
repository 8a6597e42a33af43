//! One parameter: a typed value with its range, read and set through its owner.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use sheen_wire::{Errno, JobId};

use crate::job_stats::{self, JobSnapshot};
use crate::snapshot::Snapshot;
use crate::value::{Unit, Value};

/// The values of a switch as numbers.
const FLAG_RANGE: RangeInclusive<i128> = 0..=1;

type Get<T> = Box<dyn Fn() -> T + Send + Sync>;
type SetFn<T> = Box<dyn Fn(T) -> Result<(), Errno> + Send + Sync>;
type SetText = Box<dyn Fn(&str) -> Result<(), Errno> + Send + Sync>;
type Clear = Box<dyn Fn() -> Result<(), Errno> + Send + Sync>;
type Remove = Box<dyn Fn(Option<JobId>) -> Result<(), Errno> + Send + Sync>;

/// Error of a value that could not be read or set: the errno that `lctl` exits with, and the
/// accepted values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{errno}")]
pub struct ParamError {
    /// ENOENT: no such parameter. EACCES: read only. EINVAL: not a value of this kind. ERANGE:
    /// outside the range. Otherwise the error of the parameter's owner.
    pub errno: Errno,
    /// The accepted values, such as `1 to 256`, if they are known.
    pub accepts: Option<String>,
}

impl From<Errno> for ParamError {
    fn from(errno: Errno) -> ParamError {
        ParamError { errno, accepts: None }
    }
}

/// A parameter, for [`crate::Params::register`].
pub struct Param {
    source: Source,
    unit: Option<Unit>,
    /// Text written to it is a command, executed once. Permanent settings do not apply to it.
    is_order: bool,
    /// The values that this text accepts, if they are few.
    accepts: Option<&'static str>,
}

/// Reads and sets the owner's value. Numbers are carried as i128, which holds every u64 and i64.
enum Source {
    Number { range: RangeInclusive<i128>, get: Get<i128>, set: Option<SetFn<i128>> },
    Flag { get: Get<bool>, set: SetFn<bool> },
    Text { get: Get<String>, set: Option<SetText> },
    Stats { value: fn(Snapshot) -> Value, get: Get<Snapshot>, text: fn(&Snapshot) -> String, clear: Clear },
    Jobs { get: Get<Vec<JobSnapshot>>, remove: Remove },
}

impl Param {
    /// A number that can be set within `range`. A suffix `K`, `M`, `G` or `T` multiplies by a power
    /// of 1024. After [`Param::unit`] with a size a value with a suffix is in bytes.
    pub fn u64(
        range: RangeInclusive<u64>,
        get: impl Fn() -> u64 + Send + Sync + 'static,
        set: impl Fn(u64) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param::number(
            i128::from(*range.start())..=i128::from(*range.end()),
            move || i128::from(get()),
            Some(Box::new(move |v| set(u64::try_from(v).map_err(|_| Errno::ERANGE)?))),
        )
    }

    /// A number that may be negative, such as a stripe count of -1.
    pub fn i64(
        range: RangeInclusive<i64>,
        get: impl Fn() -> i64 + Send + Sync + 'static,
        set: impl Fn(i64) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param::number(
            i128::from(*range.start())..=i128::from(*range.end()),
            move || i128::from(get()),
            Some(Box::new(move |v| set(i64::try_from(v).map_err(|_| Errno::ERANGE)?))),
        )
    }

    /// A number that can only be read.
    pub fn u64_ro(get: impl Fn() -> u64 + Send + Sync + 'static) -> Param {
        Param::number(0..=i128::from(u64::MAX), move || i128::from(get()), None)
    }

    /// A number stored in an atomic.
    pub fn atomic(range: RangeInclusive<u64>, cell: Arc<AtomicU64>) -> Param {
        let read = cell.clone();
        Param::u64(
            range,
            move || read.load(Relaxed),
            move |v| {
                cell.store(v, Relaxed);
                Ok(())
            },
        )
    }

    /// A switch, shown as 0 or 1.
    pub fn bool(
        get: impl Fn() -> bool + Send + Sync + 'static,
        set: impl Fn(bool) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param::of(Source::Flag { get: Box::new(get), set: Box::new(set) })
    }

    /// A switch stored in an atomic.
    pub fn atomic_bool(cell: Arc<AtomicBool>) -> Param {
        let read = cell.clone();
        Param::bool(
            move || read.load(Relaxed),
            move |v| {
                cell.store(v, Relaxed);
                Ok(())
            },
        )
    }

    /// A percentage: shown as `17%`, set as `17` or `17%`.
    pub fn percent(
        get: impl Fn() -> u64 + Send + Sync + 'static,
        set: impl Fn(u64) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param::u64(0..=100, get, set).unit(Unit::Percent)
    }

    /// Text that can only be read. If it has several lines, each ends with a newline.
    pub fn text(get: impl Fn() -> String + Send + Sync + 'static) -> Param {
        Param::of(Source::Text { get: Box::new(get), set: None })
    }

    /// Text that can be set. The owner checks the value.
    pub fn text_rw(
        get: impl Fn() -> String + Send + Sync + 'static,
        set: impl Fn(&str) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param::of(Source::Text { get: Box::new(get), set: Some(Box::new(set)) })
    }

    /// As [`Param::text_rw`], for text that is a command: writing executes it. Permanent settings
    /// are never written to it.
    pub fn order(
        get: impl Fn() -> String + Send + Sync + 'static,
        set: impl Fn(&str) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param { is_order: true, ..Param::text_rw(get, set) }
    }

    /// Statistics, of which `text` returns the text. As in Lustre, any write clears them.
    pub fn counters(
        get: impl Fn() -> Snapshot + Send + Sync + 'static,
        text: fn(&Snapshot) -> String,
        clear: impl Fn() -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param::of(Source::Stats { value: Value::Counters, get: Box::new(get), text, clear: Box::new(clear) })
    }

    /// As [`Param::counters`], for statistics of which the histograms are the point.
    pub fn histogram(
        get: impl Fn() -> Snapshot + Send + Sync + 'static,
        text: fn(&Snapshot) -> String,
        clear: impl Fn() -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param::of(Source::Stats { value: Value::Histogram, get: Box::new(get), text, clear: Box::new(clear) })
    }

    /// Statistics by job. As in Lustre, `clear` removes all jobs, and any other value the job of
    /// that name. `remove` gets that job, or `None` for all.
    pub fn jobs(
        get: impl Fn() -> Vec<JobSnapshot> + Send + Sync + 'static,
        remove: impl Fn(Option<JobId>) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param::of(Source::Jobs { get: Box::new(get), remove: Box::new(remove) })
    }

    /// Sets the unit of this number. With [`Unit::Pages`], `4M` sets 1024.
    pub fn unit(mut self, unit: Unit) -> Param {
        self.unit = Some(unit);
        self
    }

    /// Names the values that this text accepts, for the error of its setter.
    pub fn accepts(mut self, values: &'static str) -> Param {
        self.accepts = Some(values);
        self
    }

    fn number(
        range: RangeInclusive<i128>,
        get: impl Fn() -> i128 + Send + Sync + 'static,
        set: Option<SetFn<i128>>,
    ) -> Param {
        Param::of(Source::Number { range, get: Box::new(get), set })
    }

    fn of(source: Source) -> Param {
        Param { source, unit: None, is_order: false, accepts: None }
    }

    /// Returns whether [`Param::order`] made it.
    pub fn is_order(&self) -> bool {
        self.is_order
    }

    /// Returns whether it can be set.
    pub fn writable(&self) -> bool {
        match &self.source {
            Source::Number { set, .. } => set.is_some(),
            Source::Text { set, .. } => set.is_some(),
            Source::Flag { .. } | Source::Stats { .. } | Source::Jobs { .. } => true,
        }
    }

    /// Returns the name of its unit, if it has one.
    pub fn unit_name(&self) -> Option<&'static str> {
        self.unit.map(Unit::name)
    }

    /// Returns the value.
    pub fn value(&self) -> Value {
        match &self.source {
            Source::Number { get, .. } => Value::Number(get()),
            Source::Flag { get, .. } => Value::Flag(get()),
            Source::Text { get, .. } => Value::Text(get()),
            Source::Stats { value, get, .. } => value(get()),
            Source::Jobs { get, .. } => Value::Jobs(get()),
        }
    }

    /// Returns the value as `lctl get_param` prints it.
    pub fn get(&self) -> String {
        match &self.source {
            Source::Number { get, .. } => format!("{}{}", get(), self.unit.map_or("", Unit::suffix)),
            Source::Flag { get, .. } => u8::from(get()).to_string(),
            Source::Text { get, .. } => get(),
            Source::Stats { get, text, .. } => text(&get()),
            Source::Jobs { get, .. } => job_stats::text(&get()),
        }
    }

    /// Sets the value from text.
    ///
    /// # Errors
    /// EACCES: read only. EINVAL: not a value of this kind. ERANGE: outside the range. Otherwise
    /// the owner's error.
    pub fn set(&self, value: &str) -> Result<(), ParamError> {
        match &self.source {
            Source::Number { set: None, .. } | Source::Text { set: None, .. } => Err(Errno::EACCES.into()),
            Source::Text { set: Some(set), .. } => {
                set(value).map_err(|errno| ParamError { errno, accepts: self.accepts.map(str::to_owned) })
            }
            Source::Number { range, set: Some(set), .. } => Ok(set(number_in(value, range, self.unit)?)?),
            Source::Flag { set, .. } => Ok(set(number_in(value, &FLAG_RANGE, None)? != 0)?),
            Source::Stats { clear, .. } => Ok(clear()?),
            Source::Jobs { remove, .. } => Ok(remove(job_stats::removed_by(value))?),
        }
    }
}

/// Parses a number within `range`.
fn number_in(text: &str, range: &RangeInclusive<i128>, unit: Option<Unit>) -> Result<i128, ParamError> {
    let refuse = |errno| ParamError { errno, accepts: Some(format!("{} to {}", range.start(), range.end())) };
    let number = parse(text, unit).map_err(refuse)?;
    if range.contains(&number) { Ok(number) } else { Err(refuse(Errno::ERANGE)) }
}

/// Parses `123`, `-1`, `0x10`, `64K`, `4MB`, `1GiB`, or a number with the parameter's own suffix.
fn parse(text: &str, unit: Option<Unit>) -> Result<i128, Errno> {
    let text = text.trim();
    let text = text.strip_suffix(unit.map_or("", Unit::suffix)).unwrap_or(text);
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (radix, digits) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => (16, hex),
        None => (10, digits),
    };
    let end = digits.find(|c: char| !c.is_digit(radix)).unwrap_or(digits.len());
    let (digits, tail) = digits.split_at(end);
    if digits.is_empty() {
        return Err(Errno::EINVAL);
    }
    // All characters are digits, so this fails only if the number is too large.
    let number = i128::from_str_radix(digits, radix).map_err(|_| Errno::ERANGE)?;
    let number = match shift(tail) {
        None => return Err(Errno::EINVAL),
        Some(0) => number,
        Some(shift) => number.checked_mul(1 << shift).ok_or(Errno::ERANGE)? / unit.map_or(1, Unit::bytes),
    };
    Ok(if negative { -number } else { number })
}

/// Returns the power of two for which a size suffix stands.
fn shift(suffix: &str) -> Option<u32> {
    let mut chars = suffix.chars();
    let shift = match chars.next() {
        None => return Some(0),
        Some('k' | 'K') => 10,
        Some('m' | 'M') => 20,
        Some('g' | 'G') => 30,
        Some('t' | 'T') => 40,
        Some(_) => return None,
    };
    matches!(chars.as_str(), "" | "B" | "b" | "iB" | "ib").then_some(shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages() -> (Param, Arc<AtomicU64>) {
        let cell = Arc::new(AtomicU64::new(256));
        (Param::atomic(1..=4096, cell.clone()).unit(Unit::Pages), cell)
    }

    #[test]
    fn param_set_divides_sizes_by_the_unit() {
        let (param, cell) = pages();
        for (text, pages) in [("1024", 1024), ("4M", 1024), ("64K", 16), ("4MiB", 1024), (" 7\n", 7), ("0x10", 16)] {
            param.set(text).unwrap();
            assert_eq!(cell.load(Relaxed), pages, "{text}");
        }
        assert_eq!(param.get(), "16");
    }

    #[test]
    fn param_set_refuses_invalid_values_with_lustre_errnos() {
        let (param, cell) = pages();
        for (text, errno) in [
            ("0", Errno::ERANGE),
            ("100000", Errno::ERANGE),
            ("-1", Errno::ERANGE),
            ("1G", Errno::ERANGE),
            ("99999999999999999999999999999999999999999999", Errno::ERANGE),
            ("170141183460469231731687303715884105727T", Errno::ERANGE),
            ("abc", Errno::EINVAL),
            ("", Errno::EINVAL),
            ("4X", Errno::EINVAL),
            ("4MM", Errno::EINVAL),
            ("--4", Errno::EINVAL),
        ] {
            let error = param.set(text).unwrap_err();
            assert_eq!(error.errno, errno, "{text}");
            assert_eq!(error.accepts.as_deref(), Some("1 to 4096"));
        }
        assert_eq!(cell.load(Relaxed), 256);
        assert_eq!(Param::u64_ro(|| 5).set("6").unwrap_err().errno, Errno::EACCES);
        assert_eq!(Param::text(String::new).set("6").unwrap_err().errno, Errno::EACCES);
    }

    #[test]
    fn param_of_few_texts_names_them_if_it_refuses_a_value() {
        let set = |value: &str| if value == "crc32c" { Ok(()) } else { Err(Errno::EINVAL) };
        let param = Param::text_rw(|| "[crc32c] ".into(), set).accepts("crc32c");
        param.set("crc32c").unwrap();
        let refused = ParamError { errno: Errno::EINVAL, accepts: Some("crc32c".into()) };
        assert_eq!(param.set("adler"), Err(refused));
        assert_eq!(Param::text_rw(String::new, |_| Err(Errno::EIO)).set("").unwrap_err().accepts, None);
    }

    #[test]
    fn param_accepts_switches_percentages_and_negative_numbers() {
        let cell = Arc::new(AtomicBool::new(true));
        let param = Param::atomic_bool(cell.clone());
        assert_eq!(param.get(), "1");
        param.set("0").unwrap();
        assert!(!cell.load(Relaxed));
        assert_eq!(param.set("2").unwrap_err().errno, Errno::ERANGE);

        let share = Param::percent(|| 17, |v| if v == 20 { Ok(()) } else { Err(Errno::EBUSY) });
        assert_eq!(share.get(), "17%");
        share.set("20%").unwrap();
        share.set("20").unwrap();
        assert_eq!(share.set("21").unwrap_err().errno, Errno::EBUSY);

        let count = Param::i64(-1..=2000, || -1, |v| if v == -1 { Ok(()) } else { Err(Errno::EIO) });
        assert_eq!(count.get(), "-1");
        count.set("-1").unwrap();
        assert_eq!(count.set("-2").unwrap_err().errno, Errno::ERANGE);
    }

    #[test]
    fn param_value_is_typed_and_its_text_renders_it() {
        let (param, _) = pages();
        assert_eq!((param.value(), param.get(), param.unit_name()), (Value::Number(256), "256".into(), Some("pages")));
        let share = Param::percent(|| 17, |_| Ok(()));
        assert_eq!((share.value(), share.get(), share.unit_name()), (Value::Number(17), "17%".into(), Some("%")));
        let flag = Param::bool(|| true, |_| Ok(()));
        assert_eq!((flag.value(), flag.get(), flag.unit_name()), (Value::Flag(true), "1".into(), None));
        let name = Param::text(|| "sheen".into());
        assert_eq!((name.value(), name.get()), (Value::Text("sheen".into()), "sheen".into()));
    }

    #[test]
    fn param_of_statistics_is_cleared_by_any_write() {
        let count = Arc::new(AtomicU64::new(3));
        let (read, clear) = (count.clone(), count.clone());
        let hits = move || Snapshot::of_counts([("hits", read.load(Relaxed))]);
        let text = |snapshot: &Snapshot| snapshot.counts_text(|name, n| format!("{name}: {n}\n"));
        let param = Param::counters(hits, text, move || {
            clear.store(0, Relaxed);
            Ok(())
        });
        assert_eq!((param.value().kind(), param.get()), ("counters", "hits: 3\n".into()));
        assert!(param.writable());
        param.set("clear").unwrap();
        assert_eq!(param.get(), "hits: 0\n");
    }
}
