//! Values of metrics, as the relay's thread hands them over.

use std::borrow::Cow;

use crate::meters::histogram::Spread;

/// A value.
#[derive(Debug)]
pub(super) struct Sample {
    /// Values of the metric's labels, in their order.
    pub(super) labels: Vec<Cow<'static, str>>,
    /// It.
    pub(super) value: Value,
}

/// What a value is.
#[derive(Debug)]
pub(super) enum Value {
    /// A gauge, or a counter of seconds; NaN if it isn't known.
    Number(f64),
    /// A counter.
    Count(u64),
    /// A histogram.
    Spread(Spread),
}
