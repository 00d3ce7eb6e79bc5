//! What the relay's thread tells when it is asked: everything is read at that moment, and nothing of it asks a
//! server.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::{Duration, UNIX_EPOCH};

use hihooi_postgres::site::{Replica, State};
use hihooi_replication::ids::Tsid;
use hihooi_session::consistency::Consistency;
use hihooi_session::route::Reason;
use hihooi_session::session::Activity;
use hihooi_session::sites::{PerSite, SiteId};
use tokio::time::{Instant, timeout_at};

use super::sample::{Sample, Value};
use crate::meters::SiteMeters;
use crate::relay::Relay;
use crate::tls::Tls;

/// How long it may take at most to read from the log when entries were committed that replicas lack. What takes longer
/// is not known then.
const AGES_MS_MAX: u64 = 100;
/// The label `database` of statements in databases that are not replicated.
const OTHER_DATABASES: &str = "(other)";
/// The states of a replica.
const STATES: [State; 6] = [
    State::Cloning,
    State::CatchingUp,
    State::Serving,
    State::Paused,
    State::Failed,
    State::Different,
];
/// What sessions can be doing.
const ACTIVITIES: [Activity; 3] = [Activity::Idle, Activity::Active, Activity::InTransaction];
/// The percentiles of times until entries are visible at a replica that are shown, and how they are called.
const PERCENTILES: [(u8, &str); 2] = [(50, "0.5"), (99, "0.99")];

/// The relay at one moment.
pub(super) struct Moment<'a> {
    relay: &'a Relay,
    /// By replica, how long ago the oldest entry that it lacks was committed, seconds.
    lag_s: Vec<f64>,
    pools: PerSite<Pools>,
}

/// The pools of a site.
#[derive(Default)]
struct Pools {
    count: usize,
    used: usize,
    idle: usize,
    /// Of the pool that uses most.
    used_max: usize,
}

/// Why clients can't be served as they should, if so.
pub(crate) fn not_ready(relay: &Relay) -> Option<&'static str> {
    if relay.stopping.has_begun() {
        Some("the manager is stopping")
    } else if relay.pools.is_primary_silent.get() {
        Some("the primary does not answer")
    } else if !relay.answers.primary.get() {
        Some("the primary does not accept connections")
    } else {
        None
    }
}

async fn lag_s(relay: &Relay) -> Vec<f64> {
    let deadline = Instant::now() + Duration::from_millis(AGES_MS_MAX);
    let mut lags = Vec::with_capacity(relay.replicas.len());
    for replica in &relay.replicas {
        let applied = replica.applied();
        lags.push(match newest(relay) > applied {
            false => 0.0,
            true => match timeout_at(deadline, relay.age_ms(applied.next())).await {
                Ok(Some(ms)) => Duration::from_millis(ms).as_secs_f64(),
                Ok(None) | Err(_) => f64::NAN,
            },
        });
    }
    lags
}

/// The last entry of the log.
fn newest(relay: &Relay) -> Tsid {
    *relay.log.appended().borrow()
}

fn pools_by_site(relay: &Relay) -> PerSite<Pools> {
    let mut sites = relay.sites.map(|_| Pools::default());
    for pool in relay.pools.info() {
        let site = &mut sites[pool.site];
        site.count += 1;
        site.used += pool.used;
        site.idle += pool.idle;
        site.used_max = site.used_max.max(pool.used);
    }
    sites
}

impl Moment<'_> {
    /// Now.
    pub(super) async fn of(relay: &Relay) -> Moment<'_> {
        Moment { relay, lag_s: lag_s(relay).await, pools: pools_by_site(relay) }
    }

    /// The labels `site` and `role`.
    fn site(&self, site: SiteId) -> Vec<Cow<'static, str>> {
        let site = &self.relay.sites[site];
        vec![site.name.clone().into(), site.role.to_string().into()]
    }

    /// One value for each site.
    fn by_site(&self, value: impl Fn(SiteId) -> Value) -> Vec<Sample> {
        let sample = |site| Sample { labels: self.site(site), value: value(site) };
        self.relay.sites.ids().map(sample).collect()
    }

    /// One value for each replica, by its place.
    fn by_replica(&self, value: impl Fn(usize, &Replica) -> Value) -> Vec<Sample> {
        let replicas = self.relay.replicas.iter().enumerate();
        let sample = |(number, replica): (usize, &std::sync::Arc<Replica>)| Sample {
            labels: vec![replica.site.name.clone().into()],
            value: value(number, replica),
        };
        replicas.map(sample).collect()
    }

    fn meters(&self, site: SiteId) -> &SiteMeters {
        &self.relay.meters.sites[site]
    }
}

/// The only value of a metric without labels.
fn only(value: Value) -> Vec<Sample> {
    vec![Sample { labels: Vec::new(), value }]
}

