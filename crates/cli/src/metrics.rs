//! The metrics of a process at an address, for Prometheus.

use std::{io, net::SocketAddr};

use sheen_rt::Rt;

use crate::{
    args::MetricsArg,
    error::{Failure, Result},
    host::Host,
};

impl Host {
    /// Serves the metrics of this process until it ends, if the user asks for it. Returns the
    /// address with its port.
    ///
    /// # Errors
    /// The address cannot be used.
    pub async fn serve_metrics(&self, asked: MetricsArg) -> Result<Option<SocketAddr>> {
        let Some(addr) = asked.metrics else { return Ok(None) };
        let (rt, params) = (self.rt.clone(), self.params.clone());
        let source = move || {
            let (rt, params) = (rt.clone(), params.clone());
            // Reading a parameter may wait for a disk. The endpoint waits for the thread's end
            // before it starts the next one.
            async move { rt.run_blocking(move || sheen_metrics::text_of(&params)).await }
        };
        serve_at(&self.rt, addr, source).await.map(Some)
    }
}

/// Serves metrics at an address until the runtime ends. `source` returns their text, anew for each
/// request, and for one request at a time. Returns the address with its port.
///
/// # Errors
/// The address cannot be used.
pub async fn serve_at<F, Fut>(rt: &Rt, addr: SocketAddr, source: F) -> Result<SocketAddr>
where
    F: Fn() -> Fut + Send + Sync + 'static,
    Fut: Future<Output = String> + Send + 'static,
{
    let listener = rt.listen(addr).await.map_err(|e| cannot_serve(addr, &e))?;
    let bound = listener.local_addr().map_err(|e| cannot_serve(addr, &e))?;
    drop(rt.spawn("metrics", sheen_metrics::serve(rt.clone(), listener, source)));
    tracing::info!("metrics at http://{bound}/metrics: everybody who reaches this address can read them");
    Ok(bound)
}

fn cannot_serve(addr: SocketAddr, error: &io::Error) -> Failure {
    let (failure, port) = (Failure::new(format!("cannot serve metrics at {addr}: {error}")), addr.port());
    match error.kind() {
        io::ErrorKind::AddrInUse => failure.advise(format!(
            "another process uses port {port} (`ss -tlnp sport = :{port}` shows it); choose another port, or port 0 \
             for any free port"
        )),
        io::ErrorKind::PermissionDenied => {
            failure.advise("ports below 1024 are reserved for root; choose another port, such as 9117")
        }
        _ => failure,
    }
}
