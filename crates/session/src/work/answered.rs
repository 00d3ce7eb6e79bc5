//! The way back: what a server answers is relayed, the writes in it are reported, and what it left in the session's
//! connection is looked at before that is returned. A read that a replica failed to answer is sent on its way again.

use bytes::Buf;
use hihooi_replication::items::Items;
use hihooi_sql::Statement;
use hihooi_wire::backend::{self, Report, Status};
use hihooi_wire::frontend::{self, tag};

use super::{CopyIn, DISCARDED_MAX, Then, What};
use crate::effects::Look;
use crate::events::{Action, Actions, Counter, Env};
use crate::mistakes::{Mistake, makes};
use crate::own_types::Needs;
use crate::passwords::Storing;
use crate::read::Wanted;
use crate::relaying::{self, Hold, Lent, Step};
use crate::route::{Reason, Route};
use crate::session::{End, Open, Phase, Session, unknown_outcome};
use crate::sites::SiteId;
use crate::state::Pin;
use crate::unit::{Ends, Written};
use crate::upstream::{FOLLOW, NamesDone, Upstream};

impl Session {
    /// Looks at what the server sent.
    pub(crate) fn server_sent(&mut self, bytes: &[u8], env: &dyn Env, out: &mut Actions) {
        self.note_answer(bytes, env, out);
        self.look_whether_void(env, out);
        let Some(up) = &mut self.up else { return };
        let mut goes_on = if up.input.is_empty() {
            let (used, step) = self.look_at(bytes, env, out);
            if let Some(up) = &mut self.up {
                up.input.extend_from_slice(&bytes[used..]);
            }
            self.act_on(step, env, out)
        } else {
            up.input.extend_from_slice(bytes);
            true
        };
        // What a step has left is looked at only if the connection is still the session's: behind the end of
        // its unit a server may say something that is nobody's.
        while goes_on && let Some(up) = &mut self.up {
            let mut input = std::mem::take(&mut up.input);
            let (used, step) = self.look_at(&input, env, out);
            input.advance(used);
            if let Some(up) = &mut self.up
                && !input.is_empty()
            {
                up.input = input;
            }
            goes_on = self.act_on(step, env, out);
        }
        self.go_on_if_answered(env, out);
    }

    /// Tells how soon a replica has begun to answer a read. An error shows nothing of that.
    fn note_answer(&mut self, bytes: &[u8], env: &dyn Env, out: &mut Actions) {
        let Some(work) = &mut self.work else { return };
        let (Some(sent), Some(wanted)) = (work.sent.take(), &work.wanted) else { return };
        if bytes.first() != Some(&backend::tag::ERROR) {
            let after = env.now().saturating_sub(sent);
            out.push_back(Action::Answered(work.route.site, wanted.statement, after));
        }
    }

    /// Takes apart what the server sent, up to the first step; how many bytes are done with.
    fn look_at(&mut self, bytes: &[u8], env: &dyn Env, out: &mut Actions) -> (usize, Option<Step>) {
        let Some(up) = &mut self.up else { return (0, None) };
        let site = self.work.as_ref().map_or(SiteId::Primary, |work| work.route.site);
        let pid = up.pid;
        let was_ended = || env.was_ended(site, pid);
        let lent = Lent { was_ended: &was_ended, name_of: &|id| self.names.name_of(id) };
        match relaying::look_at(bytes, &mut self.down, up, &mut self.hold, lent) {
            Ok(looked) => looked,
            Err(error) => {
                self.lost(&error.to_string(), env, out);
                (0, None)
            }
        }
    }

    /// Whether there was a step.
    fn act_on(&mut self, step: Option<Step>, env: &dyn Env, out: &mut Actions) -> bool {
        let Some(step) = step else { return false };
        self.stepped(step, env, out);
        self.go_on_if_answered(env, out);
        true
    }

