//! Waiting for several futures at once, on one task.
//!
//! Invariants:
//! * every future is polled at least once before the first wait, so all requests are in flight
//!   together;
//! * results are returned in the order of the futures;
//! * a single future costs no more than itself.
//!
//! Each wake-up polls all unfinished futures, which is fine for the number of OSTs in one
//! operation.

use std::{
    fmt,
    future::{Future, poll_fn},
    pin::Pin,
    task::{Context, Poll},
};

enum Slot<F: Future> {
    Waiting(Pin<Box<F>>),
    Done(Option<F::Output>),
}

/// The future that [`join_all`] returns.
#[must_use = "futures do nothing unless polled"]
pub struct JoinAll<F: Future>(Vec<Slot<F>>);

impl<F: Future> fmt::Debug for JoinAll<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("JoinAll").field(&self.0.len()).finish()
    }
}

impl<F: Future> Unpin for JoinAll<F> {}

impl<F: Future> Future for JoinAll<F> {
    type Output = Vec<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut waiting = false;
        for slot in &mut self.0 {
            if let Slot::Waiting(future) = slot {
                match future.as_mut().poll(cx) {
                    Poll::Ready(output) => *slot = Slot::Done(Some(output)),
                    Poll::Pending => waiting = true,
                }
            }
        }
        if waiting {
            return Poll::Pending;
        }
        let take = |slot: &mut Slot<F>| match slot {
            Slot::Done(output) => output.take(),
            Slot::Waiting(_) => None,
        };
        Poll::Ready(self.0.iter_mut().filter_map(take).collect())
    }
}

/// Returns all outputs, in the order of the futures. The iterator is consumed before the first
/// poll, so that a caller's closures are not part of the future (the compiler cannot prove such a
/// future to be `Send`).
pub fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> JoinAll<F> {
    JoinAll(futures.into_iter().map(|f| Slot::Waiting(Box::pin(f))).collect())
}

/// Joins futures like [`join_all`], until one of them fails. The others are dropped then.
///
/// # Errors
/// The first error.
pub async fn try_join_all<T, E, F>(futures: impl IntoIterator<Item = F>) -> Result<Vec<T>, E>
where
    F: Future<Output = Result<T, E>>,
{
    let mut joined = join_all(futures);
    poll_fn(move |cx| match Pin::new(&mut joined).poll(cx) {
        Poll::Ready(outputs) => Poll::Ready(outputs.into_iter().collect()),
        Poll::Pending => joined.0.iter_mut().find_map(failure).map_or(Poll::Pending, |e| Poll::Ready(Err(e))),
    })
    .await
}

/// Takes the error of a future that has failed.
fn failure<T, E, F: Future<Output = Result<T, E>>>(slot: &mut Slot<F>) -> Option<E> {
    match slot {
        Slot::Done(output) if output.as_ref().is_some_and(Result::is_err) => output.take()?.err(),
        Slot::Done(_) | Slot::Waiting(_) => None,
    }
}

/// Joins futures like [`join_all`], at most `width` of them at a time.
pub async fn join_batches<F: Future>(futures: Vec<F>, width: usize) -> Vec<F::Output> {
    let mut futures = futures.into_iter();
    let mut outputs = Vec::with_capacity(futures.len());
    while futures.len() > 0 {
        outputs.extend(join_all(futures.by_ref().take(width.max(1))).await);
    }
    outputs
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future, task::Waker};

    use super::*;

    fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn join_all_keeps_order_and_starts_all_futures_before_waiting() {
        let (polls, open) = (Cell::new(0), Cell::new(false));
        let futures = (0..3).map(|i| {
            let (polls, open) = (&polls, &open);
            future::poll_fn(move |_| {
                polls.set(polls.get() + 1);
                if open.get() || i == 1 { Poll::Ready(i) } else { Poll::Pending }
            })
        });
        let mut joined = std::pin::pin!(join_all(futures));
        assert!(poll_once(joined.as_mut()).is_pending());
        assert_eq!(polls.get(), 3, "all were started");
        open.set(true);
        assert_eq!(poll_once(joined.as_mut()), Poll::Ready(vec![0, 1, 2]));
        assert_eq!(polls.get(), 5, "the finished one is left alone");
    }

    #[test]
    fn try_join_all_ends_with_the_first_failure() {
        let ready = |result: Result<u8, u8>| -> Pin<Box<dyn Future<Output = _>>> { Box::pin(future::ready(result)) };
        let waiting: Pin<Box<dyn Future<Output = _>>> = Box::pin(future::pending());
        let joined = std::pin::pin!(try_join_all([ready(Ok(1)), waiting, ready(Err(2))]));
        assert_eq!(poll_once(joined), Poll::Ready(Err(2)));
        let joined = std::pin::pin!(try_join_all([ready(Ok(1)), ready(Ok(2))]));
        assert_eq!(poll_once(joined), Poll::Ready(Ok(vec![1, 2])));
    }

    #[test]
    fn join_of_ready_futures_completes_at_first_poll() {
        let none: [future::Ready<u8>; 0] = [];
        assert_eq!(poll_once(std::pin::pin!(join_all(none))), Poll::Ready(vec![]));
        assert_eq!(poll_once(std::pin::pin!(join_all([future::ready(1)]))), Poll::Ready(vec![1]));
        let five = (0..5).map(future::ready).collect();
        assert_eq!(poll_once(std::pin::pin!(join_batches(five, 2))), Poll::Ready(vec![0, 1, 2, 3, 4]));
    }
}
