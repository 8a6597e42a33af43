//! Reply cache: replies stored for clients that resend requests.
//!
//! A request is identified by its client and its xid. It goes through `begin` → executing →
//! `finish`. If executing it twice would differ from executing it once, its reply is stored until
//! the client has acknowledged it.
//!
//! Invariants:
//! * For a (client, xid) whose reply is stored, `begin` returns [`Begin::Execute`] at most once.
//!   The client must have at most [`REPLIES_PER_CLIENT_MAX`] requests without a reply, and must not
//!   acknowledge replies that it has not received.
//! * One execution at a time for a (client, xid), whether its reply is stored or not.
//! * If a request is resent while it is executed, the reply goes to the place (such as a
//!   connection) from which the latest copy came.
//!
//! Memory: at most [`REPLIES_PER_CLIENT_MAX`] replies of at most [`CLIENTS_MAX`] clients. Beyond
//! that, the clients that were silent longest are forgotten.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

/// Replies stored for one client: more than twice the largest number of requests in flight (584).
/// Replies leave a server in the order in which they were finished, except for those being sent. So
/// the replies that a client may not have received are among the youngest 584. The others are for
/// those being sent.
pub const REPLIES_PER_CLIENT_MAX: usize = 1280;
/// Maximum clients remembered by one target.
pub const CLIENTS_MAX: usize = 16384;

/// Action for a request that arrived.
#[derive(Debug, PartialEq, Eq)]
pub enum Begin<R, W> {
    /// The request is new: execute it, then call [`ReplyCache::finish`].
    Execute,
    /// The request is being executed; its reply will go to the caller's place. Contains the former
    /// place.
    Joined(W),
    /// The request has been executed: the reply, and the caller's place.
    Done(R, W),
    /// The client has acknowledged the reply, so the request is ignored. Contains the caller's
    /// place.
    Stale(W),
}

/// Requests of all clients of one target: those executing, and the stored replies. `R` is a reply,
/// `W` the place where a reply is awaited (such as a connection).
#[derive(Debug)]
pub struct ReplyCache<R, W> {
    clients: FxHashMap<String, Client<R, W>>,
    clients_max: usize,
    /// Number of calls of `begin`: tells which client sent a request last.
    tick: u64,
}

#[derive(Debug)]
struct Client<R, W> {
    executing: BTreeMap<u64, W>,
    /// Age and reply, by xid.
    done: BTreeMap<u64, (u64, R)>,
    /// Xid by age. Holds exactly the entries of `done`.
    ages: BTreeMap<u64, u64>,
    age_next: u64,
    /// The client has received the replies to all xids up to this one.
    acknowledged: u64,
    heard: u64,
}

impl<R: Clone, W> Default for ReplyCache<R, W> {
    fn default() -> ReplyCache<R, W> {
        ReplyCache::new(CLIENTS_MAX)
    }
}

impl<R: Clone, W> ReplyCache<R, W> {
    /// Creates a cache for up to `clients_max` clients. It remembers more while all of them have
    /// requests executing.
    pub fn new(clients_max: usize) -> ReplyCache<R, W> {
        ReplyCache { clients: FxHashMap::default(), clients_max: clients_max.max(1), tick: 0 }
    }

    /// Registers a request that arrived. `acknowledged`: the client has received the replies to all
    /// its xids up to this one. `place`: where the reply is awaited; stored if the result is
    /// [`Begin::Execute`] or [`Begin::Joined`].
    pub fn begin(&mut self, client: &str, xid: u64, acknowledged: u64, place: W) -> Begin<R, W> {
        self.tick += 1;
        if !self.clients.contains_key(client) {
            self.make_room();
            self.clients.insert(client.to_owned(), Client::new());
        }
        let Some(c) = self.clients.get_mut(client) else { return Begin::Stale(place) };
        c.heard = self.tick;
        c.acknowledge(acknowledged);
        if let Some(before) = c.executing.get_mut(&xid) {
            return Begin::Joined(std::mem::replace(before, place));
        }
        if xid <= c.acknowledged {
            return Begin::Stale(place);
        }
        if let Some((_, reply)) = c.done.get(&xid) {
            return Begin::Done(reply.clone(), place);
        }
        c.executing.insert(xid, place);
        Begin::Execute
    }

