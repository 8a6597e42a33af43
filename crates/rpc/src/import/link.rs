//! The state of an import's connection, and the requests that wait for replies.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use sheen_lnet::{Frame, Nid, Sender};
use sheen_rt::Instant;
use sheen_wire::{
    OpId, Replays, Time,
    auth::Role,
    frame::{FEATURE_OP_ID, FLAG_RESENT},
};
use tokio::sync::oneshot;

use super::{
    budget::RetainedBudget,
    error::{ConnectError, Miss},
    request_error::Cause,
    retained::Retained,
};

/// Broken connections after which a request fails, once its time is up.
const RESENDS_MAX: u32 = 16;
/// Maximum number of incarnations of the server that a client remembers. A report about an earlier
/// one could close a connection, and the client would reconnect.
const MET_MAX: usize = 16;
/// Number of changes of the state that are remembered, as in Lustre.
const HISTORY_MAX: usize = 16;

/// The state of an import; printed as Lustre does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ImportState {
    /// Not used yet, or the target was never reached.
    #[default]
    New,
    /// Connecting to the target.
    Connecting,
    /// Connected to a server that has forgotten the client: the restart hook runs.
    Recover,
    /// Requests go through.
    Full,
    /// The connection was lost.
    Disconn,
    /// Closed by the client.
    Closed,
}

impl fmt::Display for ImportState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImportState::New => "NEW",
            ImportState::Connecting => "CONNECTING",
            ImportState::Recover => "RECOVER",
            ImportState::Full => "FULL",
            ImportState::Disconn => "DISCONN",
            ImportState::Closed => "CLOSED",
        })
    }
}

/// State that calls and the connector share.
#[derive(Default)]
pub(super) struct Link {
    pub(super) state: ImportState,
    /// The last changes of the state with their times of day, the earliest first.
    history: VecDeque<(Time, ImportState)>,
    pub(super) nid: Option<Nid>,
    /// Address of the last connection; tried first. `None` after the addresses changed.
    pub(super) nid_last: Option<Nid>,
    /// Incarnation of the server that the MGS reported last; 0: unknown.
    pub(super) announced: u64,
    /// Incarnations of the server that welcomed this client, in the order of their first welcomes.
    met: VecDeque<u64>,
    /// The tcp connection; present in state Full, unless the way is `lo`.
    pub(super) connection: Option<Sender>,
    /// The tcp connection from the welcome on, and while the restart hook runs, until the state is
    /// Full.
    pub(super) recovering: Option<RecoveringConnection>,
    /// Whether the connector runs.
    pub(super) connecting: bool,
    /// Whether the pinger runs.
    pub(super) pinging: bool,
    /// Unanswered requests, by xid.
    pub(super) pending: BTreeMap<u64, Pending>,
    /// Answered changes that may not be committed, if the protocol replays them.
    pub(super) retained: Retained,
    /// Authority of this process by the last connection.
    pub(super) role: Option<Role>,
    xid_last: u64,
    /// Guarded requests that are being prepared.
    preparations: BTreeSet<u64>,
    preparation_last: u64,
    pub(super) features: u64,
    /// Incarnation of the server at the last connection.
    pub(super) incarnation: Option<u64>,
    /// Number of evictions of this client by the server.
    evictions: u64,
    /// The server evicted the client once more, and the restart hook has not succeeded since.
    eviction_pending: bool,
    /// The last round over all addresses since the last connection; it failed.
    pub(super) miss: Option<Miss>,
    /// Until when requests may wait for the server's recovery, as its last welcome said.
    pub(super) recovery_until: Option<Instant>,
    /// Number of attempts to connect that were abandoned, and the reason of the last one.
    pub(super) failures: u64,
    pub(super) failure: Option<ConnectError>,
}

/// A tcp connection that carries only requests of the restart hook.
pub(super) struct RecoveringConnection {
    pub(super) sender: Sender,
    pub(super) nid: Nid,
    /// Incarnation of the server at its end.
    pub(super) incarnation: u64,
}