/// A gauge, exact up to 2^53.
fn gauge(number: usize) -> Value {
    Value::Number(number as f64)
}

/// A gauge that is 1 or 0.
fn flag(is_so: bool) -> Value {
    gauge(usize::from(is_so))
}

/// A position in the log, exact up to 2^53.
fn position(tsid: Tsid) -> Value {
    Value::Number(tsid.0 as f64)
}

/// Those that can be are shown before they happen, so that the first one is an increase.
pub(super) fn statements(moment: &Moment<'_>) -> Vec<Sample> {
    let replicated: Cow<'static, str> = moment.relay.database.clone().into();
    let mut samples = Vec::new();
    for (database, is_replicated) in [(replicated, true), (OTHER_DATABASES.into(), false)] {
        for site in moment.relay.sites.ids() {
            let counts = moment.meters(site).statements(is_replicated);
            let cells = Reason::ALL
                .into_iter()
                .flat_map(|reason| Consistency::ALL.into_iter().map(move |level| (reason, level)));
            for (reason, level) in cells {
                let count = counts[reason as usize][level as usize].get();
                let can_be = match site {
                    SiteId::Primary => !reason.is_for_replicas(),
                    SiteId::Replica(_) => is_replicated && reason.is_for_replicas(),
                };
                if can_be || count > 0 {
                    let mut labels = vec![database.clone()];
                    labels.extend(moment.site(site));
                    labels.extend([reason.as_str().into(), level.as_str().into()]);
                    samples.push(Sample { labels, value: Value::Count(count) });
                }
            }
        }
    }
    samples
}

pub(super) fn query_seconds(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_site(|site| Value::Spread(moment.meters(site).took.spread()))
}

pub(super) fn running(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_site(|site| gauge(moment.relay.counters[site].active.get()))
}

pub(super) fn commits(moment: &Moment<'_>) -> Vec<Sample> {
    only(Value::Count(moment.relay.counters.primary.commits.get()))
}

pub(super) fn errors(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_site(|site| Value::Count(moment.relay.counters[site].errors.get()))
}

pub(super) fn discards(moment: &Moment<'_>) -> Vec<Sample> {
    let counters = &moment.relay.counters.replicas;
    moment.by_replica(|number, _| Value::Count(counters[number].discarded.get()))
}

pub(super) fn misjudged(moment: &Moment<'_>) -> Vec<Sample> {
    let counters = &moment.relay.counters.replicas;
    moment.by_replica(|number, _| Value::Count(counters[number].misjudged.get()))
}

pub(super) fn writes_in_flight(moment: &Moment<'_>) -> Vec<Sample> {
    only(gauge(moment.relay.freshness.borrow().unresolved()))
}

pub(super) fn clients(moment: &Moment<'_>) -> Vec<Sample> {
    let sessions = moment.relay.sessions.borrow();
    let sample = |activity: Activity| {
        let state = activity.as_str();
        let count = sessions.values().filter(|session| session.state.get() == state).count();
        Sample { labels: vec![state.into()], value: gauge(count) }
    };
    ACTIVITIES.into_iter().map(sample).collect()
}

pub(super) fn sessions(moment: &Moment<'_>) -> Vec<Sample> {
    only(Value::Count(moment.relay.meters.sessions.get()))
}

pub(super) fn server_up(moment: &Moment<'_>) -> Vec<Sample> {
    let relay = moment.relay;
    let is_silent = |site| match relay.replica(site) {
        Some(replica) => replica.is_silent(),
        None => relay.pools.is_primary_silent.get(),
    };
    moment.by_site(|site| flag(relay.answers[site].get() && !is_silent(site)))
}

pub(super) fn server_connections(moment: &Moment<'_>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for site in moment.relay.sites.ids() {
        let Pools { used, idle, .. } = moment.pools[site];
        for (state, count) in [("used", used), ("idle", idle)] {
            let mut labels = moment.site(site);
            labels.push(state.into());
            samples.push(Sample { labels, value: gauge(count) });
        }
    }
    samples
}

pub(super) fn server_connections_max(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_site(|site| match moment.relay.pools.rooms[site].bound() {
        usize::MAX => Value::Number(f64::NAN),
        bound => gauge(bound),
    })
}

pub(super) fn pools(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_site(|site| gauge(moment.pools[site].count))
}

pub(super) fn pool_size(moment: &Moment<'_>) -> Vec<Sample> {
    only(gauge(moment.relay.settings().pool_size))
}

pub(super) fn pool_used_max(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_site(|site| gauge(moment.pools[site].used_max))
}

pub(super) fn pool_waiting(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_site(|site| gauge(moment.meters(site).waiting.get()))
}

pub(super) fn pool_wait_seconds(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_site(|site| Value::Spread(moment.meters(site).waited.spread()))
}