    fn stepped(&mut self, step: Step, env: &dyn Env, out: &mut Actions) {
        match step {
            Step::CopyIn => {
                if let Some(work) = &mut self.work {
                    work.copy = CopyIn::Fed;
                }
                self.feed_copy();
            }
            // A COPY failed; what the client still sends of it is ignored.
            Step::Ready(_) | Step::Failed => self.end_copy(),
            Step::Refused(fields) if self.snapshot.is_some() => {
                self.snapshot_is_lost(fields.message(), out);
            }
            Step::Refused(fields) => {
                let site = self.work.as_ref().map_or(SiteId::Primary, |work| work.route.site);
                match fields.code() {
                    "25006" => out.push_back(Action::Count(site, Counter::Misjudged)),
                    code if relaying::is_going_away(code) => out.push_back(Action::Failed(site)),
                    _ => {}
                }
                self.discard(out);
                out.push_back(Action::Count(site, Counter::Error));
                self.try_elsewhere(env, out);
            }
            Step::OwnTypes(_) if self.snapshot.is_some() => self.cannot_be_told(out),
            Step::OwnTypes(needs) => self.try_at_primary(needs, env, out),
            Step::Bound { all } => self.judge(all, env, out),
        }
    }

    /// A replica's answer is there as far as it shows at which moments it looked: whether it may stand (I3).
    fn judge(&mut self, all: bool, env: &dyn Env, out: &mut Actions) {
        let Some(work) = &self.work else { return };
        let items = work.wanted.as_ref().map_or(&Items::Everything, Wanted::items);
        if all && (!env.may_be_forked(&work.route, items) || makes(Mistake::ForkStands)) {
            self.hold = Hold::UntilRows;
            return;
        }
        let discarded = if all { work.discarded + 1 } else { DISCARDED_MAX };
        self.drop_answer(discarded, out);
    }

    /// Drops what a replica answers that lost one of its tables meanwhile. What the client has got was there before.
    fn look_whether_void(&mut self, env: &dyn Env, out: &mut Actions) {
        let (Some(work), Hold::UntilRows | Hold::UntilBound(_)) = (&self.work, self.hold) else {
            return;
        };
        if env.is_void(&work.route) && !makes(Mistake::VoidStands) {
            self.drop_answer(work.discarded + 1, out);
        }
    }

    /// Of a replica's answer, discarded so many times by now, the client gets nothing.
    fn drop_answer(&mut self, discarded: u32, out: &mut Actions) {
        let (Some(work), Some(up)) = (&mut self.work, &mut self.up) else { return };
        work.discarded = discarded;
        out.push_back(Action::Count(work.route.site, Counter::Discarded));
        up.names_done = NamesDone::default();
        self.down.output.clear();
        self.hold = Hold::Drop;
    }

    /// A read's answer was discarded: it is asked for once more.
    fn run_again(&mut self, env: &dyn Env, out: &mut Actions) {
        self.hold = Hold::No;
        self.let_go(out);
        self.ask_route(env, out);
    }

    /// Gives a replica's connection back, if nothing is left in it.
    pub(crate) fn let_go(&mut self, out: &mut Actions) {
        if let Some(mut up) = self.up.take() {
            let is_reusable = up.is_clean() && !up.write_cleanup();
            out.push_back(if is_reusable { Action::Release(up) } else { Action::Discard(up) });
        }
    }

    /// Whether the client's COPY data goes to the server.
    pub(crate) fn feeds_copy(&self) -> bool {
        self.work.as_ref().is_some_and(|work| work.copy == CopyIn::Fed)
    }

    fn end_copy(&mut self) {
        if let Some(work) = self.work.as_mut().filter(|work| work.copy == CopyIn::Fed) {
            work.copy = CopyIn::Over;
        }
    }

