//! The choice of a server (vDBSM paper, sections 4.1 and 4.2): from the load of each server and
//! the weight there that conflicts with the transaction, to one server.
//!
//! MCF is MPF with factor 0, as the paper notes: all servers are candidates.
//!
//! Departures.
//! - Where the paper takes "any one", the choice is fixed so that a run can be repeated: among
//!   equally light servers the first; among servers with equal conflicting weight each in turn,
//!   beginning with the first. This is what yields all three assignments of section 4.3; the
//!   first one every time doesn't (its MPF 0.8 puts T1 on S4 although S2 ties and comes first).
//! - The paper bounds the factor to 0 < f <= 1 and gets MCF "with f = 0". But small factors are not similar to
//!   0: with any f above 0 an idle server is the only candidate, since w * f <= 0 holds for no other. MPF
//!   0.000001 is similar to MCF only when all servers have load.
//! - A server that is down is not considered: the choice is the one that the paper's steps make among the
//!   others.
//! - Loads and factor are whole numbers (the factor in millionths), so that w * f <= min is exact.

use crate::ServerId;

const MILLION: u32 = 1_000_000;

/// How far loads may differ and still count as similar: 1 is "not at all", 0.5 is "twice as
/// much", 0 is "as it comes" (vDBSM paper, section 4.2). Kept in millionths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Factor(u32);

impl Factor {
    /// Loads don't matter as long as there are conflicts: MCF.
    pub const ZERO: Factor = Factor(0);
    /// Only servers with the lowest load are candidates.
    pub const ONE: Factor = Factor(MILLION);

    /// A factor from 0 to 1, rounded to millionths; a factor above 0 does not round to 0.
    #[must_use]
    pub fn new(factor: f64) -> Option<Factor> {
        if !(0.0..=1.0).contains(&factor) {
            return None;
        }
        let millionths = (factor * f64::from(MILLION)).round();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // 0 to a million
        let millionths = millionths as u32;
        Some(Factor(millionths.max(u32::from(factor > 0.0))))
    }

    /// As a number from 0 to 1.
    #[must_use]
    pub fn get(self) -> f64 {
        f64::from(self.0) / f64::from(MILLION)
    }

    /// Whether a server is a candidate: w * f <= min (vDBSM paper, section 4.2, step 2).
    fn admits(self, load: u64, lightest: u64) -> bool {
        u128::from(load) * u128::from(self.0) <= u128::from(lightest) * u128::from(MILLION)
    }
}

/// How servers are chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// Maximizing parallelism first with a factor; with factor 0, minimizing conflicts first.
    Mpf(Factor),
    /// The lowest load, blind to conflicts.
    LeastLoaded,
    /// Each in turn, blind to both.
    RoundRobin,
    /// Any, by the caller's random bits.
    Random,
}

impl Policy {
    /// Minimizing conflicts first.
    pub const MCF: Policy = Policy::Mpf(Factor::ZERO);
}

/// What a choice is made from; one element per server in each.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Aggregated weight of a server's transactions.
    pub load: &'a [u64],
    /// Aggregated weight of those that conflict with the transaction at hand.
    pub conflicting: &'a [u64],
    /// Whether it may be chosen.
    pub up: &'a [bool],
}

impl View<'_> {
    fn candidates(&self) -> impl Iterator<Item = usize> {
        (0..self.up.len()).filter(|&server| self.up[server])
    }

    fn lightest(&self) -> Option<usize> {
        self.candidates().min_by_key(|&server| self.load[server])
    }
}

/// Why a server was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// A read-only transaction goes to the lowest load (MCF step 4, MPF step 5).
    ReadOnly,
    /// No other server's load is low enough (MPF step 3).
    OnlyCandidate,
    /// No candidate has a conflicting transaction: the lowest load (step a).
    NoConflict,
    /// One candidate has conflicting transactions (step b).
    OneConflicts,
    /// The candidate with the highest conflicting weight (step c).
    MostConflicts,
    /// The lowest load, by a policy that knows no conflicts.
    LeastLoaded,
    /// Its turn.
    Turn,
    /// Drawn.
    Drawn,
}

