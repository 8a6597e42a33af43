//! Common properties of the protocols, so that `rpc` carries any of them.

use std::{fmt::Debug, time::Duration};

use serde::{Serialize, de::DeserializeOwned};

use crate::{ast, mds, mgs, ost, selftest, subject::Subject};

/// Version of all messages. Raised when a message changes its meaning or form. Peers of different
/// versions refuse each other at connect with a clear error. (Additions that old peers do not need
/// are announced by feature bits instead.)
pub const PROTOCOL_VERSION: u16 = 18;

/// A request type and its reply type, spoken to one kind of service.
pub trait Protocol: Send + Sync + 'static {
    /// Message of a client.
    type Request: Serialize + DeserializeOwned + Debug + Clone + Send + Sync + 'static;
    /// Successful reply of the service.
    type Reply: Serialize + DeserializeOwned + Debug + Clone + Send + Sync + 'static;
    /// Message of the service to a client without a request.
    type Callback: Serialize + DeserializeOwned + Debug + Clone + Send + Sync + 'static;
    /// Name in handshakes, logs and parameters: `mds`, `ost`, `mgs`.
    const NAME: &'static str;

    /// Whether and when clients retain a request that changed something until the change is
    /// committed, to replay it to a restarted service.
    const REPLAYS: Replays = Replays::Never;
    /// Maximum bytes of requests that a client retains for one service. Beyond that it drops the
    /// earliest.
    const RETAINED_BYTES_MAX: usize = 256 << 20;

    /// Whether executing the request twice would differ from executing it once: then its reply must
    /// be stored for a resend.
    fn once(request: &Self::Request) -> bool;

    /// Returns the request's name for statistics and logs, such as `create`.
    fn op(request: &Self::Request) -> &'static str;

    /// Whether the service may wait with its reply until something changes. Such a request is never
    /// reported as slow.
    fn waits_for_change(_: &Self::Request) -> bool {
        false
    }

    /// Returns what the request is about, for the record of a denied one.
    fn subject(_: &Self::Request) -> Subject {
        Subject::default()
    }

    /// Adds a wait at the client to a request that says how long ago something happened. Returns
    /// false, and does nothing, if it says no such thing: the default.
    fn delay(_: &mut Self::Request, _wait: Duration) -> bool {
        false
    }
}

/// When clients retain changes that a service has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Replays {
    /// The service loses nothing, or nothing that a client could replay.
    Never,
    /// The end of the service's process can lose changes.
    OfProcess,
    /// Only the end of the service's host can lose changes. A client on that host would not
    /// survive it, so it retains nothing if it knows that it is there.
    OfHost,
}

/// The metadata protocol.
#[derive(Debug)]
pub struct Mds;
/// The object protocol.
#[derive(Debug)]
pub struct Ost;
/// The management protocol.
#[derive(Debug)]
pub struct Mgs;
/// The self-test of the network.
#[derive(Debug)]
pub struct Selftest;

impl Protocol for Mds {
    type Request = mds::Call;
    type Reply = mds::Answer;
    type Callback = ast::Callback;
    const NAME: &'static str = "mds";
    const REPLAYS: Replays = Replays::OfProcess;

    fn once(call: &mds::Call) -> bool {
        call.request.modifies()
    }

    fn op(call: &mds::Call) -> &'static str {
        call.request.op()
    }

    /// A recovery waits for other clients.
    fn waits_for_change(call: &mds::Call) -> bool {
        matches!(call.request, mds::Request::Replay { .. })
    }

    fn subject(call: &mds::Call) -> Subject {
        call.request.subject()
    }

    fn delay(call: &mut mds::Call, wait: Duration) -> bool {
        call.request.delay(wait)
    }
}

impl Protocol for Ost {
    type Request = ost::Request;
    type Reply = ost::Reply;
    type Callback = ast::Callback;
    const NAME: &'static str = "ost";
    const REPLAYS: Replays = Replays::OfHost;
    const RETAINED_BYTES_MAX: usize = 128 << 20;

    /// A change executed again, because its reply was lost, would undo changes that other clients
    /// made in between.
    fn once(request: &ost::Request) -> bool {
        use ost::Request::{Allocate, Seal, Truncate, Write};
        matches!(request, Write { .. } | Truncate { .. } | Allocate { .. } | Seal { .. })
    }

    fn op(request: &ost::Request) -> &'static str {
        request.op()
    }

    /// A recovery waits for other clients, and the MDT for writes or damage.
    fn waits_for_change(request: &ost::Request) -> bool {
        matches!(request, ost::Request::Replay { .. } | ost::Request::QuotaWait)
    }

    fn subject(request: &ost::Request) -> Subject {
        request.subject()
    }
}

impl Protocol for Mgs {
    type Request = mgs::Request;
    type Reply = mgs::Reply;
    type Callback = ();
    const NAME: &'static str = "mgs";

    /// Registration names the target by its uuid, so a second registration finds the first.
    fn once(_: &mgs::Request) -> bool {
        false
    }

    fn waits_for_change(request: &mgs::Request) -> bool {
        matches!(request, mgs::Request::Watch { .. })
    }

    fn op(request: &mgs::Request) -> &'static str {
        request.op()
    }
}

impl Protocol for Selftest {
    type Request = selftest::Request;
    type Reply = selftest::Reply;
    type Callback = ();
    const NAME: &'static str = "selftest";

    fn once(_: &selftest::Request) -> bool {
        false
    }

    fn op(request: &selftest::Request) -> &'static str {
        request.op()
    }

    /// A load is answered when it ends, up to two minutes later.
    fn waits_for_change(request: &selftest::Request) -> bool {
        matches!(request, selftest::Request::Load { .. })
    }
}
