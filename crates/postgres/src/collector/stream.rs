//! One connection to the slot, from START_REPLICATION until it breaks.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hihooi_replication::assemble::{Assembler, Output};
use hihooi_replication::ids::{Lsn, Tsid};
use hihooi_replication::pgoutput::{self, Frame};
use hihooi_wire::backend::tag;
use hihooi_wire::frontend;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::pass_over::{self, Over};
use super::{CollectorError, EntrySummary, Interrupted, StreamContext, StreamEvent};
use crate::connection::{Connection, Login, server_error};
use crate::identity;
use crate::setup::{self, COLLECTOR_NAME, PUBLICATION, SLOT};

/// The server hears from us at least this often, and is asked to answer.
const STATUS_MS: u64 = 1_000;
/// What became durable is confirmed to the slot at most this often.
const CONFIRM_MS_MIN: u64 = 100;
/// How far the log reaches beyond its last entry is noted at most this often, since that is a write to
/// the disk.
const MARK_EVERY: Duration = Duration::from_secs(10);
/// A server that doesn't answer for so long is taken for gone (`wal_sender_timeout`'s default).
const SILENCE_MS_MAX: u64 = 60_000;
/// After so many messages the log is told to write, so that entries become durable also while more
/// arrive.
const BATCH_MAX: usize = 4_096;
/// Microseconds from 1970 to 2000, PostgreSQL's epoch.
const EPOCH_US: i64 = 946_684_800_000_000;

/// What the text format of values depends on, fixed, where they are printed and where they are read: database and
/// role defaults reach a WAL sender too. Appliers and verification use the same.
pub const TEXT_SETTINGS: [(&str, &str); 10] = [
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    ("array_nulls", "on"),
    ("xmlbinary", "base64"),
    ("lc_monetary", "C"),
    // Names of relations and types as values (regclass, regtype …) come qualified.
    ("search_path", "pg_catalog"),
];

type Result<T> = std::result::Result<T, Interrupted>;

/// Reads the slot until the stream breaks or nobody wants its events any more.
/// With `stuck`, the error that always comes behind the last entry, what is there is passed over.
pub(super) async fn read(context: &StreamContext, stuck: Option<&str>) -> Result<()> {
    let over = match stuck {
        Some(why) => Some(pass_over::find_end(context, why).await?),
        None => None,
    };
    let mut stream = Stream::start(context, over).await?;
    context.status.connected.store(true, Ordering::Release);
    context.status.set_error(String::new());
    stream.run().await
}

struct Stream<'a> {
    context: &'a StreamContext,
    connection: Connection,
    assembler: Assembler,
    durable: watch::Receiver<Tsid>,
    /// Appended entries that are not durable yet (bounded by what the log lets be pending).
    pending: VecDeque<(Tsid, Lsn)>,
    /// Everything before it was received and told.
    passed: Lsn,
    /// What was told of `passed`.
    told: Lsn,
    /// Everything before it is durable with us, or concerns nobody.
    complete: Lsn,
    /// How far the log reaches (I5): nothing beyond it is confirmed to the slot.
    reach: Lsn,
    marked_at: Instant,
    /// What was confirmed to the server, and when.
    sent: (Lsn, Instant),
    heard: Instant,
    /// What is still to be passed over: the stream hasn't come to its end.
    over: Option<Over>,
    outputs: Vec<Output>,
}