    /// Relays the client's COPY data up to its end (manual, "COPY Operations"). A server keeps
    /// the answer to itself until Sync or Flush.
    pub(crate) fn feed_copy(&mut self) {
        let (Some(up), Some(work), down) = (&mut self.up, &mut self.work, &mut self.down) else {
            return;
        };
        while work.copy == CopyIn::Fed {
            let next = self.next.take();
            match next.map_or_else(|| down.buffered(), |next| Ok(Some(next))) {
                Ok(Some(message)) => match message.tag {
                    tag::SYNC | tag::FLUSH => {} // ignored during COPY, as servers do
                    tag::TERMINATE => down.gone = true,
                    data => {
                        up.output.extend_from_slice(&message.bytes);
                        if data != tag::COPY_DATA {
                            work.copy = CopyIn::Over;
                        }
                    }
                },
                Ok(None) if !down.gone => return,
                Ok(None) | Err(_) => {
                    frontend::copy_fail("client left", &mut up.output);
                    work.copy = CopyIn::Over;
                }
            }
        }
        up.write_flush();
    }

    /// Goes on when the server has answered everything.
    pub(crate) fn go_on_if_answered(&mut self, env: &dyn Env, out: &mut Actions) {
        let Phase::Answering(then) = self.phase else { return };
        let is_answered = |up: &Upstream| up.answers.is_empty() && up.output.is_empty();
        if self.feeds_copy() || !self.up.as_deref().is_some_and(is_answered) {
            return;
        }
        match then {
            Then::Carried => self.carried(env, out),
            Then::Described => self.described(env, out),
            Then::Begun => self.begun(env, out),
            Then::Written(written) => self.has_run(written, env, out),
            Then::Read if self.hold == Hold::Drop => self.run_again(env, out),
            Then::Read if self.hold == Hold::UntilLooked && self.has_failed_there() => {
                self.set_at_primary(env, out);
            }
            Then::Read => {
                if self.hold != Hold::UntilLooked {
                    self.hold = Hold::No;
                }
                let site = self.work.as_ref().map_or(SiteId::Primary, |work| work.route.site);
                out.push_back(Action::Count(site, Counter::Read));
                let failed = self.has_failed_there();
                let setting = self.work.as_ref().and_then(|work| work.setting.as_ref());
                let is_empty = self.work.as_ref().is_some_and(|work| work.is_empty_query());
                match (&mut self.block, setting) {
                    // It leaves the block as it was, and something in the session.
                    (Some(_), Some(setting)) if !failed => self.effects.merge(&setting.effect()),
                    (Some(_), _) if is_empty && !failed => {}
                    (Some(block), _) => block.has_run(failed),
                    (None, _) => {}
                }
                if self.parked.is_some() {
                    return self.has_read_beside(env, out);
                }
                if self.takes_snapshot() {
                    self.took_snapshot();
                }
                self.settle(env, out);
            }
            Then::Asked => self.asked(env, out),
            Then::FailedToo => self.failed_too(env, out),
            Then::Followed => {
                // After an error the manager asks again, every few seconds.
                self.with_server(|session, up| session.land(up, out));
                self.settle(env, out);
            }
            Then::Looked(look, asked) => self.looked(look, asked, env, out),
            Then::Cleaned => self.give_back(env, out),
        }
    }

    fn has_run(&mut self, written: Written, env: &dyn Env, out: &mut Actions) {
        let Some(mut work) = self.work.take() else { return };
        if let Some(up) = &mut self.up {
            for _ in 0..up.answers.take_gone() {
                self.names.gone().into_iter().for_each(|gone| up.forget_named(&gone));
            }
        }
        let next = match (&work.what, written) {
            (_, Written::Whole) => None,
            (What::Unit(unit), Written::Flushed)
                if unit.ends == Ends::Flush || work.copy != CopyIn::No =>
            {
                // A COPY swallows the Sync that came with it; the client sends another.
                self.work = Some(work);
                return self.done(env, out);
            }
            (What::Unit(unit), _) => self.with_server(|session, up| match written {
                Written::Part => session.write_unit(up, unit, &mut work.next, env, out),
                Written::Flushed => session.write_end(up, unit, env, out),
                Written::Uncommitted | Written::Whole => {
                    session.write_commit(up, unit, env, out);
                    Written::Whole
                }
            }),
            _ => None,
        };
        self.work = Some(work);
        match next {
            Some(written) => {
                self.await_answer(Then::Written(written));
                self.go_on_if_answered(env, out);
            }
            None => self.is_ready(env, out),
        }
    }

