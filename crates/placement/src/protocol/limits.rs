//! The bounds of a site, and what happens at each.

/// Bounds and times of a site. The certifiers' bound must be the same at all sites.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Transactions that a site coordinates at a time; at the bound a first operation is answered
    /// with [`super::Cause::Overloaded`].
    pub transactions_max: usize,
    /// Transactions that have a part at a site; at the bound an operation is refused as overloaded.
    pub parts_max: usize,
    /// Redirected operations that wait for their snapshot; at the bound they are refused as
    /// overloaded.
    pub waiting_max: usize,
    /// Changes of a transaction; beyond it, it aborts.
    pub changes_max: usize,
    /// Changes of committed transactions that a certifier remembers; the oldest are forgotten, and
    /// transactions older than what is remembered abort. At least `changes_max`.
    pub certified_changes_max: usize,
    /// Snapshots that a site keeps open; the oldest are closed, and operations that still
    /// need them abort. At least 1.
    pub snapshots_max: usize,
    /// How long an operation of a transaction that is not at one site alone may take.
    pub operation_ms_max: u64,
    /// How long a part waits for its coordinator's next word before it is undone, which is always
    /// safe.
    pub part_idle_ms_max: u64,
    /// How long a proposal may take through the total order before it is sent again, which is
    /// harmless: it conflicts with itself.
    pub proposal_ms_max: u64,
    /// How long a site may be silent before it is taken for dead; well above `report_ms`.
    pub silence_ms_max: u64,
    /// How often a site tells the others its oldest start timestamp.
    pub report_ms: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            transactions_max: 10_000,
            parts_max: 10_000,
            waiting_max: 10_000,
            changes_max: 100_000,
            certified_changes_max: 1_000_000,
            snapshots_max: 1000,
            operation_ms_max: 10_000,
            part_idle_ms_max: 60_000,
            proposal_ms_max: 1000,
            silence_ms_max: 3000,
            report_ms: 100,
        }
    }
}