    /// Ends an execution. Returns where its reply is awaited; `None` if the request was not
    /// executing. `keep`: the reply, if it must be stored for a resend.
    pub fn finish(&mut self, client: &str, xid: u64, keep: Option<R>) -> Option<W> {
        let c = self.clients.get_mut(client)?;
        let place = c.executing.remove(&xid)?;
        if let Some(reply) = keep {
            c.keep(xid, reply);
        }
        Some(place)
    }

    /// Forgets the replies of a client that disconnects. Executing requests continue.
    pub fn forget(&mut self, client: &str) {
        let Some(c) = self.clients.get_mut(client) else { return };
        c.done.clear();
        c.ages.clear();
        if c.executing.is_empty() {
            self.clients.remove(client);
        }
    }

    /// Returns the number of stored replies, of all clients.
    pub fn stored(&self) -> usize {
        self.clients.values().map(|c| c.done.len()).sum()
    }

    /// Returns the number of executing requests, of all clients.
    pub fn executing(&self) -> usize {
        self.clients.values().map(|c| c.executing.len()).sum()
    }

    /// Returns the number of clients remembered.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Forgets the client that was silent longest, if there are too many. (`heard` is unique, so
    /// the map's order has no effect.)
    fn make_room(&mut self) {
        if self.clients.len() < self.clients_max {
            return;
        }
        let idle = self.clients.iter().filter(|(_, c)| c.executing.is_empty());
        let oldest = idle.min_by_key(|(_, c)| c.heard).map(|(name, _)| name.clone());
        if let Some(name) = oldest {
            self.clients.remove(&name);
        }
    }
}

impl<R, W> Client<R, W> {
    fn new() -> Client<R, W> {
        Client {
            executing: BTreeMap::new(),
            done: BTreeMap::new(),
            ages: BTreeMap::new(),
            age_next: 0,
            acknowledged: 0,
            heard: 0,
        }
    }

    fn acknowledge(&mut self, xid: u64) {
        self.acknowledged = self.acknowledged.max(xid);
        while let Some(first) = self.done.first_entry()
            && *first.key() <= self.acknowledged
        {
            let (age, _) = first.remove();
            self.ages.remove(&age);
        }
    }

