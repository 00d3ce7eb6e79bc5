//! What a session's reads must see at level `session`: what the session has written and what it has seen (the
//! guarantees *read your writes* and *monotonic reads*; Hihooi section 5.3 for the levels).

use crate::freshness::{Freshness, Need, WriteId};
use crate::ids::Tsid;
use crate::items::Items;

/// Of so many unresolved writes it is looked at which have come by now (I8): no more are kept than the index has.
const UNRESOLVED_MAX: usize = 64;

/// How far a session has seen.
#[derive(Debug, Default)]
pub struct Watermark {
    tsid: Tsid,
    /// Its own writes, and those that it may have been shown, of which no TSID is known yet.
    unresolved: Vec<WriteId>,
}

impl Watermark {
    /// That of a session of which it isn't known what it has seen.
    #[must_use]
    pub fn of_all(freshness: &Freshness) -> Watermark {
        let mut watermark = Watermark::default();
        watermark.saw_primary(freshness);
        watermark
    }

    /// A transaction of its own was committed, or may have been.
    pub fn wrote(&mut self, write: WriteId, freshness: &Freshness) {
        if self.unresolved.len() >= UNRESOLVED_MAX {
            self.settle(freshness);
        }
        self.unresolved.push(write);
    }

    /// A replica showed it what is in the log up to here.
    pub fn saw(&mut self, applied: Tsid) {
        self.tsid = self.tsid.max(applied);
    }

    /// The primary showed it what there is, whether it has come by the stream or not.
    pub fn saw_primary(&mut self, freshness: &Freshness) {
        let Need { tsid, unresolved } = freshness.need(&Items::Everything);
        self.tsid = self.tsid.max(tsid);
        self.unresolved = unresolved;
    }

    /// What a replica must show that the session reads at next.
    pub fn need(&mut self, freshness: &Freshness) -> Need {
        self.settle(freshness);
        Need { tsid: self.tsid, unresolved: self.unresolved.clone() }
    }

    /// Forgets writes that have come by now. It isn't kept where: the newest entry isn't before them.
    fn settle(&mut self, freshness: &Freshness) {
        let before = self.unresolved.len();
        self.unresolved.retain(|write| freshness.is_unresolved(*write));
        if self.unresolved.len() < before {
            self.tsid = self.tsid.max(freshness.need(&Items::Everything).tsid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Xid;
    use crate::items::RelId;

    fn items() -> Items {
        Items::of([crate::items::Item::table(RelId(1))])
    }

    #[test]
    fn what_others_write_is_not_waited_for() {
        let mut freshness = Freshness::new(Tsid(10));
        let mut watermark = Watermark::default();
        freshness.begin(items());
        freshness.entry(Tsid(11), 7, &items());
        let need = watermark.need(&freshness);
        assert_eq!(need, Need { tsid: Tsid(0), unresolved: vec![] });
        watermark.saw(Tsid(9));
        watermark.saw(Tsid(8));
        assert_eq!(watermark.need(&freshness).tsid, Tsid(9), "monotonic");
    }

    #[test]
    fn own_writes_are_waited_for() {
        let mut freshness = Freshness::new(Tsid(10));
        let mut watermark = Watermark::default();
        let write = freshness.begin(items());
        freshness.acknowledged(write, Xid(20), 0);
        watermark.wrote(write, &freshness);
        assert_eq!(watermark.need(&freshness).unresolved, [write]);
        freshness.entry(Tsid(11), 7, &items());
        assert_eq!(watermark.need(&freshness).unresolved, [write]);
        freshness.entry(Tsid(12), 20, &items());
        assert_eq!(watermark.need(&freshness), Need { tsid: Tsid(12), unresolved: vec![] });
        freshness.entry(Tsid(13), 21, &items());
        assert_eq!(watermark.need(&freshness).tsid, Tsid(12));
    }

    #[test]
    fn i8_a_session_that_only_writes_keeps_few_of_its_writes() {
        let mut freshness = Freshness::new(Tsid(10));
        let mut watermark = Watermark::default();
        for n in 0..1_000 {
            let write = freshness.begin(items());
            freshness.acknowledged(write, Xid(20 + n), 0);
            watermark.wrote(write, &freshness);
            freshness.entry(Tsid(11 + n), 20 + n as u32, &items());
        }
        assert!(watermark.unresolved.len() <= UNRESOLVED_MAX);
        assert_eq!(watermark.need(&freshness), Need { tsid: Tsid(1_010), unresolved: vec![] });
    }

    #[test]
    fn what_the_primary_showed_is_waited_for() {
        let mut freshness = Freshness::new(Tsid(10));
        let mut watermark = Watermark::default();
        let others = freshness.begin(items());
        watermark.saw_primary(&freshness);
        assert_eq!(watermark.need(&freshness), Need { tsid: Tsid(10), unresolved: vec![others] });
        freshness.nothing(others);
        assert_eq!(watermark.need(&freshness), Need { tsid: Tsid(10), unresolved: vec![] });
    }
}