    /// The server is ready for the next unit.
    fn is_ready(&mut self, env: &dyn Env, out: &mut Actions) {
        self.open = Open::No;
        if self.up.as_ref().is_some_and(|up| up.failed || up.status == Status::Idle) {
            self.names.stay();
        }
        let Some(work) = self.work.take() else { return };
        let site = work.route.site;
        let follows = self.with_server(|session, up| {
            if work.runs_any(Statement::is_write) {
                out.push_back(Action::Count(site, Counter::Write));
            } else if work.runs_any(|statement| !statement.kind.is_bound_of_transaction()) {
                out.push_back(Action::Count(site, Counter::Read));
            }
            if up.failed {
                out.push_back(Action::Count(site, Counter::Error));
            }
            session.land(up, out);
            session.transaction_goes_on(up.status, !up.failed && !up.answers.has_rolled_back());
            session.has_bound_control &= up.status != Status::Idle;
            session.has_bound_copy &= up.status != Status::Idle;
            // What may have committed by itself is asked about when it has succeeded; a transaction was
            // asked in front of its commit, if it was written by the extended protocol.
            let is_raw = matches!(work.what, What::Query(_));
            up.status == Status::Idle
                && work.runs_any(|statement| {
                    (is_raw || statement.may_commit_inside) && session.leaves(statement, up.failed)
                })
        });
        self.work = Some(work);
        if follows == Some(true) {
            let write = self.begin_write(Items::Everything, true, out);
            self.flight.opaque.push(write);
            if let Some(up) = &mut self.up {
                up.write_own_query(FOLLOW);
            }
            self.await_own(Then::Followed);
        } else {
            self.settle(env, out);
        }
    }

    /// The primary has said how it stores passwords.
    fn asked(&mut self, env: &dyn Env, out: &mut Actions) {
        let is_open = self.is_unit_open();
        let storing = self.with_server(|session, up| {
            let mut rows = up.answers.take_rows();
            up.answers.take_error();
            let row = if up.failed { None } else { rows.pop() };
            if is_open {
                // What came before it answers questions for transaction ids.
                session.flight.keep(rows);
            }
            Storing::read(row.as_deref())
        });
        let Some(work) = &mut self.work else { return };
        work.storing = storing;
        if work.was_held || is_open { self.done(env, out) } else { self.settle(env, out) }
    }

    /// After a unit: keeps the connection if the session needs it, else gives it back. The
    /// client has its answer already.
    pub(crate) fn settle(&mut self, env: &dyn Env, out: &mut Actions) {
        let look = self.with_server(|session, up| {
            session.end_effects(up);
            session.note_suspended(up);
            if let Some(work) = &mut session.work {
                work.failed_after = up.failed.then_some(up.names_done);
            }
            if up.status != Status::Idle {
                return None;
            }
            session.snapshot = None;
            up.has_snapshot = false;
            session.pin = session.pin.filter(|pin| *pin != Pin::Catalog).or(session.lasting_pin);
            session.transaction = Default::default();
            session.look_again(up, env);
            Some(session.look_at_state(up, env))
        });
        match look {
            Some(Some(Look::Nothing)) => self.clean(env, out),
            Some(Some(look)) => self.await_own(Then::Looked(look, 1)),
            _ => self.done(env, out),
        }
    }

    /// Removes what was there for the unit only.
    pub(crate) fn clean(&mut self, env: &dyn Env, out: &mut Actions) {
        if !self.doubts.unsure.is_empty() {
            self.pin = self.pin.or(Some(Pin::Catalog));
        }
        self.is_path_unknown = false;
        if self.up.as_mut().is_some_and(|up| up.write_cleanup()) {
            self.await_own(Then::Cleaned);
        } else {
            self.give_back(env, out);
        }
    }

    fn give_back(&mut self, env: &dyn Env, out: &mut Actions) {
        if self.pin.is_none() || makes(Mistake::Unpinned) {
            out.extend(self.up.take().map(Action::Release));
        }
        self.done(env, out);
    }