impl<'a> Stream<'a> {
    async fn start(context: &'a StreamContext, over: Option<Over>) -> Result<Stream<'a>> {
        let config = &context.config;
        check_identity(context).await?;
        let mut connection = Connection::open(&login(context)).await?;
        let last = context.log.last();
        let from = last.as_ref().map_or(Lsn(0), |last| last.end_lsn);
        let begin = over.as_ref().map_or(from, |over| over.end);
        start_replication(&mut connection, context, begin).await?;
        let mut durable = context.log.durable();
        let durable_now = *durable.borrow_and_update();
        // Entries appended before the last stream broke may still be on their way to the disk.
        let unfinished = last.as_ref().filter(|last| last.tsid > durable_now);
        let pending = unfinished.map(|last| (last.tsid, last.end_lsn)).into_iter().collect();
        Ok(Stream {
            context,
            connection,
            assembler: Assembler::new(config.incarnation, last.as_ref()),
            durable,
            pending,
            passed: from,
            told: Lsn(0),
            complete: Lsn(0),
            reach: identity::reach(&context.log)?.unwrap_or(Lsn(u64::MAX)),
            marked_at: Instant::now(),
            sent: (Lsn(0), Instant::now()),
            heard: Instant::now(),
            over,
            outputs: Vec::new(),
        })
    }

    async fn run(&mut self) -> Result<()> {
        let mut tick = tokio::time::interval(Duration::from_millis(STATUS_MS));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let context = self.context;
        loop {
            tokio::select! {
                message = self.connection.next() => {
                    let message = message?;
                    self.take_all(message).await?;
                    self.tell_passed().await?;
                    self.confirm().await?;
                }
                changed = self.durable.changed() => {
                    changed.map_err(|_| Interrupted::Retry("the log is closed".to_owned()))?;
                    self.confirm().await?;
                }
                () = context.poke.notified() => self.send_status(true).await?,
                _ = tick.tick() => self.tick().await?,
                () = context.events.closed() => return Ok(()),
            }
        }
    }

    async fn tick(&mut self) -> Result<()> {
        if let Some(why) = self.context.log.failed() {
            return Err(CollectorError::Log(hihooi_log::Error::Failed(why)).into());
        }
        if self.heard.elapsed() > Duration::from_millis(SILENCE_MS_MAX) {
            return Err(Interrupted::Retry("the primary is silent".to_owned()));
        }
        self.settle();
        if self.marked_at.elapsed() >= MARK_EVERY {
            self.mark().await?;
        }
        self.send_status(true).await
    }

    /// Takes a message and all that have arrived after it, then starts making them durable.
    async fn take_all(&mut self, first: crate::connection::Message) -> Result<()> {
        self.heard = Instant::now();
        let mut next = Some(first);
        let mut reply = false;
        for _ in 0..BATCH_MAX {
            let Some(message) = next else { break };
            reply |= self.take(message).await?;
            next = self.connection.next_buffered()?;
        }
        if let Some(message) = next {
            reply |= self.take(message).await?;
        }
        self.context.log.flush();
        if reply {
            self.settle();
            // A server that stops waits until all is confirmed.
            self.mark().await?;
            self.send_status(false).await?;
        }
        Ok(())
    }

    /// Takes one message; whether the server wants an answer at once.
    async fn take(&mut self, message: crate::connection::Message) -> Result<bool> {
        let body = match message.tag {
            tag::COPY_DATA => message.body,
            tag::ERROR => return Err(decoding_failed(&server_error(&message.body))),
            tag::COPY_DONE => {
                return Err(Interrupted::Retry("the primary ended the stream".to_owned()));
            }
            _ => return Ok(false),
        };
        let frame = pgoutput::read_frame(body).map_err(|error| broken(&error))?;
        let mut reply_wanted = false;
        if let Some(over) = self.over.take() {
            // The server has passed it when it is there, or sends what comes behind.
            if let Frame::Keepalive { end, reply } = frame
                && end < over.end
            {
                self.over = Some(over);
                return Ok(reply);
            }
            let outputs = &mut self.outputs;
            let passed = over.pass(&mut self.assembler, now_us(), outputs);
            passed.map_err(|error| Interrupted::Retry(error.to_string()))?;
        }
        match frame {
            Frame::Keepalive { end, reply } => {
                self.assembler.keepalive(end, &mut self.outputs);
                reply_wanted = reply;
            }
            Frame::Data(data) => {
                let message = pgoutput::read_message(data).map_err(|error| broken(&error))?;
                let taken = self.assembler.step(message, &mut self.outputs);
                taken.map_err(|error| Interrupted::Retry(error.to_string()))?;
            }
        }
        self.deliver().await?;
        Ok(reply_wanted)
    }

    /// Passes on what the assembler made.
    async fn deliver(&mut self) -> Result<()> {
        let mut outputs = std::mem::take(&mut self.outputs);
        for output in outputs.drain(..) {
            match output {
                Output::Chunk { tsid, n, bytes } => {
                    let log = self.context.log.clone();
                    self.alive(async { log.append_chunk(tsid, n, bytes).await }).await??;
                }
                Output::Entry(entry, written) => {
                    let (tsid, end_lsn) = (entry.header.tsid, entry.header.end_lsn);
                    let summary = EntrySummary::new(&entry.header, written);
                    // Told before it is appended: an entry in the log is never read from the
                    // stream again, so that nobody would tell it later. One that is told twice,
                    // after the append failed, does no harm.
                    self.tell(StreamEvent::Entry(summary)).await?;
                    let log = self.context.log.clone();
                    self.alive(async { log.append(entry).await }).await??;
                    self.pending.push_back((tsid, end_lsn));
                }
                Output::Passed(lsn) => self.passed = self.passed.max(lsn),
            }
        }
        self.outputs = outputs;
        Ok(())
    }

    async fn tell(&mut self, event: StreamEvent) -> Result<()> {
        // A receiver that is gone ends the stream at the next turn of its loop.
        let Err(event) = self.context.events.try_send(event) else { return Ok(()) };
        let events = self.context.events.clone();
        let _ = self.alive(async { events.send(event.into_inner()).await }).await?;
        Ok(())
    }

    async fn tell_passed(&mut self) -> Result<()> {
        self.context.status.received.store(self.passed.0, Ordering::Release);
        if self.passed > self.told {
            self.told = self.passed;
            self.tell(StreamEvent::Passed(self.passed)).await?;
        }
        Ok(())
    }

    /// Waits for something that holds the stream back, and lets the server know meanwhile that
    /// we live.
    async fn alive<T>(&mut self, wait: impl Future<Output = T>) -> Result<T> {
        let mut wait = std::pin::pin!(wait);
        loop {
            tokio::select! {
                biased;
                done = &mut wait => return Ok(done),
                () = tokio::time::sleep(Duration::from_millis(STATUS_MS)) => {
                    self.context.log.flush();
                    self.settle();
                    self.send_status(false).await?;
                }
            }
        }
    }

    /// Finds out how far we are durable.
    fn settle(&mut self) {
        let durable = *self.durable.borrow();
        while let Some(&(tsid, end_lsn)) = self.pending.front() {
            if tsid > durable {
                return;
            }
            self.complete = self.complete.max(end_lsn);
            self.reach = self.reach.max(end_lsn);
            self.pending.pop_front();
        }
        if !self.assembler.is_inside() {
            self.complete = self.complete.max(self.passed);
        }
    }

    /// Notes in the log that it reaches as far as it does, also beyond its last entry.
    async fn mark(&mut self) -> Result<()> {
        self.marked_at = Instant::now();
        let reach = self.complete;
        if reach > self.reach {
            let log = self.context.log.clone();
            self.alive(async { identity::mark_reach(&log, reach).await }).await??;
            self.reach = self.reach.max(reach);
        }
        Ok(())
    }

    fn confirmed(&self) -> Lsn {
        self.complete.min(self.reach)
    }

    async fn confirm(&mut self) -> Result<()> {
        self.settle();
        let due = self.sent.1.elapsed() >= Duration::from_millis(CONFIRM_MS_MIN);
        if due && self.confirmed() > self.sent.0 {
            self.send_status(false).await?;
        }
        Ok(())
    }

    async fn send_status(&mut self, reply: bool) -> Result<()> {
        let confirmed = self.confirmed();
        let status = pgoutput::status_update(self.passed, confirmed, now_us(), reply);
        frontend::copy_data(&status, self.connection.buffer());
        self.connection.flush().await?;
        self.sent = (confirmed, Instant::now());
        self.context.status.confirmed.store(confirmed.0, Ordering::Release);
        Ok(())
    }
}

/// Whether this is still the log's primary, and nobody else has read the slot.
async fn check_identity(context: &StreamContext) -> Result<()> {
    let config = &context.config;
    let login = Login::new(config.address.clone(), &config.user, &config.database, "hihooi");
    let mut connection = Connection::open(&login).await?;
    identity::check_primary(&mut connection, &context.log, &config.name).await?;
    identity::check_slot(&mut connection, &context.log).await?;
    connection.close().await;
    Ok(())
}

fn login(context: &StreamContext) -> Login {
    let config = &context.config;
    let login = Login::new(config.address.clone(), &config.user, &config.database, COLLECTOR_NAME)
        .with("replication", "database");
    login.with_all(&TEXT_SETTINGS)
}

async fn start_replication(
    connection: &mut Connection,
    context: &StreamContext,
    from: Lsn,
) -> Result<()> {
    let text = format!(
        "START_REPLICATION SLOT {SLOT} LOGICAL {from} (proto_version '2', \
         publication_names '{PUBLICATION}', messages 'true')"
    );
    frontend::query(text.as_bytes(), connection.buffer());
    connection.flush().await?;
    let message = connection.next().await?;
    match message.tag {
        tag::COPY_BOTH => Ok(()),
        tag::ERROR => Err(refused(server_error(&message.body), context).await),
        other => Err(Interrupted::Retry(format!("unexpected answer {:?}", char::from(other)))),
    }
}

/// What an error in the stream means.
fn decoding_failed(error: &crate::connection::Error) -> Interrupted {
    match error.code() {
        // internal_error; program_limit_exceeded: a row whose values are larger together than a message may be.
        Some("XX000" | "54000") => Interrupted::Undecoded(error.to_string()),
        // data_corrupted, index_corrupted: replicas may be the better copies.
        Some("XX001" | "XX002") => {
            Interrupted::Retry(format!("{error}; if it stays so, {}", setup::REBUILD))
        }
        _ => Interrupted::Retry(error.to_string()),
    }
}

/// What a refused START_REPLICATION means.
async fn refused(error: crate::connection::Error, context: &StreamContext) -> Interrupted {
    match error.code() {
        // object_in_use: someone reads the slot.
        Some("55006") => match end_orphan(context).await {
            Ok(()) => Interrupted::Retry(error.to_string()),
            Err(interrupted) => interrupted,
        },
        // undefined_object: no such slot; object_not_in_prerequisite_state: lost its WAL.
        Some("42704" | "55000") => {
            CollectorError::Broken(format!("the slot can't be read ({error}): {}", setup::REBUILD))
                .into()
        }
        _ => error.into(),
    }
}

/// Ends the connection of a collector that died without telling the server. It is only ours to
/// end if it says that it is one.
async fn end_orphan(context: &StreamContext) -> Result<()> {
    let config = &context.config;
    let login = Login::new(config.address.clone(), &config.user, &config.database, "hihooi");
    let mut connection = Connection::open(&login).await?;
    let active = "SELECT active_pid FROM pg_catalog.pg_replication_slots WHERE slot_name = $1";
    let answer = connection.query_with(active, &[Some(SLOT)]).await?;
    let Some(pid) = answer.value().map(str::to_owned) else { return Ok(()) };
    let name = setup::application_of(&mut connection, &pid).await?;
    if name != COLLECTOR_NAME && !name.is_empty() {
        return Err(CollectorError::SlotInUse(format!(
            "slot {SLOT} is read by pid {pid} ({name}), which is not hihooi; end it with \
             SELECT pg_terminate_backend({pid})"
        ))
        .into());
    }
    tracing::warn!("ending pid {pid}, which still reads the slot");
    let terminate = "SELECT pg_catalog.pg_terminate_backend($1::int)";
    connection.query_with(terminate, &[Some(&pid)]).await?;
    connection.close().await;
    Ok(())
}

fn broken(error: &pgoutput::StreamError) -> Interrupted {
    CollectorError::Broken(error.to_string()).into()
}

impl From<CollectorError> for Interrupted {
    fn from(error: CollectorError) -> Interrupted {
        Interrupted::GiveUp(error)
    }
}

/// The server wants our clock, to show it; nothing depends on it.
fn now_us() -> i64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX) - EPOCH_US
}
