//! What the measuring programs share: file systems to measure ([`stage`] for one mount, [`cluster`]
//! for several), work to do on them ([`work`], [`crew`]), the program as users call it ([`sheen`]),
//! arithmetic ([`stats`]), and how it is told ([`report`], [`chart`]). Programs in `src/bin/` put
//! them together; `docs/performance.md` keeps what they print.

pub mod allocs;
pub mod chart;
pub mod cluster;
pub mod crew;
pub mod netflow;
pub mod patterns;
pub mod report;
pub mod sheen;
pub mod stage;
pub mod stats;
pub mod stop;
pub mod work;
