//! Session guarantees: a session sees its own writes and never goes back in time, also when it
//! moves to another site, since it says what it saw last and the site waits for that (session
//! SI; RSSI paper, section 2, Daudjee and Salem's strong session SI).

use hihooi_check::Level;
use hihooi_sim::database::site::Planted;
use hihooi_sim::database::trial::{Protocol, trial};
use hihooi_sim::{explore, hunt};

use crate::common::{RSI, RSSI, is_found};

#[test]
fn sessions_that_move_keep_their_guarantees() {
    for protocol in [RSI, RSSI] {
        let sessions = Protocol { levels: &[Level::SessionSi], ..protocol };
        let name = "session_guarantees::sessions_that_move_keep_their_guarantees";
        explore(name, 1_000..1_100, |run| trial(run, &sessions, Planted::Nothing));
    }
}

#[test]
fn a_session_that_is_forgotten_is_found() {
    let found = is_found(40, &RSI, &RSI, Planted::SessionForgotten);
    assert!(found.contains("session-si is violated"), "{found}");
}

/// It is the sessions that suffer; each snapshot alone is still one of the one copy.
#[test]
fn forgetting_sessions_keeps_one_copy_si() {
    let weaker = Protocol { levels: &[Level::OneCopySi], ..RSI };
    let name = "session_guarantees::forgetting_sessions_keeps_one_copy_si";
    explore(name, 0..60, |run| trial(run, &weaker, Planted::SessionForgotten));
}

/// None of the protocols promises that a session sees what another was told (strong SI): a site
/// may be behind.
#[test]
fn strong_si_is_not_promised() {
    let stronger = Protocol { levels: &[Level::StrongSi], ..RSI };
    assert!(hunt(0..20, |run| trial(run, &stronger, Planted::Nothing)).is_some());
}