/// Why a server has forgotten the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Forgotten {
    /// It was restarted.
    pub(super) restarted: bool,
    /// It had evicted the client.
    pub(super) evicted: bool,
}

/// A reply, and the incarnation of the server that sent it.
pub(super) struct Arrived {
    pub(super) frame: Frame,
    pub(super) incarnation: u64,
}

/// Encodes a request that says how long ago something happened, without its job, as of this time.
pub(super) type Later = Box<dyn Fn(Instant) -> Option<Vec<u8>> + Send>;

pub(super) struct Pending {
    pub(super) frame: Frame,
    /// For a resend. `None`: the same body.
    pub(super) later: Option<Later>,
    pub(super) reply: oneshot::Sender<Result<Arrived, Cause>>,
    since: Instant,
    resends: u32,
    /// Valid only while the server knows the client's locks.
    guarded: bool,
    /// Sent by the restart hook: fails when the connection ends.
    recovering: bool,
}

impl Link {
    /// A link that was never used. `budget`: the memory for retained changes.
    pub(super) fn new(budget: Arc<RetainedBudget>) -> Link {
        Link { retained: Retained::new(budget), ..Link::default() }
    }

    /// Changes the state. `now`: the time of day, for the history.
    pub(super) fn enter_state(&mut self, state: ImportState, now: Time) {
        self.state = state;
        if self.history.len() == HISTORY_MAX {
            self.history.pop_front();
        }
        self.history.push_back((now, state));
    }

    /// Returns the last changes of the state with their times of day, the earliest first.
    pub(super) fn history(&self) -> Vec<(Time, ImportState)> {
        self.history.iter().copied().collect()
    }

    /// Enters a request: assigns its xid, and puts into its header up to which xid all replies
    /// arrived. Removes an operation id that the server would not understand.
    pub(super) fn enter(
        &mut self,
        frame: &mut Frame,
        now: Instant,
        guarded: bool,
        recovering: bool,
    ) -> (u64, oneshot::Receiver<Result<Arrived, Cause>>) {
        self.xid_last += 1;
        let xid = self.xid_last;
        frame.header.xid = xid;
        frame.header.last_committed = self.pending.first_key_value().map_or(xid, |(lowest, _)| *lowest) - 1;
        // During a recovery, `features` are those of the connection before.
        if recovering || !self.takes_op_ids() {
            frame.header.op_id = OpId::NONE;
        }
        let (reply, receiver) = oneshot::channel();
        let pending = Pending { frame: frame.clone(), later: None, reply, since: now, resends: 0, guarded, recovering };
        self.pending.insert(xid, pending);
        (xid, receiver)
    }

    /// Returns the frames to resend over a new connection, in xid order. A request fails instead if
    /// it was resent [`RESENDS_MAX`] times and waits for longer than `limit`. It may be the reason
    /// why the connections broke.
    pub(super) fn unanswered(&mut self, now: Instant, limit: Duration) -> Vec<Frame> {
        self.fail(&Cause::ResentTooOften { times: RESENDS_MAX }, |p| {
            p.resends >= RESENDS_MAX && now.since(p.since) >= limit
        });
        let takes_op_ids = self.takes_op_ids();
        let resend = |p: &mut Pending| {
            p.resends = p.resends.saturating_add(1);
            p.encode_again(now);
            let mut frame = p.frame.clone();
            frame.header.flags |= FLAG_RESENT;
            if !takes_op_ids {
                frame.header.op_id = OpId::NONE;
            }
            frame
        };
        self.pending.values_mut().filter(|p| !p.recovering).map(resend).collect()
    }

    /// Whether answered changes are retained, for a service that may lose them like this.
    pub(super) fn retains(&self, replays: Replays) -> bool {
        match replays {
            Replays::Never => false,
            Replays::OfProcess => true,
            Replays::OfHost => !matches!(self.nid, Some(Nid::Tcp(addr)) if addr.ip().is_loopback()),
        }
    }

