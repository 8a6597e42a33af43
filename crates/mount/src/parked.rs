//! Parked futures: a future is polled where it was started, and its first wake-up makes it a task.
//!
//! To hand a pending future to the runtime at once would wake a thread of the runtime only to find
//! that the future is pending. Here its first wake-up spawns it instead. Over tcp the thread that
//! wakes it is the one that received the reply, and this thread continues the future itself.
//!
//! Invariants:
//! * One thread at a time polls the future: first [`go_on`], then the task.
//! * No wake-up is lost: if one comes while [`go_on`] polls, the task is spawned right after that
//!   poll.

use std::{
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Wake, Waker},
};

use parking_lot::Mutex;
use sheen_rt::Rt;

/// A future that can be parked.
pub type Waiting = Pin<Box<dyn Future<Output = ()> + Send>>;

struct Parked {
    rt: Rt,
    name: &'static str,
    state: Mutex<State>,
}

enum State {
    /// The future is being polled for the first time.
    Polling,
    /// As `Polling`, and a wake-up has come meanwhile.
    Woken,
    /// The future waits for its first wake-up.
    Waiting(Waiting),
    /// The future is done, or is a task.
    Finished,
}

/// Polls a future here. If it is pending, the runtime finishes it as a task called `name` once it
/// is woken.
pub fn go_on(rt: &Rt, name: &'static str, mut future: Waiting) {
    let parked = Arc::new(Parked { rt: rt.clone(), name, state: Mutex::new(State::Polling) });
    let waker = Waker::from(parked.clone());
    let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
    let mut state = parked.state.lock();
    *state = match (&*state, done) {
        (_, true) => State::Finished,
        (State::Polling, false) => State::Waiting(future),
        (_, false) => {
            drop(rt.spawn(name, future));
            State::Finished
        }
    };
}

impl Wake for Parked {
    fn wake(self: Arc<Parked>) {
        let mut state = self.state.lock();
        match mem::replace(&mut *state, State::Finished) {
            State::Polling | State::Woken => *state = State::Woken,
            State::Waiting(future) => {
                drop(state);
                drop(self.rt.spawn(self.name, future));
            }
            State::Finished => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use sheen_rt::RealOptions;
    use tokio::sync::oneshot;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn with_runtime(test: impl FnOnce(&Rt)) {
        let (runtime, rt) = Rt::real(RealOptions { worker_threads: 1, ..RealOptions::default() }).unwrap();
        test(&rt);
        runtime.shutdown(PATIENCE);
    }

    #[test]
    fn parked_future_is_finished_by_runtime_after_wake_up() {
        with_runtime(|rt| {
            let (first, wait_first) = oneshot::channel();
            let (second, wait_second) = oneshot::channel::<()>();
            let (report, reports) = mpsc::channel();
            go_on(
                rt,
                "test",
                Box::pin(async move {
                    report.send("begun").unwrap();
                    let () = wait_first.await.unwrap();
                    report.send("woken").unwrap();
                    assert!(wait_second.await.is_err(), "its sender was dropped");
                    report.send("done").unwrap();
                }),
            );
            assert_eq!(reports.try_recv(), Ok("begun"), "the caller polls it");
            first.send(()).unwrap();
            assert_eq!(reports.recv_timeout(PATIENCE), Ok("woken"));
            drop(second);
            assert_eq!(reports.recv_timeout(PATIENCE), Ok("done"));
        });
    }

    #[test]
    fn wake_up_during_first_poll_is_not_lost() {
        with_runtime(|rt| {
            let (report, reports) = mpsc::channel();
            let mut polls = 0;
            let future = std::future::poll_fn(move |cx| {
                polls += 1;
                cx.waker().wake_by_ref();
                cx.waker().wake_by_ref();
                if polls < 3 {
                    return std::task::Poll::Pending;
                }
                report.send(polls).unwrap();
                std::task::Poll::Ready(())
            });
            go_on(rt, "test", Box::pin(future));
            assert_eq!(reports.recv_timeout(PATIENCE), Ok(3));
        });
    }

    #[test]
    fn future_ready_at_first_poll_is_dropped_at_once() {
        with_runtime(|rt| {
            let owned = Arc::new(());
            let held = owned.clone();
            let mut waker = None;
            let (send, sent) = mpsc::channel();
            go_on(
                rt,
                "test",
                Box::pin(std::future::poll_fn(move |cx| {
                    let _held = &held;
                    send.send(cx.waker().clone()).unwrap();
                    std::task::Poll::Ready(())
                })),
            );
            waker.replace(sent.recv().unwrap()).into_iter().for_each(|w: Waker| w.wake());
            assert_eq!(Arc::strong_count(&owned), 1);
            waker.unwrap().wake(); // late, and harmless
        });
    }
}
