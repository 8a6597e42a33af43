//! Queries: the tests of a search, and where it begins and ends.

use sheen_wire::{Result, entries};

use super::{
    facts::{Cost, Facts},
    needs::Needs,
    test::{Property, Targets, Test},
};

/// The tests and bounds of a search.
#[derive(Clone, Debug)]
pub struct Query {
    /// Tests that must all hold, cheapest first.
    tests: Vec<Test>,
    /// Start of the search in seconds since the epoch, from which ages are measured.
    now: i64,
    /// Entries at fewer levels below a root are not found.
    pub min_depth: u32,
    /// Entries at more levels below a root are not visited.
    pub max_depth: u32,
    /// Whether cached attributes are accepted, however old.
    pub lazy: bool,
    /// Percentage of the found entries that is left out.
    pub skip: u64,
}

impl Query {
    /// Creates a query for all entries. `now`: in seconds since the epoch.
    pub fn new(now: i64) -> Query {
        Query { tests: Vec::new(), now, min_depth: 0, max_depth: u32::MAX, lazy: false, skip: 0 }
    }

    /// Returns the start of the search in seconds since the epoch.
    pub fn now(&self) -> i64 {
        self.now
    }

    /// Adds a test. It replaces an earlier one of the same kind ([`Test::replaces`]).
    pub fn add(&mut self, test: Test) {
        self.tests.retain(|other| !test.replaces(other));
        let place = self.tests.partition_point(|other| other.cost() <= test.cost());
        self.tests.insert(place, test);
    }

    /// Returns what the tests need.
    pub fn needs(&self) -> Needs {
        self.tests.iter().map(Test::needs).fold(Needs::default(), |all, needs| all | needs)
    }

    /// Returns the flags of the request to directories that return attributes of their entries
    /// ([`sheen_wire::entries`]). `None`: such a request would save no call. `needs`: what the
    /// tests and the caller need.
    ///
    /// If names are tested as well, the flags leave out the OSTs, which are then asked only for
    /// entries with a matching name.
    pub fn listing_flags(&self, needs: Needs) -> Option<u32> {
        let named = self.tests.iter().any(|test| matches!(test.property, Property::Name(_)) && !test.negated);
        let flag = |flag, set| if set { flag } else { 0 };
        let flags = flag(entries::SIZES, needs.sizes && !named)
            | flag(entries::LAZY, self.lazy)
            | flag(entries::LAYOUTS, needs.layout);
        (needs.stat || needs.layout).then_some(flags)
    }

    /// Whether tests of attributes or layouts can exclude entries with data from the MDT alone.
    pub fn is_narrowed_by_mdt(&self) -> bool {
        self.tests.iter().any(Test::is_of_mdt)
    }

    /// Whether an entry passes the tests that the MDT alone decides. A test that fails with an
    /// error counts as passed, and the other tests decide.
    pub fn passes_by_mdt(&self, entry: &mut impl Facts) -> bool {
        let passes = |test: &Test| !test.is_of_mdt() || test.passes(entry, self.now).unwrap_or(true);
        self.tests.iter().all(passes)
    }

    /// Whether an entry passes the tests that need no request, so that the other tests are
    /// worthwhile.
    pub fn passes_free_tests(&self, entry: &mut impl Facts) -> bool {
        let free = self.tests.iter().take_while(|test| test.cost() == Cost::Entry);
        // An error here counts as passed: the test is repeated later and its error reported then.
        free.map(|test| test.passes(entry, self.now)).all(|passed| passed.unwrap_or(true))
    }

    /// Whether an entry passes all tests.
    ///
    /// # Errors
    /// The errno of a failed request.
    pub fn matches(&self, entry: &mut impl Facts) -> Result<bool> {
        for test in &self.tests {
            if !test.passes(entry, self.now)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns the targets that must be looked up by name, and whether they are OSTs or MDTs.
    pub fn named_targets(&mut self) -> impl Iterator<Item = (bool, &mut Targets)> {
        let targets = self.tests.iter_mut().filter_map(|test| match &mut test.property {
            Property::Ost(targets) => Some((true, targets)),
            Property::Mdt(targets) => Some((false, targets)),
            _ => None,
        });
        targets.filter(|(_, targets)| !targets.names.is_empty())
    }
}