    /// Records a welcome with this incarnation from a server that knows the client or not. `None`:
    /// there is nothing to recover. Otherwise returns what has happened since the last completed
    /// recovery ([`Link::recovered`]). It may be both, because the server knows the client at the
    /// next welcome, even if this recovery fails.
    pub(super) fn welcomed(&mut self, incarnation: u64, known: bool) -> Option<Forgotten> {
        self.meet(incarnation);
        let before = self.incarnation?;
        self.eviction_pending |= before == incarnation && !known;
        let forgotten = Forgotten { restarted: before != incarnation, evicted: self.eviction_pending };
        (forgotten.restarted || forgotten.evicted).then_some(forgotten)
    }

    /// Records that this incarnation of the server welcomed the client.
    fn meet(&mut self, incarnation: u64) {
        if self.met.contains(&incarnation) {
            return;
        }
        if self.met.len() == MET_MAX {
            self.met.pop_front();
        }
        self.met.push_back(incarnation);
    }

    /// Returns whether the last report of the MGS is about a later incarnation of the server than
    /// `present`. Incarnations have no order of their own. So a report counts as later, unless the
    /// reported server welcomed this client for the first time before the present one did.
    pub(super) fn is_superseded(&self, present: u64) -> bool {
        let first_met = |incarnation| self.met.iter().position(|met| *met == incarnation);
        let reported = self.announced;
        reported != 0
            && reported != present
            && first_met(reported).is_none_or(|at| first_met(present).is_none_or(|present| at > present))
    }

    /// Records that a restarted server counts the client as evicted.
    pub(super) fn count_as_evicted(&mut self) {
        self.eviction_pending = true;
    }

    /// Returns whether guarded requests up to this xid are unanswered, or preparations up to this
    /// one have not ended.
    pub(super) fn has_guarded(&self, xid: u64, preparation: u64) -> bool {
        let unanswered = self.pending.range(..=xid).any(|(_, pending)| pending.guarded);
        unanswered || self.preparations.first().is_some_and(|first| *first <= preparation)
    }

    /// Records that a guarded request is being prepared. Returns its number.
    pub(super) fn begin_preparation(&mut self) -> u64 {
        self.preparation_last += 1;
        self.preparations.insert(self.preparation_last);
        self.preparation_last
    }

    /// Records the end of a preparation.
    pub(super) fn end_preparation(&mut self, id: u64) {
        self.preparations.remove(&id);
    }

    /// Returns the number of the last preparation.
    pub(super) fn preparation_last(&self) -> u64 {
        self.preparation_last
    }

    /// Returns the last xid that was assigned.
    pub(super) fn xid_last(&self) -> u64 {
        self.xid_last
    }

    /// Records a completed recovery. After an eviction, fails the requests that were valid only
    /// under locks of before.
    pub(super) fn recovered(&mut self, incarnation: u64) {
        self.meet(incarnation);
        self.incarnation = Some(incarnation);
        if std::mem::take(&mut self.eviction_pending) {
            self.evictions += 1;
            self.fail(&Cause::Evicted, |p| p.guarded);
        }
    }

    /// Records a connection over which requests go from now on. `recovery_secs`: as in the welcome.
    pub(super) fn connected(&mut self, recovery_secs: Option<u32>, now: Instant) {
        self.miss = None;
        self.recovery_until = recovery_secs.map(|secs| now + Duration::from_secs(secs.into()));
    }

    /// Returns the longest time for which requests still wait for the server's recovery. `None`: it
    /// is not in recovery, or there is no connection.
    pub(super) fn recovery_left(&self, now: Instant) -> Option<Duration> {
        let left = self.recovery_until?.since(now);
        (self.state == ImportState::Full && !left.is_zero()).then_some(left)
    }

    /// Returns whether the server of the present connection accepts operation ids.
    fn takes_op_ids(&self) -> bool {
        self.features & FEATURE_OP_ID != 0
    }

    /// Returns the number of evictions of this client by the server.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    /// Fails the pending requests that `which` picks.
    pub(super) fn fail(&mut self, cause: &Cause, which: impl Fn(&Pending) -> bool) {
        for (_, pending) in self.pending.extract_if(.., |_, p| which(p)) {
            // A call that was dropped does not need the error.
            let _ = pending.reply.send(Err(cause.clone()));
        }
    }
}