pub(super) fn replica_state(moment: &Moment<'_>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for replica in &moment.relay.replicas {
        for state in STATES {
            let labels = vec![replica.site.name.clone().into(), state.to_string().into()];
            samples.push(Sample { labels, value: flag(replica.state() == state) });
        }
    }
    samples
}

pub(super) fn replica_readable(moment: &Moment<'_>) -> Vec<Sample> {
    let is_readable =
        |replica: &Replica| replica.state().is_readable() && !moment.relay.is_late(replica);
    moment.by_replica(|_, replica| flag(is_readable(replica)))
}

pub(super) fn replica_rebuilds(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_replica(|_, replica| Value::Number(replica.rebuilds() as f64))
}

pub(super) fn tables_set_aside(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_replica(|_, replica| Value::Number(replica.set_aside().len() as f64))
}

pub(super) fn lag_entries(moment: &Moment<'_>) -> Vec<Sample> {
    let newest = newest(moment.relay);
    let lag = |replica: &Replica| Tsid(newest.0.saturating_sub(replica.applied().0));
    moment.by_replica(|_, replica| position(lag(replica)))
}

pub(super) fn lag_seconds(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_replica(|number, _| Value::Number(moment.lag_s[number]))
}

pub(super) fn apply_seconds(moment: &Moment<'_>) -> Vec<Sample> {
    let mut samples = Vec::new();
    for replica in &moment.relay.replicas {
        let stats = (moment.relay.apply_stats)(&replica.site.name).unwrap_or_default();
        for (percent, quantile) in PERCENTILES {
            let took = stats.percentile_us(percent).map(Duration::from_micros);
            let value = Value::Number(took.map_or(f64::NAN, |took| took.as_secs_f64()));
            let labels = vec![replica.site.name.clone().into(), quantile.into()];
            samples.push(Sample { labels, value });
        }
    }
    samples
}

pub(super) fn applied_tsid(moment: &Moment<'_>) -> Vec<Sample> {
    moment.by_replica(|_, replica| position(replica.applied()))
}

pub(super) fn share_ratio(moment: &Moment<'_>) -> Vec<Sample> {
    let (balance, now) = (moment.relay.balance.borrow(), moment.relay.now());
    moment.by_replica(|number, _| Value::Number(balance.shown(number, now).share))
}

pub(super) fn slowdown_ratio(moment: &Moment<'_>) -> Vec<Sample> {
    let (balance, now) = (moment.relay.balance.borrow(), moment.relay.now());
    moment.by_replica(|number, _| Value::Number(balance.shown(number, now).slowdown))
}

pub(super) fn stream_connected(moment: &Moment<'_>) -> Vec<Sample> {
    only(flag(moment.relay.collector.connected.load(Ordering::Acquire)))
}

pub(super) fn slot_retained_bytes(moment: &Moment<'_>) -> Vec<Sample> {
    let bytes = moment.relay.collector.slot_retained_bytes();
    only(Value::Number(bytes.map_or(f64::NAN, |bytes| bytes as f64)))
}

pub(super) fn log_bytes(moment: &Moment<'_>) -> Vec<Sample> {
    only(Value::Number(moment.relay.log.durable_len() as f64))
}

pub(super) fn log_entries(moment: &Moment<'_>) -> Vec<Sample> {
    let after = newest(moment.relay).next();
    only(position(Tsid(after.0.saturating_sub(moment.relay.log.first().0))))
}

pub(super) fn log_last_tsid(moment: &Moment<'_>) -> Vec<Sample> {
    only(position(newest(moment.relay)))
}

pub(super) fn log_stalled(moment: &Moment<'_>) -> Vec<Sample> {
    let log = &moment.relay.log;
    only(flag(log.stalled().or_else(|| log.failed()).is_some()))
}

pub(super) fn certificate_ends(moment: &Moment<'_>) -> Vec<Sample> {
    let relay = moment.relay;
    let mut ends = BTreeMap::new();
    for site in relay.sites.ids() {
        ends.extend(relay.address(site).tls.ends().iter().map(|(file, end)| (file.clone(), *end)));
    }
    let of_clients = relay.settings().tls.as_ref().and_then(Tls::end);
    ends.extend(of_clients.map(|(file, end)| (file.to_path_buf(), end)));
    let sample = |(file, end): (PathBuf, u64)| Sample {
        labels: vec![file.display().to_string().into()],
        value: Value::Number(end as f64),
    };
    ends.into_iter().map(sample).collect()
}

pub(super) fn start_time(moment: &Moment<'_>) -> Vec<Sample> {
    let started = moment.relay.meters.started.duration_since(UNIX_EPOCH);
    only(Value::Number(started.unwrap_or_default().as_secs_f64()))
}
