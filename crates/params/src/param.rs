//! One parameter: a typed value with its range, read and set through its owner.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use sheen_wire::Errno;

type Get<T> = Box<dyn Fn() -> T + Send + Sync>;
type SetFn<T> = Box<dyn Fn(T) -> Result<(), Errno> + Send + Sync>;
type SetText = Box<dyn Fn(&str) -> Result<(), Errno> + Send + Sync>;

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
    kind: Kind,
    /// Text written to it is a command, executed once. Permanent settings do not apply to it.
    is_order: bool,
}

/// Numbers are carried as i128, which holds every u64 and i64.
enum Kind {
    Number { range: RangeInclusive<i128>, unit: u64, suffix: &'static str, get: Get<i128>, set: Option<SetFn<i128>> },
    Text { get: Get<String>, set: Option<SetText> },
}

impl Param {
    /// A number that can be set within `range`. A suffix `K`, `M`, `G` or `T` multiplies by a power
    /// of 1024. After [`Param::unit`] a value with a suffix is in bytes.
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
        Param::u64(0..=1, move || u64::from(get()), move |v| set(v != 0))
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
        let mut param = Param::u64(0..=100, get, set);
        if let Kind::Number { suffix, .. } = &mut param.kind {
            *suffix = "%";
        }
        param
    }

    /// Text that can only be read. If it has several lines, such as statistics, each ends with a
    /// newline.
    pub fn text(get: impl Fn() -> String + Send + Sync + 'static) -> Param {
        Param::of(Kind::Text { get: Box::new(get), set: None })
    }

    /// Text that can be set. The owner checks the value.
    pub fn text_rw(
        get: impl Fn() -> String + Send + Sync + 'static,
        set: impl Fn(&str) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param::of(Kind::Text { get: Box::new(get), set: Some(Box::new(set)) })
    }

    /// As [`Param::text_rw`], for text that is a command: writing executes it. Permanent settings
    /// are never written to it.
    pub fn order(
        get: impl Fn() -> String + Send + Sync + 'static,
        set: impl Fn(&str) -> Result<(), Errno> + Send + Sync + 'static,
    ) -> Param {
        Param { is_order: true, ..Param::text_rw(get, set) }
    }

    /// Sets the size in bytes of one unit of this number: with 4096, `4M` sets 1024. 0 counts as 1.
    pub fn unit(mut self, bytes: u64) -> Param {
        if let Kind::Number { unit, .. } = &mut self.kind {
            *unit = bytes.max(1);
        }
        self
    }

    fn number(
        range: RangeInclusive<i128>,
        get: impl Fn() -> i128 + Send + Sync + 'static,
        set: Option<SetFn<i128>>,
    ) -> Param {
        Param::of(Kind::Number { range, unit: 1, suffix: "", get: Box::new(get), set })
    }

    fn of(kind: Kind) -> Param {
        Param { kind, is_order: false }
    }

    /// Returns whether [`Param::order`] made it.
    pub fn is_order(&self) -> bool {
        self.is_order
    }

    /// Returns whether it can be set.
    pub fn writable(&self) -> bool {
        match &self.kind {
            Kind::Number { set, .. } => set.is_some(),
            Kind::Text { set, .. } => set.is_some(),
        }
    }

    /// Returns the value as `lctl get_param` prints it.
    pub fn get(&self) -> String {
        match &self.kind {
            Kind::Number { get, suffix, .. } => format!("{}{suffix}", get()),
            Kind::Text { get, .. } => get(),
        }
    }

    /// Sets the value from text.
    ///
    /// # Errors
    /// EACCES: read only. EINVAL: not a value of this kind. ERANGE: outside the range. Otherwise
    /// the owner's error.
    pub fn set(&self, value: &str) -> Result<(), ParamError> {
        match &self.kind {
            Kind::Number { set: None, .. } | Kind::Text { set: None, .. } => Err(Errno::EACCES.into()),
            Kind::Text { set: Some(set), .. } => Ok(set(value)?),
            Kind::Number { range, unit, suffix, set: Some(set), .. } => {
                let refuse =
                    |errno| ParamError { errno, accepts: Some(format!("{} to {}", range.start(), range.end())) };
                let value = parse(value, *unit, suffix).map_err(refuse)?;
                if !range.contains(&value) {
                    return Err(refuse(Errno::ERANGE));
                }
                Ok(set(value)?)
            }
        }
    }
}

/// Parses `123`, `-1`, `0x10`, `64K`, `4MB`, `1GiB`, or a number with the parameter's own suffix.
fn parse(text: &str, unit: u64, suffix: &str) -> Result<i128, Errno> {
    let text = text.trim();
    let text = text.strip_suffix(suffix).unwrap_or(text);
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
        Some(shift) => number.checked_mul(1 << shift).ok_or(Errno::ERANGE)? / i128::from(unit),
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
        (Param::atomic(1..=4096, cell.clone()).unit(4096), cell)
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
}
