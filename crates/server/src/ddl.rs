//! DDL, as far as the relay has to do with it. What it changes travels to the replicas by notes that
//! event triggers at the primary write (docs/decisions/0005). Of some commands no event trigger is
//! told: those on roles, event triggers, the database, and whatever code does that nobody analysed.
//! For these the session asks the primary, in front of the commit, to note what is so now.

use hihooi_replication::items::Items;
use hihooi_sql::{Kind, Statement};

use crate::backend::Backend;
use crate::relay::Outcome;
use crate::session::{Session, Work};
use hihooi_session::upstream::FOLLOW;

impl Session {
    /// Whether a statement may change what replicas have without an event trigger being told.
    pub(crate) fn may_hide(&self, statement: &Statement) -> bool {
        let hides = match &statement.kind {
            Kind::Ddl(ddl) => ddl.hidden,
            _ => statement.writes == Items::Everything,
        };
        hides && self.is_replicated
    }

    /// Whether a statement that commits by itself may have left something that no event trigger was
    /// told of. One that failed may leave an index that isn't valid.
    pub(crate) fn leaves(&self, statement: &Statement, failed: bool) -> bool {
        let concurrently =
            matches!(&statement.kind, Kind::Ddl(ddl) if ddl.replicate && !ddl.in_transaction);
        if failed { concurrently && self.is_replicated } else { self.may_hide(statement) }
    }

    /// Has the primary note what code did that has committed by itself.
    pub(crate) async fn follow_afterwards(&mut self, server: &mut Backend) -> Work<()> {
        let write = self.begin_write(Items::Everything);
        server.up.write_own_query(FOLLOW);
        match self.drain(server).await {
            Ok(_) => {
                server.up.answers.take_rows();
                server.up.answers.take_error(); // the manager asks again, every few seconds
                self.relay.end_write(write, Outcome::Unidentified);
                Ok(())
            }
            Err(lost) => {
                self.relay.doubt(write, server.identity.clone());
                Err(self.lost(&lost))
            }
        }
    }
}
