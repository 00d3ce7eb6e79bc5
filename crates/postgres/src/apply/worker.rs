//! The task for each connection that writes: receives commands, and reports their outcomes.

use tokio::sync::mpsc;

use super::session::Session;
use super::work::{Failure, Group};

/// Orders to one worker: it has at most one group, so few are ever on their way.
pub(super) const ORDERS_LEN: usize = 4;

/// What a worker is to do.
#[derive(Debug)]
pub(super) enum Order {
    /// Get ready to execute a group.
    Prepare(Group),
    Execute(Group),
    Commit,
    Abort,
}

/// What a worker did.
#[derive(Debug)]
pub(super) enum Outcome {
    /// What the group changes in the end may have been refused; then its changes were made as they came.
    Executed {
        is_net_refused: bool,
    },
    Committed,
    Aborted,
    Failed(Failure),
}

/// Runs until its orders end or the connection is lost.
pub(super) async fn run(
    number: usize,
    mut session: Session,
    mut orders: mpsc::Receiver<Order>,
    outcomes: mpsc::Sender<(usize, Outcome)>,
) {
    let mut group = None;
    loop {
        let order = tokio::select! {
            biased;
            order = orders.recv() => order,
            reason = session.broken() => {
                // Whoever listened may be gone too.
                let _ = outcomes.send((number, Outcome::Failed(Failure::Lost(reason)))).await;
                return;
            }
        };
        let Some(order) = order else { break };
        let Some(outcome) = obey(&mut session, &mut group, order).await else { continue };
        let is_lost = matches!(outcome, Outcome::Failed(Failure::Lost(_)));
        if outcomes.send((number, outcome)).await.is_err() || is_lost {
            return;
        }
    }
    session.close().await;
}

/// What came of an order; nothing is told of one that isn't over.
async fn obey(session: &mut Session, group: &mut Option<Group>, order: Order) -> Option<Outcome> {
    Some(match order {
        Order::Prepare(next) => return session.get_ready(&next).await.err().map(Outcome::Failed),
        Order::Execute(next) => {
            let done = session.execute(group.insert(next)).await;
            done.map_or_else(Outcome::Failed, |is_net_refused| Outcome::Executed { is_net_refused })
        }
        Order::Commit => {
            let group = group.take().expect("a commit follows its execution");
            let done = session.commit(&group).await;
            done.map_or_else(Outcome::Failed, |()| Outcome::Committed)
        }
        Order::Abort => {
            *group = None;
            session.abort().await.map_or_else(Outcome::Failed, |()| Outcome::Aborted)
        }
    })
}
