//! Checks the record of a run.

use std::collections::BTreeSet;

use sheen_wire::Fid;

use super::{
    fcntl_locks,
    names::{self, NameOp, NameReply, NameRequest},
    record::{LOG, Record, Synced, Trouble},
    search::Verdict,
    span::Span,
    swaps,
};

impl Trouble {
    /// Returns whether an operation ran while the client may have had outdated data.
    fn covers(&self, client: usize, span: Span) -> bool {
        self.client == client && self.from < span.to && span.from < self.until
    }
}

/// Result of checking a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Judged {
    /// A search for a legal order (of names or of swaps) exceeded its bounds.
    pub undecided: bool,
}

/// Checks whether a legal order explains all replies.
///
/// # Errors
/// A description of the contradiction.
pub fn judge(record: &mut Record) -> Result<Judged, String> {
    let troubles = std::mem::take(&mut record.troubles);
    let troubled = |client, span| troubles.iter().any(|t| t.covers(client, span));
    let lost = |file: usize, client: usize, span: Span| {
        let after = |t: &&Trouble| t.client == client && span.from < t.until;
        let trouble = troubles.iter().filter(after).map(|t| t.until).max()?;
        (!is_durable(&record.synced, file, client, span)).then_some(trouble)
    };
    for (number, file) in record.files.iter_mut().enumerate() {
        file.seen.retain(|s| !troubled(s.client, s.span));
        for change in &mut file.changes {
            change.lost = lost(number, change.client, change.span);
        }
    }
    let mut undecided = false;
    match &record.files[..] {
        [one, other] if !record.swaps.is_empty() => {
            let known = swaps::check(&[one.clone(), other.clone()], &record.swaps);
            undecided = !known.map_err(|what| format!("files that were swapped, {what}\n{troubles:#?}"))?;
        }
        files => files.iter().enumerate().try_for_each(|(number, file)| {
            file.check().map_err(|what| format!("file {number}, {what}\n{troubles:#?}"))
        })?,
    }
    for append in &mut record.log.appends {
        append.lost = lost(LOG, append.client, append.span).is_some();
    }
    record.log.reads.retain(|r| !troubled(r.client, r.span));
    record.log.check().map_err(|what| format!("the log: {what}"))?;
    for turn in &mut record.turns {
        turn.lost = troubled(turn.client, turn.span);
    }
    fcntl_locks::check(&record.turns)?;
    let names = check_names(record, troubled)?;
    Ok(Judged { undecided: undecided || names.undecided })
}

fn check_names(record: &mut Record, troubled: impl Fn(usize, Span) -> bool) -> Result<Judged, String> {
    for asked in &mut record.names {
        // A troubled client's reply says nothing about what other clients saw. Only a create tells
        // which file it made.
        if troubled(asked.client, asked.span)
            && !matches!((asked.ask, asked.answer), (NameRequest::Create(..), Some(Ok(_))))
        {
            asked.answer = None;
            asked.span = asked.span.unanswered();
        }
    }
    for (client, seq) in record.seqs.iter().enumerate() {
        if !assign_unknown_creates(&mut record.names, client, *seq) {
            return Ok(Judged { undecided: true });
        }
    }
    match names::check(&record.names) {
        Verdict::Legal => Ok(Judged::default()),
        Verdict::Illegal(what) => Err(format!("names: {what}")),
        Verdict::Unknown => Ok(Judged { undecided: true }),
    }
}

/// Finds the create of a file whose create had an unknown outcome. Such a file was seen, but no
/// create of its client is known to have made it. The assignment is unique only if there is one
/// such file and one such create. Returns `false` if there are more.
fn assign_unknown_creates(names: &mut [NameOp], client: usize, seq: u64) -> bool {
    let creates = |a: &NameOp| a.client == client && matches!(a.ask, NameRequest::Create(..));
    let file = |a: &NameOp| match a.answer {
        Some(Ok(NameReply::File(fid))) if fid.seq == seq => Some(fid),
        _ => None,
    };
    let made: BTreeSet<Fid> = names.iter().filter(|a| creates(a)).filter_map(file).collect();
    let strangers: BTreeSet<Fid> = names.iter().filter_map(file).filter(|fid| !made.contains(fid)).collect();
    let mut unknown = names.iter_mut().filter(|a| a.answer.is_none() && creates(a));
    match (strangers.first(), unknown.next()) {
        (Some(stranger), Some(create)) if strangers.len() == 1 && unknown.next().is_none() => {
            create.answer = Some(Ok(NameReply::File(*stranger)));
            true
        }
        (Some(_), Some(_)) => false,
        // There is no such file, or no create could have made it. The search reports the latter.
        _ => true,
    }
}

/// Returns whether a write is guaranteed to be durable: the first sync after it, by its client,
/// succeeded. (A loss is reported once.) A successful write with O_SYNC guarantees only its own
/// bytes.
fn is_durable(synced: &[Synced], file: usize, client: usize, span: Span) -> bool {
    let of_it = synced.iter().filter(|s| s.file == file && s.client == client);
    let after = of_it.filter(|s| s.span == span || span.before(&s.span) && !(s.done && s.write));
    after.min_by_key(|s| s.span.from).is_some_and(|s| s.done)
}
