//! Recovery window: after a crash of a server, its clients replay the changes that were answered
//! and not committed, before anybody else may change anything.
//!
//! The server knows its clients from a durable list. Each of them replays its own changes, in order
//! of transno, and says when it has no more. Changes of several clients are executed in the order
//! of their transnos. So a change is executed when every other client has reported a later one, or
//! that it has no more. Then the clients open their files again.
//!
//! Invariants:
//! * [`Window::next_change`] returns changes in ascending order of transno, each once.
//! * A client that is waited for can hold up the others only until [`Window::drop_awaited`].
//! * A client that reconnects begins again; its changes that were executed already are not
//!   executed a second time.
//!
//! Memory: the changes of a client that wait, and a few bytes for each executed change. The server
//! bounds the size of a message, and a client sends the next message after the reply.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Part of the recovery that is under way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stage {
    /// Clients replay their changes.
    Replay,
    /// All changes are replayed; clients open their files again.
    Reopen,
    /// Every client has finished or was dropped.
    Ended,
}

/// Numbers of a recovery, for its status.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Clients on the list at the start.
    pub clients: usize,
    /// Those that have connected.
    pub connected: usize,
    /// Those that still replay changes.
    pub replaying: usize,
    /// Those that have finished.
    pub completed: usize,
    /// Those that were dropped or have disconnected.
    pub dropped: usize,
    /// Changes that wait for their turn.
    pub queued: usize,
    /// Changes that were executed, successfully or not.
    pub replayed: u64,
}

/// The recovery of one server. `C`: a change to be replayed. `E`: why it could not be.
#[derive(Debug)]
pub struct Window<C, E> {
    members: BTreeMap<String, Member<C, E>>,
    stage: Stage,
    /// Client and transno, between [`Window::next_change`] and [`Window::executed`].
    executing: Option<(String, u64)>,
    counts: Counts,
}

#[derive(Debug)]
struct Member<C, E> {
    phase: Phase,
    /// Changes with their transnos, ascending.
    queue: VecDeque<(u64, C)>,
    /// Outcome of each executed change, by transno.
    outcomes: BTreeMap<u64, Result<(), E>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Not connected yet.
    Absent,
    /// Further changes may come.
    Replaying,
    /// It has reported all its changes.
    Replayed,
    /// It has opened its files again.
    Finished,
}

/// The server does not wait for this client: it was not on the list, was dropped, or the recovery
/// ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NotAwaited;

impl<C, E: Clone> Window<C, E> {
    /// Begins the recovery of a server with these clients. Without any it has ended.
    pub fn new(clients: impl IntoIterator<Item = String>) -> Window<C, E> {
        let member = |client| {
            let (queue, outcomes) = (VecDeque::new(), BTreeMap::new());
            (client, Member { phase: Phase::Absent, queue, outcomes })
        };
        let members: BTreeMap<_, _> = clients.into_iter().map(member).collect();
        let counts = Counts { clients: members.len(), ..Counts::default() };
        let mut window = Window { members, stage: Stage::Replay, executing: None, counts };
        window.advance();
        window
    }

    /// Returns the part that is under way.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// Accepts changes of a client, with ascending transnos. `first`: the client begins, or begins
    /// again after it lost its connection. `last`: it has no more. Changes that were executed
    /// already are left out.
    ///
    /// # Errors
    /// The client is not waited for, or a change comes too late for its turn.
    pub fn replay(
        &mut self,
        client: &str,
        first: bool,
        changes: impl IntoIterator<Item = (u64, C)>,
        last: bool,
    ) -> Result<(), NotAwaited> {
        let member = self.members.get_mut(client).ok_or(NotAwaited)?;
        if first {
            member.queue.clear();
            member.phase = Phase::Replaying;
        }
        if member.phase != Phase::Replaying {
            return Err(NotAwaited);
        }
        for (transno, change) in changes {
            let is_executing = self.executing.as_ref().is_some_and(|(who, at)| who == client && *at == transno);
            if is_executing || member.outcomes.contains_key(&transno) {
                continue;
            }
            let done = member.outcomes.last_key_value().map(|(transno, _)| *transno);
            let before = member.queue.back().map(|(transno, _)| *transno).max(done);
            if self.stage != Stage::Replay || before.is_some_and(|before| before >= transno) {
                return Err(NotAwaited);
            }
            member.queue.push_back((transno, change));
        }
        if last {
            member.phase = Phase::Replayed;
        }
        self.advance();
        Ok(())
    }

    /// Returns whether [`Window::next_change`] returns a change.
    pub fn has_next(&self) -> bool {
        self.executing.is_none()
            && !self.members.values().any(Member::waits_for_changes)
            && self.members.values().any(|m| !m.queue.is_empty())
    }

