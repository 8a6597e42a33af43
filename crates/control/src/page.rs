//! Replies in pages: of values that do not fit in one reply, those that follow a name, as many as
//! fit. The client requests the next page with the last name of this one. So neither side has more
//! than a page in memory as JSON, and no value is missed if others come or end meanwhile.
//!
//! The order of pages is that of the names with dots, as they are in replies.

use serde::Serialize;
use sheen_params::{Match, ParamError, Params};
use sheen_wire::Errno;

use crate::message::{Reply, Request};

/// Bytes of a page around its values, at most, with the greeting and the end of the line.
const FRAME_BYTES: u64 = 128;

/// Returns the page of a request's values that begins after the name `after`. `max`: most bytes of
/// a reply.
///
/// # Errors
/// ENOENT: nothing matches. EMSGSIZE: the first value alone is too long. EPROTO: replies to this
/// request have no pages.
pub(crate) fn page(
    request: &Request,
    fsname: Option<&str>,
    after: &str,
    params: &Params,
    max: u64,
) -> Result<Reply, ParamError> {
    match request {
        Request::List { pattern } => {
            let mut nodes = params.list_of(pattern, fsname)?;
            nodes.retain(|node| *node.name > *after);
            nodes.sort_by(|a, b| a.name.cmp(&b.name));
            fit(nodes.into_iter(), max, Reply::Nodes)
        }
        Request::Get { pattern } => {
            let found = following(params.matches(&[pattern], fsname)?, after);
            fit(found.map(|found| found.found()), max, Reply::Values)
        }
        Request::GetTyped { pattern } => {
            let found = following(params.matches(&[pattern], fsname)?, after);
            fit(found.map(|found| found.typed()), max, Reply::Typed)
        }
        Request::GetTypedAny { patterns } => {
            let found = following(params.matches(patterns, fsname)?, after);
            fit(found.map(|found| found.typed()), max, Reply::Typed)
        }
        Request::Set { .. } | Request::Devices | Request::Nids | Request::Of { .. } | Request::Page { .. } => {
            Err(Errno::EPROTO.into())
        }
    }
}

/// Whether the reply to a request may come in pages.
pub(crate) fn has_pages(request: &Request) -> bool {
    match request {
        Request::List { .. } | Request::Get { .. } | Request::GetTyped { .. } | Request::GetTypedAny { .. } => true,
        Request::Of { request, .. } => has_pages(request),
        Request::Set { .. } | Request::Devices | Request::Nids | Request::Page { .. } => false,
    }
}

/// Returns the parameters whose names follow `after`, in order.
fn following(found: Vec<Match>, after: &str) -> impl Iterator<Item = Match> {
    let mut named: Vec<(String, Match)> = found.into_iter().map(|found| (found.name(), found)).collect();
    named.retain(|(name, _)| **name > *after);
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    named.into_iter().map(|(_, found)| found)
}

/// Takes as many values as fit. A value is not read before its turn.
fn fit<T: Serialize>(
    values: impl Iterator<Item = T>,
    max: u64,
    reply: fn(Vec<T>) -> Reply,
) -> Result<Reply, ParamError> {
    let (mut bytes, mut taken) = (FRAME_BYTES, Vec::new());
    for value in values {
        let json = serde_json::to_vec(&value).map_err(|_| Errno::EIO)?;
        // A comma follows.
        bytes += json.len() as u64 + 1;
        if bytes > max && taken.is_empty() {
            return Err(Errno::EMSGSIZE.into());
        }
        if bytes > max {
            return Ok(Reply::Page { reply: Box::new(reply(taken)), is_last: false });
        }
        taken.push(value);
    }
    Ok(Reply::Page { reply: Box::new(reply(taken)), is_last: true })
}

/// Returns the last name of a page's values. `None`: it has none.
pub(crate) fn last_name(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Nodes(nodes) => nodes.last().map(|node| &*node.name),
        Reply::Values(found) => found.last().map(|found| &*found.name),
        Reply::Typed(found) => found.last().map(|found| &*found.name),
        _ => None,
    }
}