impl Pending {
    /// Encodes the request again if it says how long ago something happened.
    fn encode_again(&mut self, now: Instant) {
        let Some(mut body) = self.later.as_ref().and_then(|later| later(now)) else { return };
        let job = self.frame.body.len().saturating_sub(self.frame.header.job_len.into());
        body.extend_from_slice(&self.frame.body[job..]);
        self.frame.body = body.into();
    }

    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn recovering(&self) -> bool {
        self.recovering
    }
}

#[cfg(test)]
mod tests {
    use sheen_wire::frame::{Header, Kind};

    use super::*;

    #[test]
    fn only_a_report_of_a_later_server_supersedes_the_present_one() {
        let mut link = Link::default();
        link.welcomed(1, false);
        assert!(!link.is_superseded(1), "no report");
        for (reported, present, superseded) in
            [(1, 1, false), (2, 1, true), (2, 2, false), (1, 2, false), (3, 2, true), (2, 1, true), (0, 2, false)]
        {
            link.welcomed(present, false);
            link.announced = reported;
            assert_eq!(link.is_superseded(present), superseded, "reported {reported}, present {present}");
        }
        for incarnation in 100..1000 {
            link.welcomed(incarnation, false);
        }
        assert_eq!((link.met.len(), link.met.back()), (MET_MAX, Some(&999)));
    }

    #[test]
    fn state_history_has_the_last_changes() {
        let mut link = Link::default();
        for sec in 0..20 {
            let state = if sec % 2 == 0 { ImportState::Connecting } else { ImportState::Full };
            link.enter_state(state, Time { sec, nsec: 0 });
        }
        let history = link.history();
        assert_eq!((history.len(), link.state), (HISTORY_MAX, ImportState::Full));
        assert_eq!(history[0], (Time { sec: 4, nsec: 0 }, ImportState::Connecting));
    }

    #[test]
    fn request_with_an_age_is_resent_with_its_present_age_and_its_job() {
        let mut link = Link::default();
        let header = Header { job_len: 3, ..Header::new(Kind::Request, 0) };
        for later in
            [None, Some(Box::new(|now: Instant| Some(vec![now.since(Instant::ZERO).as_secs() as u8])) as Later)]
        {
            let mut frame = Frame { body: b"\0job".to_vec().into(), ..Frame::from(header) };
            let (xid, _) = link.enter(&mut frame, Instant::ZERO, false, false);
            link.pending.get_mut(&xid).unwrap().later = later;
        }
        for secs in [7, 9] {
            let now = Instant::ZERO + Duration::from_secs(secs);
            let bodies: Vec<_> = link.unanswered(now, Duration::MAX).into_iter().map(|frame| frame.body).collect();
            assert_eq!(bodies, [&b"\0job"[..], &[secs as u8, b'j', b'o', b'b']]);
        }
    }

    #[test]
    fn op_id_is_sent_only_to_a_server_that_accepts_it() {
        let op_id = OpId::new(1, 2);
        let frame = || Frame::from(Header { op_id, ..Header::new(Kind::Request, 0) });
        let mut link = Link::default();
        for (features, recovering, sent) in
            [(0, false, OpId::NONE), (FEATURE_OP_ID, true, OpId::NONE), (FEATURE_OP_ID, false, op_id)]
        {
            link.features = features;
            let mut frame = frame();
            drop(link.enter(&mut frame, Instant::ZERO, false, recovering));
            assert_eq!(frame.header.op_id, sent, "{features:#x}, recovering: {recovering}");
        }
        let resent = |link: &mut Link| {
            let frames = link.unanswered(Instant::ZERO, Duration::MAX);
            frames.iter().map(|frame| frame.header.op_id).collect::<Vec<_>>()
        };
        assert_eq!(resent(&mut link), [OpId::NONE, op_id]);
        link.features = 0;
        assert_eq!(resent(&mut link), [OpId::NONE, OpId::NONE], "the next server is of an earlier release");
    }
}
