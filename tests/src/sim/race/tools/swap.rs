//! `lfs swap_layouts`.

use sheen_wire::{Errno, Fid, Result, mds::flags};

use super::{ROOT_USER, Tool};
use crate::sim::race::{record::TROUBLES, span::Span};

impl Tool {
    /// Swaps the layouts of the two files that programs write. EBUSY: another client did not
    /// release one of them, and nothing is changed.
    pub(super) async fn swap(&mut self) {
        let mut fids = [self.stage.files[0], self.stage.files[1]];
        if self.rng.bool() {
            fids.swap(0, 1);
        }
        let from = self.stage.clock.tick();
        let number = {
            let mut record = self.stage.record();
            record.swaps.push((self.client, Span { from, to: Span::NEVER }));
            record.swaps.len() - 1
        };
        let done = async {
            let done = self.swapped(fids).await;
            let mut record = self.stage.record();
            let span = &mut record.swaps[number].1;
            match done {
                Ok(()) => span.to = self.stage.clock.tick(),
                Err(errno) if TROUBLES.contains(&errno) => {}
                Err(_) => *span = Span { from: Span::NEVER, to: Span::NEVER },
            }
            done
        };
        self.used(&format!("swaps {} and {}", fids[0], fids[1]), &[Errno::EBUSY], done).await;
    }

    async fn swapped(&self, [one, other]: [Fid; 2]) -> Result<()> {
        let mount = self.mount();
        let one = mount.open(ROOT_USER, one, flags::RDWR).await?;
        let done = match mount.open(ROOT_USER, other, flags::RDWR).await {
            Ok(other) => {
                let done = mount.swap_layouts(ROOT_USER, &one, other.fid()).await;
                // The result of the swap is known, so an error of the release does not matter.
                let _ = mount.release(other).await;
                done
            }
            // The swap was not requested.
            Err(errno) => Err(errno),
        };
        let _ = mount.release(one).await;
        done
    }
}
