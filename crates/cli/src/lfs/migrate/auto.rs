//! `lfs migrate -A`: how many stripes a file gets by its size.

use std::path::Path;

use sheen_layout::{Asked, Count, Pool, STRIPES_MAX, Spec};
use sheen_wire::Result;

use super::super::Tool;

const GIB: u64 = 1 << 30;

/// Lustre's rule: the square root of the size in GiB, so that objects grow with the file, but
/// slower. At least one; more than there are OSTs the MDT cuts down.
fn stripes(bytes: u64) -> u16 {
    (bytes / GIB).isqrt().clamp(1, STRIPES_MAX as u64) as u16
}

/// The layout that a file is to get, in the pool that it has; `own`: what its own would be asked
/// for with.
///
/// # Errors
/// The file cannot be asked.
pub fn by_size(tool: &Tool, path: &Path, own: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    let pool = own.and_then(|own| pool_of(&Asked::decode(&own).ok()?));
    let count = Some(Count::Stripes(stripes(tool.fs.size(path)?)));
    Ok(Some(Asked::Plain(Spec { count, pool, ..Spec::default() }).encode()))
}

/// Of several the last one, where most of the file lies.
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
    fn stripes_grow_with_the_root_of_the_size() {
        for (gib, want) in [(0, 1), (1, 1), (3, 1), (4, 2), (15, 3), (16, 4), (1 << 10, 32), (u64::MAX >> 30, 2000)] {
            assert_eq!(stripes(gib * GIB), want, "{gib} GiB");
        }
    }

    #[test]
    fn the_pool_stays() {
        let spec = |pool: &str| Spec { pool: Pool::new(pool).ok(), ..Spec::default() };
        assert_eq!(pool_of(&Asked::Plain(spec("p"))), Pool::new("p").ok());
        let part = |start, end, pool| sheen_layout::TemplateComponent::striped(start, end, spec(pool));
        let parts = sheen_layout::Template::new(vec![part(0, 1 << 20, "first"), part(1 << 20, u64::MAX, "last")]);
        assert_eq!(pool_of(&Asked::Composite(parts)), Pool::new("last").ok());
    }
}
