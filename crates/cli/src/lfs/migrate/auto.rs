//! `lfs migrate -A`: chooses a file's stripe count by its size.

use std::path::Path;

use sheen_layout::{Asked, Count, Pool, STRIPES_MAX, Spec};
use sheen_wire::Result;

use super::super::tool::Tool;

const GIB: u64 = 1 << 30;

/// Returns Lustre's stripe count: the square root of the size in GiB, at least one. Objects thus
/// grow with the file, but more slowly. The MDT caps the count at the number of OSTs.
fn stripes(bytes: u64) -> u16 {
    (bytes / GIB).isqrt().clamp(1, STRIPES_MAX as u64) as u16
}

/// Returns the layout that a file is to get, in the pool that it has. `own`: the request for its
/// present layout.
///
/// # Errors
/// The file's size cannot be read.
pub fn by_size(tool: &Tool, path: &Path, own: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    let pool = own.and_then(|own| pool_of(&Asked::decode(&own).ok()?));
    let count = Some(Count::Stripes(stripes(tool.fs.size(path)?)));
    Ok(Some(Asked::Plain(Spec { count, pool, ..Spec::default() }).encode()))
}

/// Returns the pool of a layout. Of several pools it is the last, which holds most of the file.
fn pool_of(own: &Asked) -> Option<Pool> {
    match own {
        Asked::Plain(spec) => spec.pool.clone(),
        Asked::Composite(template) => template.components.iter().rev().find_map(|c| c.spec.pool.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn migrate_auto_stripe_count_is_root_of_size() {
        for (gib, want) in [(0, 1), (1, 1), (3, 1), (4, 2), (15, 3), (16, 4), (1 << 10, 32), (u64::MAX >> 30, 2000)] {
            assert_eq!(stripes(gib * GIB), want, "{gib} GiB");
        }
    }

    #[test]
    fn migrate_auto_keeps_the_last_pool() {
        let spec = |pool: &str| Spec { pool: Pool::new(pool).ok(), ..Spec::default() };
        assert_eq!(pool_of(&Asked::Plain(spec("p"))), Pool::new("p").ok());
        let part = |start, end, pool| sheen_layout::TemplateComponent::striped(start, end, spec(pool));
        let parts = sheen_layout::Template::new(vec![part(0, 1 << 20, "first"), part(1 << 20, u64::MAX, "last")]);
        assert_eq!(pool_of(&Asked::Composite(parts)), Pool::new("last").ok());
    }
}
