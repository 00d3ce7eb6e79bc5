//! Compares replicas with the primary at one TSID, and names the rows that differ (I2, I5).

use std::sync::Arc;
use std::time::Duration;

use hihooi_replication::ids::Tsid;

use crate::apply::ApplierHandle;
use crate::site::{Replica, Site};

/// Tells which of the log's entries a snapshot of the primary includes.
pub trait LogView: Sync {
    /// The newest entry.
    fn last(&self) -> Tsid;
    /// The low 32 bits of the transaction ids of the entries behind `after`, in order.
    ///
    /// # Errors
    /// A sentence for the operator when the log can't be read there.
    fn xids_after(&self, after: Tsid) -> Result<Vec<(Tsid, u32)>, String>;
    /// Waits until the collector passed the primary's present insert position: everything that
    /// was committed before the call is then in the log.
    fn caught_up(&self) -> std::pin::Pin<Box<dyn Future<Output = Result<(), String>> + Send + '_>>;
}

/// How to verify.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database.
    pub database: String,
    /// Differing rows that are listed, in all.
    pub rows_max: usize,
    /// How long the replicas may take to reach the position.
    pub wait: Duration,
}

/// One difference between a replica and the primary.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// The replica.
    pub site: String,
    /// The table, or what else differs.
    pub object: String,
    /// What differs, in words.
    pub what: String,
}

/// A row that differs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowDifference {
    /// The replica.
    pub site: String,
    /// The table.
    pub table: String,
    /// The row's key, or its whole text if the table has none.
    pub key: String,
    /// The row on the primary; `None` if it isn't there.
    pub primary: Option<String>,
    /// The row on the replica; `None` if it isn't there.
    pub replica: Option<String>,
}

/// What verification found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The position at which the sites were compared.
    pub tsid: Tsid,
    /// The replicas compared.
    pub replicas: Vec<String>,
    /// Tables and materialized views compared.
    pub tables: usize,
    /// Rows compared, on the primary.
    pub rows: u64,
    /// What differs.
    pub differences: Vec<Difference>,
    /// Rows that differ, at most as many as asked for.
    pub row_differences: Vec<RowDifference>,
}

impl Report {
    /// Whether every replica equals the primary.
    #[must_use]
    pub fn is_equal(&self) -> bool {
        self.differences.is_empty() && self.row_differences.is_empty()
    }
}

/// Why verification could not be done.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct VerifyError(pub String);

/// Compares `replicas` with `primary` at one position of the log. `progress` is called with lines
/// for the user.
///
/// # Errors
/// [`VerifyError`] when a site can't be compared at all; what differs is in the [`Report`].
pub async fn verify(
    primary: &Site,
    replicas: &[(Arc<Replica>, ApplierHandle)],
    log: &dyn LogView,
    options: &Options,
    progress: &mut (dyn FnMut(String) + Send),
) -> Result<Report, VerifyError> {
    let _ = (primary, replicas, log, options, progress);
    unimplemented!("verification")
}
