//! The stupid twin of `rssi`: the literal definition 3.1 over the whole history, nothing forgotten,
//! no index, no bounds kept. The lsv may be chosen: it tries one after another.

use hihooi_certify::certification::Timestamp;

use super::oracle::touched;
use super::world::Attempt;

/// What it decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It commits.
    Commits,
    /// Another wrote the same row.
    WriteConflict,
    /// It would complete a descending structure.
    Descending,
}

/// All that committed.
#[derive(Default)]
pub struct Naive {
    committed: Vec<Kept>,
}

struct Kept {
    attempt: Attempt,
    at: Timestamp,
    lsv: Timestamp,
    /// Places of those it has an rw-edge to, and from.
    out: Vec<usize>,
    into: Vec<usize>,
}

impl Naive {
    /// Decides over an attempt at this position whose lsv may be the lowest or, unless by the
    /// letter, above.
    pub fn certify(
        &mut self,
        attempt: &Attempt,
        lowest: Timestamp,
        by_the_letter: bool,
        at: Timestamp,
    ) -> Verdict {
        let begin = attempt.transaction.begin;
        let concurrent = self.committed.iter().filter(|one| one.at > begin);
        let writes = &attempt.transaction.writes;
        let mut theirs = concurrent.flat_map(|one| &one.attempt.transaction.writes);
        if theirs.any(|other| writes.iter().any(|write| write.same_row(other))) {
            return Verdict::WriteConflict;
        }
        let places = || 0..self.committed.len();
        let touches = |reader, writer| touched(reader, writer).next().is_some();
        let out: Vec<usize> = places()
            .filter(|&i| self.committed[i].at > begin)
            .filter(|&i| touches(attempt, &self.committed[i].attempt))
            .collect();
        let into: Vec<usize> =
            places().filter(|&i| touches(&self.committed[i].attempt, attempt)).collect();
        let overwritten = out.iter().map(|&i| self.committed[i].at).min().unwrap_or(at);
        let is_led_to = into.iter().any(|&i| self.committed[i].at > lowest);
        let highest = match (writes.is_empty() || by_the_letter, is_led_to) {
            (true, _) => lowest.0,
            (false, false) => begin.0,
            (false, true) => overwritten.0 - 1,
        };
        let mut lsvs = (lowest.0..=highest).rev().map(Timestamp);
        let fits = |lsv: &Timestamp| !self.completes_a_structure(*lsv, &out, &into);
        let Some(lsv) = lsvs.find(fits) else {
            return Verdict::Descending;
        };
        let new = self.committed.len();
        out.iter().for_each(|&i| self.committed[i].into.push(new));
        into.iter().for_each(|&i| self.committed[i].out.push(new));
        self.committed.push(Kept { attempt: attempt.clone(), at, lsv, out, into });
        Verdict::Commits
    }

    /// Whether one of the three of some descending structure would be the new one.
    fn completes_a_structure(&self, lsv: Timestamp, out: &[usize], into: &[usize]) -> bool {
        let of = |i: &usize| self.committed[*i].lsv;
        let descends = |peak, follow, trailing| follow <= peak && trailing <= peak;
        let peak = out.iter().any(|follow| {
            let mut trailing = self.committed[*follow].out.iter();
            trailing.any(|trailing| descends(lsv, of(follow), of(trailing)))
                || (into.contains(follow) && descends(lsv, of(follow), lsv))
        });
        let follow = into
            .iter()
            .any(|peak| out.iter().any(|trailing| descends(of(peak), lsv, of(trailing))));
        let trailing = into.iter().any(|follow| {
            let mut peaks = self.committed[*follow].into.iter();
            peaks.any(|peak| descends(of(peak), of(follow), lsv))
        });
        peak || follow || trailing
    }
}
