//! What the measuring programs share: file systems to measure ([`stage`]), work to do on them ([`work`]), and arithmetic
//! ([`stats`]). Programs in `src/bin/` put them together; `docs/performance.md` keeps what they print.

pub mod stage;
pub mod stats;
pub mod work;