    /// The work is done: the client's next messages are looked at.
    pub(crate) fn done(&mut self, env: &dyn Env, out: &mut Actions) {
        self.phase = Phase::Idle;
        let Some(work) = self.work.take() else { return };
        if let Some((began, wanted)) = work.began.zip(work.wanted) {
            out.push_back(Action::Took(wanted.statement, env.now().saturating_sub(began)));
        }
        if let What::Storing(held) = work.what {
            self.hash(held, work.storing, env, out);
        } else if !self.is_unit_open() {
            match work.failed_after {
                Some(done) => {
                    self.names.undo_after(done);
                    if work.goes_on {
                        self.open = Open::Skipping;
                    }
                }
                None => self.names.keep_changes(),
            }
        }
    }

    /// Another site is asked instead of one that failed.
    pub(super) fn try_elsewhere(&mut self, env: &dyn Env, out: &mut Actions) {
        self.take_back();
        if let Some(work) = &mut self.work {
            work.not.push(work.route.site);
            work.sent = None;
        }
        self.ask_route(env, out);
    }

    /// Only the primary can answer.
    fn try_at_primary(&mut self, needs: Needs, env: &dyn Env, out: &mut Actions) {
        self.take_back();
        self.discard(out);
        if let Some(work) = &mut self.work {
            let statement = work.wanted.as_ref().map_or(0, |wanted| wanted.statement);
            out.push_back(Action::OwnTypes(statement, needs));
            (work.route, work.began, work.sent) = (Route::primary(Reason::Unsafe), None, None);
        }
        self.lease(env, out);
    }

    /// The client gets nothing of what a replica said.
    pub(crate) fn take_back(&mut self) {
        if self.hold != Hold::No {
            self.down.output.clear();
        }
        self.hold = Hold::No;
    }

    /// Whether the client waits for the answer to a commit that may succeed.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        !self.flight.is_empty() && !matches!(self.phase, Phase::Answering(Then::Followed))
    }

    /// The connection to the server is lost.
    pub(crate) fn lost(&mut self, why: &str, env: &dyn Env, out: &mut Actions) {
        if self.snapshot.is_some() && self.parked.is_none() {
            return self.snapshot_is_lost(why, out);
        }
        let said_goodbye = self.up.as_ref().is_some_and(|up| up.said_goodbye);
        let site = self.work.as_ref().map_or(SiteId::Primary, |work| work.route.site);
        self.end_copy();
        match self.phase {
            Phase::Answering(Then::Carried | Then::Described | Then::Begun)
                if !self.is_unit_open() =>
            {
                if site != SiteId::Primary {
                    out.push_back(Action::Failed(site));
                }
                let what = format!("{} is not available", env.site_name(site));
                let report = Report::error("57P03", what).detail(why);
                let hint = "Retry later; SHOW SERVERS in database hihooi shows the state.";
                return self.refused(report.hint(hint), env, out);
            }
            Phase::Answering(then) if then == Then::Read || self.hold == Hold::UntilLooked => {
                out.push_back(Action::Failed(site));
                out.push_back(Action::Count(site, Counter::Error));
                if self.hold != Hold::No || makes(Mistake::RetriedAfterRow) {
                    self.discard(out);
                    return self.try_elsewhere(env, out);
                }
            }
            Phase::Answering(Then::Written(_) | Then::Asked) => {
                out.push_back(Action::Count(site, Counter::Error));
            }
            _ => {}
        }
        let is_unknown = self.is_outcome_unknown();
        self.doubt_flight(out);
        self.discard(out);
        let end = match self.phase {
            Phase::Answering(_) if said_goodbye => End::Server,
            Phase::Answering(_) if is_unknown => End::Fatal(unknown_outcome()),
            Phase::Answering(_) => End::Fatal(server_lost(why)),
            _ => End::Server, // the client has the server's own words
        };
        self.end(end, out);
    }
}

/// The end of a session whose server was lost while it held state.
fn server_lost(why: &str) -> Report {
    Report::fatal("08006", "the connection to the server was lost")
        .detail(why)
        .hint("The transaction, if one was open, is rolled back. Connect again.")
}
