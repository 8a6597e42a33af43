//! Texts of quotas in Lustre's form: `qmt.*.*.glb-usr`, `osd-*.*.quota_slave.acct_user` and similar
//! parameters. Targets write them; metrics are read from them.

use std::fmt::Write;

/// Most ids in one text. Further ones are left out, because an answer of a process is bounded.
pub const IDS_MAX: usize = 10_000;

/// Use of a target by an id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsageRow {
    /// Uid, gid or project id.
    pub id: u32,
    /// Files or objects.
    pub inodes: u64,
    /// Space in KiB.
    pub kbytes: u64,
}

/// Limits of an id: of space in KiB, or of files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitsRow {
    /// Uid, gid or project id; 0: the grace time.
    pub id: u32,
    /// Hard limit; 0: none.
    pub hard: u64,
    /// Soft limit; 0: none.
    pub soft: u64,
    /// The part that targets use, or may use without a question.
    pub granted: u64,
    /// Seconds since 1970 at which the soft limit acts as a hard one; 0: it is not exceeded. Of id
    /// 0: grace time in seconds.
    pub time: u64,
}

/// Returns the text of a target's use by ids. `short`: `usr`, `grp` or `prj`.
pub fn accounting_text(short: &str, rows: impl IntoIterator<Item = UsageRow>) -> String {
    let mut text = format!("{short}_accounting:\n");
    for UsageRow { id, inodes, kbytes } in rows.into_iter().take(IDS_MAX) {
        // Writing to a string cannot fail.
        let _ = write!(text, "- id:      {id}\n  usage:   {{ inodes: {inodes:>20}, kbytes: {kbytes:>20} }}\n");
    }
    text
}

/// Returns the text of limits of space (`dt`) or of files (`md`). `short`: `usr`, `grp` or `prj`.
pub fn limits_text(manager: &str, short: &str, rows: impl IntoIterator<Item = LimitsRow>) -> String {
    let mut text = format!("global_pool0_{manager}_{short}\n");
    for LimitsRow { id, hard, soft, granted, time } in rows.into_iter().take(IDS_MAX) {
        let _ = write!(
            text,
            "- id:      {id}\n  limits:  {{ hard: {hard:>20}, soft: {soft:>20}, granted: {granted:>20}, time: {time:>20} }}\n"
        );
    }
    text
}

/// Returns the ids of such a text, each with its value of a field. Ids without the field are left
/// out.
pub fn field_of_ids<'a>(text: &'a str, field: &'a str) -> impl Iterator<Item = (u32, u64)> {
    let mut id = None;
    text.lines().filter_map(move |line| {
        if let Some(number) = line.strip_prefix("- id:") {
            id = number.trim().parse().ok();
            return None;
        }
        let (_, fields) = line.split_once('{')?;
        let value = fields.trim_end_matches([' ', '}']).split(',').find_map(|part| {
            let (name, value) = part.split_once(':')?;
            (name.trim() == field).then(|| value.trim().parse().ok()).flatten()
        })?;
        Some((id?, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_quotas_are_those_of_lustre() {
        let rows = [(0, 2_416_855, 10_214_128), (23, 241_123_355, 102_141_328)];
        let rows = rows.map(|(id, inodes, kbytes)| UsageRow { id, inodes, kbytes });
        let text = "usr_accounting:
- id:      0
  usage:   { inodes:              2416855, kbytes:             10214128 }
- id:      23
  usage:   { inodes:            241123355, kbytes:            102141328 }
";
        assert_eq!(accounting_text("usr", rows), text);
        let row = LimitsRow { id: 1337, hard: 309_200, soft: 307_200, granted: 1_025_032, time: 1_687_277_628 };
        let text = "global_pool0_dt_prj
- id:      1337
  limits:  { hard:               309200, soft:               307200, granted:              1025032, time:           1687277628 }
";
        assert_eq!(limits_text("dt", "prj", [row]), text);
    }

    #[test]
    fn fields_of_ids_are_read_as_written() {
        let row = |id| LimitsRow { id, hard: 7, soft: u64::MAX, granted: 9, time: 0 };
        let text = limits_text("md", "usr", [row(0), row(u32::MAX)]);
        for (field, want) in [("hard", 7), ("soft", u64::MAX), ("time", 0)] {
            assert_eq!(field_of_ids(&text, field).collect::<Vec<_>>(), [(0, want), (u32::MAX, want)], "{field}");
        }
        assert_eq!(field_of_ids(&text, "inodes").count(), 0);
        for bad in
            ["", "- id: x\n  limits: { hard: 1 }\n", "  limits: { hard: 1 }\n", "- id: 1\n  limits: { hard: x }\n"]
        {
            assert_eq!(field_of_ids(bad, "hard").count(), 0, "{bad}");
        }
    }

    #[test]
    fn text_has_a_bounded_number_of_ids() {
        let rows = (0..20_000).map(|id| UsageRow { id, inodes: 0, kbytes: 0 });
        assert_eq!(field_of_ids(&accounting_text("grp", rows), "kbytes").count(), IDS_MAX);
    }
}