    fn keep(&mut self, xid: u64, reply: R) {
        if xid <= self.acknowledged {
            return;
        }
        self.done.insert(xid, (self.age_next, reply));
        self.ages.insert(self.age_next, xid);
        self.age_next += 1;
        if self.ages.len() > REPLIES_PER_CLIENT_MAX
            && let Some((_, oldest)) = self.ages.pop_first()
        {
            self.done.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn resend_gets_the_first_executions_reply() {
        let mut cache = ReplyCache::new(4);
        assert_eq!(cache.begin("a", 1, 0, "first"), Begin::Execute);
        assert_eq!(cache.begin("a", 1, 0, "second"), Begin::Joined("first"));
        assert_eq!(cache.begin("b", 1, 0, "other"), Begin::Execute);
        assert_eq!(cache.finish("a", 1, Some("reply")), Some("second"));
        assert_eq!(cache.begin("a", 1, 0, "third"), Begin::Done("reply", "third"));
        assert_eq!(cache.begin("a", 2, 1, "next"), Begin::Execute);
        assert_eq!(cache.stored(), 0);
        assert_eq!(cache.begin("a", 1, 0, "late"), Begin::Stale("late"));
    }

    #[test]
    fn request_without_a_stored_reply_is_executed_again() {
        let mut cache = ReplyCache::<(), _>::new(4);
        assert_eq!(cache.begin("a", 1, 0, 'x'), Begin::Execute);
        assert_eq!(cache.begin("a", 1, 0, 'y'), Begin::Joined('x'));
        assert_eq!(cache.finish("a", 1, None), Some('y'));
        assert_eq!(cache.begin("a", 1, 0, 'z'), Begin::Execute);
        assert_eq!(cache.finish("a", 9, None), None);
    }

    #[test]
    fn slow_requests_reply_is_stored_behind_many_quick_ones() {
        let mut cache = ReplyCache::new(4);
        assert_eq!(cache.begin("a", 1, 0, ()), Begin::Execute);
        for xid in 2..5000 {
            assert_eq!(cache.begin("a", xid, 0, ()), Begin::Execute);
            cache.finish("a", xid, Some(xid));
        }
        assert_eq!(cache.stored(), REPLIES_PER_CLIENT_MAX);
        cache.finish("a", 1, Some(1));
        assert_eq!(cache.begin("a", 1, 0, ()), Begin::Done(1, ()));
        assert_eq!(cache.stored(), REPLIES_PER_CLIENT_MAX);
    }

    #[test]
    fn beyond_clients_max_the_longest_silent_client_is_forgotten() {
        let mut cache = ReplyCache::new(2);
        for client in ["a", "b"] {
            cache.begin(client, 1, 0, ());
            cache.finish(client, 1, Some(()));
        }
        cache.begin("a", 2, 0, ());
        cache.begin("c", 1, 0, ());
        assert_eq!(cache.clients(), 2);
        assert_eq!(cache.begin("a", 1, 0, ()), Begin::Done((), ()));
        cache.forget("a");
        assert_eq!(cache.stored(), 0);
        assert_eq!(cache.finish("a", 2, None), Some(()), "executing requests continue");
    }

    /// A step of a client with a window of requests. Its connection breaks at any moment, and then
    /// loses everything in flight.
    #[derive(Clone, Debug)]
    enum Step {
        Send,
        Execute(usize),
        /// The oldest reply in flight arrives.
        Deliver,
        Break,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            4 => Just(Step::Send),
            4 => any::<usize>().prop_map(Step::Execute),
            4 => Just(Step::Deliver),
            1 => Just(Step::Break),
        ]
    }

    proptest! {
        #[test]
        fn every_request_is_executed_once_and_answered(steps in prop::collection::vec(step(), 1..600), window in 1usize..12) {
            let mut cache = ReplyCache::<u64, u32>::new(1);
            let (mut xid_next, mut connection) = (1u64, 0u32);
            let mut unanswered = BTreeSet::new();
            let mut executing = Vec::new();
            let mut executed = BTreeSet::new();
            let mut replies = std::collections::VecDeque::new();
            let acknowledged = |unanswered: &BTreeSet<u64>, next: u64| unanswered.first().map_or(next, |x| *x) - 1;
            // The end without failures: enough steps to finish all requests.
            let ending = std::iter::once(Step::Break).chain((0..40).flat_map(|_| [Step::Execute(0), Step::Deliver]));
            for step in steps.into_iter().chain(ending) {
                match step {
                    Step::Send if unanswered.len() < window => {
                        unanswered.insert(xid_next);
                        let ack = acknowledged(&unanswered, xid_next);
                        prop_assert_eq!(cache.begin("c", xid_next, ack, connection), Begin::Execute);
                        executing.push(xid_next);
                        xid_next += 1;
                    }
                    Step::Send => {}
                    Step::Execute(n) if !executing.is_empty() => {
                        let xid = executing.remove(n % executing.len());
                        prop_assert!(executed.insert(xid), "{} executed twice", xid);
                        let place = cache.finish("c", xid, Some(xid * 10));
                        prop_assert!(place.is_some());
                        if place == Some(connection) {
                            replies.push_back((xid, xid * 10));
                        }
                    }
                    Step::Execute(_) => {}
                    Step::Deliver => {
                        if let Some((xid, reply)) = replies.pop_front() {
                            prop_assert!(unanswered.remove(&xid), "{} answered twice", xid);
                            prop_assert_eq!(reply, xid * 10);
                        }
                    }
                    Step::Break => {
                        connection += 1;
                        replies.clear();
                        let ack = acknowledged(&unanswered, xid_next);
                        for xid in &unanswered {
                            match cache.begin("c", *xid, ack, connection) {
                                Begin::Joined(_) => prop_assert!(executing.contains(xid)),
                                Begin::Done(reply, _) => replies.push_back((*xid, reply)),
                                other => prop_assert!(false, "{} after a break: {:?}", xid, other),
                            }
                        }
                    }
                }
                prop_assert!(cache.stored() <= window.max(executed.len()));
                prop_assert_eq!(cache.executing(), executing.len());
            }
            prop_assert!(unanswered.is_empty(), "unanswered: {:?}", unanswered);
        }
    }
}