/// Appends the values of the next page.
pub(crate) fn joined(all: Option<Reply>, next: Reply) -> Reply {
    match (all, next) {
        (Some(Reply::Nodes(all)), Reply::Nodes(next)) => Reply::Nodes(chained(all, next)),
        (Some(Reply::Values(all)), Reply::Values(next)) => Reply::Values(chained(all, next)),
        (Some(Reply::Typed(all)), Reply::Typed(next)) => Reply::Typed(chained(all, next)),
        (_, next) => next,
    }
}

fn chained<T>(mut all: Vec<T>, next: Vec<T>) -> Vec<T> {
    all.extend(next);
    all
}

#[cfg(test)]
mod tests {
    use sheen_params::Param;

    use super::*;
    use crate::serve::answer_within;

    /// Bytes of a reply: some values of [`params`] fit, but not all.
    const MAX: u64 = 1000;

    fn params() -> Params {
        let params = Params::new();
        for i in 0..20 {
            params.register(&format!("a/10.0.0.{i}@tcp/value"), Param::text(|| "x".repeat(100)));
            params.register(&format!("a.{i:02}.value"), Param::text(|| "y".into()));
        }
        params
    }

    /// Requests all pages as a client does. Returns the values, and the number of pages.
    fn all(request: &Request, params: &Params) -> (Reply, usize) {
        let (mut all, mut after) = (None, String::new());
        for count in 1.. {
            let page = Request::Page { after: after.clone(), request: Box::new(request.clone()) };
            let Reply::Page { reply, is_last } = answer_within(&page, params, MAX) else { panic!("{page:?}") };
            let bytes = serde_json::to_vec(&Reply::Page { reply: reply.clone(), is_last }).unwrap().len() as u64;
            assert!(bytes < MAX, "{bytes}");
            after = last_name(&reply).unwrap_or_default().to_owned();
            all = Some(joined(all, *reply));
            if is_last {
                return (all.unwrap(), count);
            }
        }
        unreachable!()
    }

    #[test]
    fn pages_together_have_each_value_once() {
        let params = params();
        let names = |reply: &Reply| match reply {
            Reply::Values(found) => found.iter().map(|f| f.name.clone()).collect::<Vec<_>>(),
            Reply::Typed(found) => found.iter().map(|f| f.name.clone()).collect(),
            Reply::Nodes(found) => found.iter().map(|f| f.name.clone()).collect(),
            reply => panic!("{reply:?}"),
        };
        let pattern = || "a.*.value".to_owned();
        let any = Request::GetTypedAny { patterns: vec![pattern(), "version".into()] };
        for (request, count) in [
            (Request::Get { pattern: pattern() }, 40),
            (Request::GetTyped { pattern: pattern() }, 40),
            (any, 41),
            (Request::List { pattern: pattern() }, 40),
        ] {
            let (reply, pages) = all(&request, &params);
            let names = names(&reply);
            assert!(names.len() == count && names.is_sorted() && pages > 1, "{request:?}: {pages} {names:?}");
        }
        let of_none = Request::Of { fsname: "b".into(), request: Box::new(Request::Get { pattern: pattern() }) };
        let page = Request::Page { after: String::new(), request: Box::new(of_none) };
        assert_eq!(answer_within(&page, &params, MAX), Reply::Error { errno: Errno::ENOENT.0 });
    }

    #[test]
    fn page_refuses_a_value_that_is_too_long_and_requests_that_change() {
        let params = params();
        params.register("a.30.value", Param::text(|| "z".repeat(1000)));
        let page = |after: &str, request: Request| {
            answer_within(&Request::Page { after: after.into(), request: Box::new(request) }, &params, MAX)
        };
        let get = || Request::Get { pattern: "a.*.value".into() };
        assert_eq!(page("a.20", get()), Reply::Error { errno: Errno::EMSGSIZE.0 });
        assert!(matches!(page("a.30.value", get()), Reply::Page { is_last: true, .. }));
        let set = Request::Set { pattern: "a.*.value".into(), value: "1".into() };
        let twice = Request::Page { after: String::new(), request: Box::new(get()) };
        for request in [set, Request::Devices, Request::Nids, twice] {
            assert_eq!(page("", request), Reply::Error { errno: Errno::EPROTO.0 });
        }
    }
}