    /// Returns the next change to execute, with its client and transno. `None`: there is none, or a
    /// client that is waited for may have an earlier one. The caller executes it and reports the
    /// outcome to [`Window::executed`] before it calls this again.
    pub fn next_change(&mut self) -> Option<(String, u64, C)> {
        let first = |member: &Member<C, E>| member.queue.front().map(|(transno, _)| *transno);
        if !self.has_next() {
            return None;
        }
        let (client, _) = self.members.iter().filter_map(|(c, m)| Some((c, first(m)?))).min_by_key(|(_, at)| *at)?;
        let client = client.clone();
        let (transno, change) = self.members.get_mut(&client)?.queue.pop_front()?;
        self.executing = Some((client.clone(), transno));
        Some((client, transno, change))
    }

    /// Records the outcome of a change. Returns whether none of the client waits any more.
    pub fn executed(&mut self, client: &str, transno: u64, outcome: Result<(), E>) -> bool {
        self.executing = None;
        self.counts.replayed += 1;
        let is_last = self.members.get_mut(client).map(|member| {
            member.outcomes.insert(transno, outcome);
            member.queue.is_empty()
        });
        self.advance();
        is_last.unwrap_or(true)
    }

    /// Returns the outcomes of these changes of a client, once all of them are executed. `None`:
    /// some still wait.
    ///
    /// # Errors
    /// The client was dropped meanwhile.
    pub fn outcomes(&self, client: &str, transnos: &[u64]) -> Result<Option<Vec<Result<(), E>>>, NotAwaited> {
        let member = self.members.get(client).ok_or(NotAwaited)?;
        Ok(transnos.iter().map(|transno| member.outcomes.get(transno).cloned()).collect())
    }

    /// Returns whether the client has replayed all its changes.
    pub fn has_replayed(&self, client: &str) -> bool {
        self.members.get(client).is_some_and(|m| matches!(m.phase, Phase::Replayed | Phase::Finished))
    }

    /// Records that a client has opened its files again. If it has none, it may report this before
    /// others have replayed their changes.
    ///
    /// # Errors
    /// The client is not waited for.
    pub fn finished(&mut self, client: &str) -> Result<(), NotAwaited> {
        let member = self.members.get_mut(client).ok_or(NotAwaited)?;
        if member.phase == Phase::Replayed {
            member.phase = Phase::Finished;
        }
        self.advance();
        Ok(())
    }

    /// Removes a client that has disconnected. Its changes that wait are not executed.
    pub fn remove(&mut self, client: &str) {
        if self.members.remove(client).is_some() && self.stage != Stage::Ended {
            self.counts.dropped += 1;
            self.advance();
        }
    }

    /// Drops the clients for which the recovery waits at the moment, and returns them.
    pub fn drop_awaited(&mut self) -> Vec<String> {
        match self.stage {
            Stage::Replay => self.drop_those(Member::waits_for_changes),
            Stage::Reopen => self.drop_those(|m| m.phase != Phase::Finished),
            Stage::Ended => Vec::new(),
        }
    }

    /// Drops the clients that have not connected, and returns them.
    pub fn drop_missing(&mut self) -> Vec<String> {
        self.drop_those(|m| m.phase == Phase::Absent)
    }

    fn drop_those(&mut self, which: impl Fn(&Member<C, E>) -> bool) -> Vec<String> {
        let dropped: BTreeSet<String> =
            self.members.iter().filter(|(_, m)| which(m)).map(|(client, _)| client.clone()).collect();
        for client in &dropped {
            self.remove(client);
        }
        dropped.into_iter().collect()
    }

    /// Returns the numbers as of now.
    pub fn counts(&self) -> Counts {
        let count = |which: fn(Phase) -> bool| self.members.values().filter(|m| which(m.phase)).count();
        Counts {
            connected: count(|phase| phase != Phase::Absent),
            replaying: count(|phase| phase == Phase::Replaying),
            completed: count(|phase| phase == Phase::Finished),
            queued: self.members.values().map(|m| m.queue.len()).sum(),
            ..self.counts
        }
    }

    fn advance(&mut self) {
        let all = |which: fn(&Member<C, E>) -> bool| self.members.values().all(which);
        if self.stage == Stage::Replay
            && self.executing.is_none()
            && all(|m| m.queue.is_empty() && matches!(m.phase, Phase::Replayed | Phase::Finished))
        {
            self.stage = Stage::Reopen;
        }
        if self.stage == Stage::Reopen && all(|m| m.phase == Phase::Finished) {
            self.stage = Stage::Ended;
        }
    }
}

impl<C, E> Member<C, E> {
    fn waits_for_changes(&self) -> bool {
        self.queue.is_empty() && matches!(self.phase, Phase::Absent | Phase::Replaying)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(clients: &[&str]) -> Window<&'static str, i32> {
        Window::new(clients.iter().map(|c| (*c).to_owned()))
    }

    /// Executes everything whose turn has come; returns the transnos.
    fn run(window: &mut Window<&'static str, i32>) -> Vec<u64> {
        let mut done = Vec::new();
        while let Some((client, transno, change)) = window.next_change() {
            window.executed(&client, transno, if change == "bad" { Err(2) } else { Ok(()) });
            done.push(transno);
        }
        done
    }

    #[test]
    fn server_without_clients_has_nothing_to_recover() {
        let window = window(&[]);
        assert_eq!((window.stage(), window.counts()), (Stage::Ended, Counts::default()));
    }

