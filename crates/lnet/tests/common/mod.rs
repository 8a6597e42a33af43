//! Somebody between a client and a server.

use std::{
    io::IoSlice,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use sheen_rt::{ReadHalf, Rt, WriteHalf};

/// The acts of somebody between the ends, on the bytes of one direction.
#[derive(Default)]
pub struct Middle {
    /// Changes one bit of each read from now on.
    pub flip: AtomicBool,
    /// Sends the bytes of each read twice from now on.
    pub repeat: AtomicBool,
    /// The bytes until now.
    pub seen: Mutex<Vec<u8>>,
}

async fn pass_on(mut from: ReadHalf, mut to: WriteHalf, middle: Arc<Middle>) {
    let mut bytes = vec![0; 4096];
    while let Ok(n @ 1..) = from.read_some(&mut bytes).await {
        middle.seen.lock().unwrap().extend(&bytes[..n]);
        if middle.flip.load(Ordering::Relaxed) {
            bytes[n / 2] ^= 4;
        }
        for _ in 0..1 + usize::from(middle.repeat.load(Ordering::Relaxed)) {
            if to.write_all_vectored(&[IoSlice::new(&bytes[..n])]).await.is_err() {
                return;
            }
        }
    }
}

/// Passes the bytes of one connection on to a server until an end closes it. `middle` acts on those
/// to the server, and `back` on those to the client. Returns the address for the client.
pub async fn relay(rt: &Rt, to: SocketAddr, middle: Arc<Middle>, back: Arc<Middle>) -> SocketAddr {
    let listener = rt.listen(([127, 0, 0, 1], 0).into()).await.unwrap();
    let addr = listener.local_addr().unwrap();
    let there = rt.connect(to).await.unwrap();
    let tasks = rt.clone();
    drop(rt.spawn("relay", async move {
        let (client, _) = listener.accept().await.unwrap();
        let ((from_client, to_client), (from_server, to_server)) = (client.split(), there.split());
        drop(tasks.spawn("relay", pass_on(from_client, to_server, middle)));
        pass_on(from_server, to_client, back).await;
    }));
    addr
}