/// A server and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Where the transaction should run.
    pub server: ServerId,
    /// Why there.
    pub reason: Reason,
}

/// A policy and what it remembers between choices.
#[derive(Clone, Debug)]
pub struct Chooser {
    policy: Policy,
    /// Round robin: the server after the last one. MPF: ties of conflicting weight so far.
    turn: usize,
}

impl Chooser {
    /// One that has chosen nothing yet.
    #[must_use]
    pub fn new(policy: Policy) -> Chooser {
        Chooser { policy, turn: 0 }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> Policy {
        self.policy
    }

    /// Chooses for an update transaction, or a read-only one. `random` is used by `Random` alone.
    /// None when no server is up.
    pub fn choose(&mut self, view: &View<'_>, update: bool, random: u64) -> Option<Choice> {
        let lightest = view.lightest()?;
        let (server, reason) = match self.policy {
            Policy::Mpf(_) if !update => (lightest, Reason::ReadOnly),
            Policy::Mpf(factor) => self.by_conflicts(view, factor, lightest),
            Policy::LeastLoaded => (lightest, Reason::LeastLoaded),
            Policy::RoundRobin => (self.next_in_turn(view), Reason::Turn),
            Policy::Random => (drawn(view, random), Reason::Drawn),
        };
        Some(Choice { server: ServerId::at(server), reason })
    }

    /// MPF's steps 2 to 4 (vDBSM paper, section 4.2).
    fn by_conflicts(
        &mut self,
        view: &View<'_>,
        factor: Factor,
        lightest: usize,
    ) -> (usize, Reason) {
        let lowest = view.load[lightest];
        let light = || view.candidates().filter(|&s| factor.admits(view.load[s], lowest));
        if light().nth(1).is_none() {
            return (lightest, Reason::OnlyCandidate);
        }
        let most = light().map(|s| view.conflicting[s]).max().unwrap_or(0);
        if most == 0 {
            return (lightest, Reason::NoConflict);
        }
        let tied = || light().filter(|&s| view.conflicting[s] == most);
        let server = tied().nth(self.turn_among(tied().count())).expect("a maximum is attained");
        let alone = light().filter(|&s| view.conflicting[s] > 0).nth(1).is_none();
        (server, if alone { Reason::OneConflicts } else { Reason::MostConflicts })
    }

    /// Which of so many equal ones: each in turn.
    fn turn_among(&mut self, count: usize) -> usize {
        if count == 1 {
            return 0;
        }
        let turn = self.turn;
        self.turn = self.turn.wrapping_add(1);
        turn % count
    }

    fn next_in_turn(&mut self, view: &View<'_>) -> usize {
        let count = view.up.len();
        let server = (0..count)
            .map(|step| (self.turn + step) % count)
            .find(|&server| view.up[server])
            .expect("one server is up");
        self.turn = (server + 1) % count;
        server
    }
}

/// Every server that is up with (all but) the same probability.
fn drawn(view: &View<'_>, random: u64) -> usize {
    let count = view.candidates().count() as u128;
    let place = usize::try_from((u128::from(random) * count) >> 64).expect("below count");
    view.candidates().nth(place).expect("below count")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UP: [bool; 4] = [true; 4];

    fn view<'a>(load: &'a [u64], conflicting: &'a [u64], up: &'a [bool]) -> View<'a> {
        View { load, conflicting, up }
    }

    fn choose(policy: Policy, view: &View<'_>) -> (u16, Reason) {
        let choice = Chooser::new(policy).choose(view, true, 0).expect("a server is up");
        (choice.server.0, choice.reason)
    }

    /// Section 4.2: w * f <= min, so that a load of 10 is similar to 8 under 0.8, and 11 is not.
    #[test]
    fn similar_load_is_exact() {
        let factor = Factor::new(0.8).expect("a factor");
        assert!(factor.admits(10, 8));
        assert!(!factor.admits(11, 8));
        assert!(Factor::ONE.admits(8, 8) && !Factor::ONE.admits(9, 8));
        assert!(Factor::ZERO.admits(u64::MAX, 0));
    }

    #[test]
    fn factors_are_from_nought_to_one() {
        for bad in [-0.1, 1.000_001, f64::NAN, f64::INFINITY] {
            assert_eq!(Factor::new(bad), None);
        }
        assert_eq!(Factor::new(0.0), Some(Factor::ZERO));
        assert_eq!(Factor::new(1.0), Some(Factor::ONE));
        assert!(Factor::new(1e-9) > Some(Factor::ZERO));
    }

    /// Sections 4.1 step 3 and 4.2 step 4, one case each.
    #[test]
    fn each_step_has_its_reason() {
        let loads = [10, 9, 8, 7];
        let mcf = |conflicting| choose(Policy::MCF, &view(&loads, conflicting, &UP));
        assert_eq!(mcf(&[0, 0, 0, 0]), (3, Reason::NoConflict));
        assert_eq!(mcf(&[10, 0, 0, 0]), (0, Reason::OneConflicts));
        assert_eq!(mcf(&[4, 9, 3, 0]), (1, Reason::MostConflicts));
        let mpf = |f, conflicting| {
            let policy = Policy::Mpf(Factor::new(f).expect("a factor"));
            choose(policy, &view(&loads, conflicting, &UP))
        };
        assert_eq!(mpf(1.0, &[4, 9, 3, 0]), (3, Reason::OnlyCandidate));
        assert_eq!(mpf(0.8, &[4, 9, 3, 0]), (2, Reason::OneConflicts));
        assert_eq!(mpf(0.8, &[4, 9, 0, 0]), (3, Reason::NoConflict));
        assert_eq!(mpf(0.75, &[4, 9, 3, 0]), (1, Reason::MostConflicts));
    }

    /// Sections 4.1 step 4 and 4.2 step 5.
    #[test]
    fn read_only_transactions_go_to_the_lowest_load() {
        for policy in [Policy::MCF, Policy::Mpf(Factor::ONE)] {
            let view = view(&[3, 2, 2, 9], &[3, 0, 0, 9], &UP);
            let choice = Chooser::new(policy).choose(&view, false, 0).expect("up");
            assert_eq!((choice.server.0, choice.reason), (1, Reason::ReadOnly));
        }
    }

    #[test]
    fn a_server_that_is_down_is_passed_over() {
        let up = [true, false, true, true];
        let loads = [10, 1, 8, 7];
        let conflicting = [4, 9, 3, 0];
        let view = view(&loads, &conflicting, &up);
        assert_eq!(choose(Policy::MCF, &view), (0, Reason::MostConflicts));
        // The minimum is 7, not the 1 of the server that is down.
        let half = Policy::Mpf(Factor::new(0.8).expect("a factor"));
        assert_eq!(choose(half, &view), (2, Reason::OneConflicts));
        assert_eq!(choose(Policy::LeastLoaded, &view), (3, Reason::LeastLoaded));
        let mut turns = Chooser::new(Policy::RoundRobin);
        let servers: Vec<u16> =
            (0..4).map(|_| turns.choose(&view, true, 0).expect("up").server.0).collect();
        assert_eq!(servers, [0, 2, 3, 0]);
        let none = View { up: &[false; 4], ..view };
        assert_eq!(turns.choose(&none, true, 0), None);
    }

    #[test]
    fn random_bits_reach_every_server_that_is_up() {
        let up = [true, false, true, true];
        let view = view(&[0; 4], &[0; 4], &up);
        let drawn: Vec<usize> = [0, u64::MAX / 2, u64::MAX].map(|r| drawn(&view, r)).to_vec();
        assert_eq!(drawn, [0, 2, 3]);
    }

    /// The departure: the paper's f = 0 is not the limit of small factors.
    #[test]
    fn an_idle_server_is_the_only_candidate_whatever_the_factor() {
        let view = view(&[10, 0, 3, 4], &[10, 0, 0, 0], &UP);
        let small = Policy::Mpf(Factor::new(1e-6).expect("a factor"));
        assert_eq!(choose(small, &view), (1, Reason::OnlyCandidate));
        assert_eq!(choose(Policy::MCF, &view), (0, Reason::OneConflicts));
    }
}