    #[test]
    fn changes_of_several_clients_are_executed_in_order_of_transno() {
        let mut w = window(&["a", "b"]);
        w.replay("a", true, [(5, ""), (9, "")], false).unwrap();
        assert_eq!(run(&mut w), [], "b may have an earlier one");
        w.replay("b", true, [(4, ""), (6, "bad")], false).unwrap();
        assert_eq!(run(&mut w), [4, 5, 6], "b may have 7");
        assert_eq!(w.outcomes("b", &[4, 6]), Ok(Some(vec![Ok(()), Err(2)])));
        assert_eq!(w.outcomes("a", &[5, 9]), Ok(None));
        w.replay("b", false, [], true).unwrap();
        assert_eq!((run(&mut w), w.stage()), (vec![9], Stage::Replay));
        w.finished("b").unwrap();
        w.finished("a").unwrap();
        w.replay("a", false, [], true).unwrap();
        assert_eq!((w.stage(), w.counts().completed), (Stage::Reopen, 1), "a had not replayed everything");
        w.finished("a").unwrap();
        assert_eq!((w.stage(), w.counts().completed, w.counts().replayed), (Stage::Ended, 2, 4));
    }

    #[test]
    fn client_that_lost_its_connection_begins_again() {
        let mut w = window(&["a", "b"]);
        w.replay("b", true, [(2, ""), (4, "")], true).unwrap();
        w.replay("a", true, [(1, ""), (3, "")], false).unwrap();
        assert_eq!(run(&mut w), [1, 2, 3]);
        w.replay("a", true, [(1, ""), (3, ""), (5, "")], true).unwrap();
        assert_eq!(run(&mut w), [4, 5], "1 and 3 only once");
        assert_eq!(w.outcomes("a", &[1, 3, 5]), Ok(Some(vec![Ok(()); 3])));
        w.finished("b").unwrap();
        w.replay("a", true, [(1, ""), (3, ""), (5, "")], true).unwrap();
        assert_eq!((run(&mut w), w.stage()), (vec![], Stage::Reopen), "once more");
        w.finished("a").unwrap();
        assert_eq!(w.stage(), Stage::Ended);
    }

    #[test]
    fn change_that_is_being_executed_is_not_queued_again() {
        let mut w = window(&["a"]);
        w.replay("a", true, [(1, ""), (2, "")], false).unwrap();
        let (client, transno, _) = w.next_change().unwrap();
        w.replay("a", true, [(1, ""), (2, "")], true).unwrap();
        assert_eq!(w.outcomes("a", &[1, 2]), Ok(None));
        assert!(!w.has_next() && !w.executed(&client, transno, Ok(())));
        assert_eq!((run(&mut w), w.outcomes("a", &[1, 2])), (vec![2], Ok(Some(vec![Ok(()); 2]))));
        assert!(w.has_replayed("a") && !w.has_replayed("b"));
    }

    #[test]
    fn change_after_its_turn_is_refused() {
        let mut w = window(&["a", "b"]);
        assert_eq!(w.replay("stranger", true, [(1, "")], true), Err(NotAwaited));
        w.replay("a", true, [(2, ""), (4, "")], false).unwrap();
        w.replay("b", true, [], true).unwrap();
        assert_eq!(run(&mut w), [2, 4]);
        assert_eq!(w.replay("a", false, [(3, "")], false), Err(NotAwaited));
        assert_eq!(w.replay("b", false, [(5, "")], false), Err(NotAwaited), "it has said that it has no more");
    }

    #[test]
    fn clients_that_are_waited_for_can_be_dropped() {
        let mut w = window(&["absent", "silent", "done", "waits"]);
        w.replay("silent", true, [], false).unwrap();
        w.replay("done", true, [(1, "")], true).unwrap();
        w.replay("waits", true, [(2, "")], true).unwrap();
        assert_eq!((run(&mut w), w.counts().connected), (vec![], 3));
        assert_eq!(w.drop_awaited(), ["absent", "silent"]);
        assert_eq!((run(&mut w), w.stage()), (vec![1, 2], Stage::Reopen));
        assert_eq!(w.replay("absent", true, [(3, "")], true), Err(NotAwaited));
        w.finished("done").unwrap();
        assert_eq!(w.drop_awaited(), ["waits"]);
        assert_eq!((w.stage(), w.counts().dropped, w.counts().completed), (Stage::Ended, 3, 1));
        assert_eq!(w.drop_awaited(), [""; 0]);
    }

    #[test]
    fn disconnected_client_is_not_waited_for() {
        let mut w = window(&["a", "b"]);
        w.replay("a", true, [(1, "")], true).unwrap();
        let (client, transno, _) = {
            w.replay("b", true, [(2, "")], true).unwrap();
            w.next_change().unwrap()
        };
        w.remove("a");
        w.remove("b");
        assert_eq!(w.stage(), Stage::Replay, "a change is being executed");
        w.executed(&client, transno, Ok(()));
        assert_eq!(w.stage(), Stage::Ended);
    }
}
