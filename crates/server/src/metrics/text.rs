//! Metrics as text: OpenMetrics 1.0 for those who ask for it, as Prometheus does, and Prometheus' older text format
//! for all others.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::sample::{Sample, Value};
use super::seen::{Family, Seen};
use super::table::{From, Kind, METRICS, Metric};
use crate::meters::histogram::{BOUNDS_US, Spread};

/// Which text is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Format {
    /// OpenMetrics.
    OpenMetrics,
    /// Prometheus' own.
    Plain,
}

impl Format {
    /// What a request gets that says `accept` in its header of this name.
    pub(super) fn wanted(accept: &str) -> Format {
        match accept.contains("application/openmetrics-text") {
            true => Format::OpenMetrics,
            false => Format::Plain,
        }
    }

    /// Its media type.
    pub(super) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Plain => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The text of all metrics.
pub(super) fn write(seen: &Arc<Seen>, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Shown(Arc::clone(seen))));
    let mut out = String::new();
    text::encode(&mut out, &registry).expect("a String takes everything");
    match format {
        Format::OpenMetrics => out,
        Format::Plain => plain(&out),
    }
}

/// All metrics, for one text.
#[derive(Debug)]
struct Shown(Arc<Seen>);

impl Collector for Shown {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { metric, samples } in &self.0.families {
            write_family(metric, samples, &mut encoder)?;
        }
        for metric in METRICS {
            if let From::Process(samples) = metric.from {
                write_family(metric, &samples(), &mut encoder)?;
            }
        }
        Ok(())
    }
}

fn write_family(
    metric: &Metric,
    samples: &[Sample],
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let kind = match metric.kind {
        Kind::Counter => MetricType::Counter,
        Kind::Gauge => MetricType::Gauge,
        Kind::Histogram => MetricType::Histogram,
    };
    // The encoder puts the unit behind the name.
    let unit = metric.unit().map(|unit| Unit::Other(unit.to_owned()));
    let name = match metric.unit() {
        Some(unit) => metric.family().trim_end_matches(unit).trim_end_matches('_'),
        None => metric.family(),
    };
    let mut family = encoder.encode_descriptor(name, metric.help, unit.as_ref(), kind)?;
    for sample in samples {
        write_sample(metric, sample, &mut family)?;
    }
    Ok(())
}

fn write_sample(metric: &Metric, sample: &Sample, family: &mut MetricEncoder<'_>) -> fmt::Result {
    debug_assert_eq!(metric.labels.len(), sample.labels.len(), "{}", metric.name);
    let values = sample.labels.iter().map(|value| &**value);
    let labels: Vec<(&str, &str)> = metric.labels.iter().copied().zip(values).collect();
    match labels.is_empty() {
        true => write_value(metric.kind, &sample.value, family),
        false => write_value(metric.kind, &sample.value, &mut family.encode_family(&labels)?),
    }
}

fn write_value(kind: Kind, value: &Value, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    match value {
        Value::Number(number) if kind == Kind::Counter => {
            encoder.encode_counter::<NoLabelSet, f64, f64>(number, None)
        }
        Value::Number(number) => encoder.encode_gauge(number),
        Value::Count(count) => encoder.encode_counter::<NoLabelSet, u64, f64>(count, None),
        Value::Spread(Spread { counts, sum_s }) => {
            let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6);
            let all = bounds.chain([f64::INFINITY]);
            let buckets: Vec<(f64, u64)> = all.zip(counts.iter().copied()).collect();
            let count = counts.iter().sum();
            encoder.encode_histogram::<NoLabelSet>(*sum_s, count, &buckets, None)
        }
    }
}

/// An OpenMetrics text in the older format, which knows no units and no end, and in which a counter's family has the
/// name of its only sample.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        if line.starts_with("# UNIT ") || line == "# EOF" {
            continue;
        }
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", word, family, rest] => {
                let metric = METRICS.iter().find(|metric| metric.family() == *family);
                let name = metric.map_or(*family, |metric| metric.name);
                out.extend(["# ", word, " ", name, " ", rest, "\n"]);
            }
            _ => out.extend([line, "\n"]),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::meters::histogram::Histogram;

    fn seen() -> Arc<Seen> {
        let metric = |name: &str| METRICS.iter().find(|metric| metric.name == name).expect(name);
        let sample = |labels: &[&str], value| {
            let labels = labels.iter().map(|label| (*label).to_owned().into()).collect();
            Sample { labels, value }
        };
        let histogram = Histogram::default();
        histogram.add(Duration::from_micros(70));
        histogram.add(Duration::from_secs(100));
        let families = vec![
            Family {
                metric: metric("hihooi_errors_total"),
                samples: vec![sample(&["a\"b\\c\nd", "primary"], Value::Count(3))],
            },
            Family {
                metric: metric("hihooi_query_seconds"),
                samples: vec![sample(&["x", "replica"], Value::Spread(histogram.spread()))],
            },
            Family {
                metric: metric("hihooi_log_bytes"),
                samples: vec![sample(&[], Value::Number(f64::NAN))],
            },
        ];
        Arc::new(Seen { families, not_ready: None })
    }

    #[test]
    fn open_metrics_has_units_and_an_end() {
        let text = write(&seen(), Format::OpenMetrics);
        for line in [
            "# TYPE hihooi_errors counter",
            r#"hihooi_errors_total{site="a\"b\\c\nd",role="primary"} 3"#,
            "# TYPE hihooi_query_seconds histogram",
            "# UNIT hihooi_query_seconds seconds",
            r#"hihooi_query_seconds_count{site="x",role="replica"} 2"#,
            r#"hihooi_query_seconds_bucket{le="0.0001",site="x",role="replica"} 1"#,
            r#"hihooi_query_seconds_bucket{le="60.0",site="x",role="replica"} 1"#,
            r#"hihooi_query_seconds_bucket{le="+Inf",site="x",role="replica"} 2"#,
            "# UNIT hihooi_log_bytes bytes",
            "hihooi_log_bytes NaN",
            "# UNIT process_cpu_seconds seconds",
        ] {
            assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("\n# EOF\n"));
    }

    #[test]
    fn the_older_format_names_counters_by_their_samples() {
        let text = write(&seen(), Format::Plain);
        for line in ["# TYPE hihooi_errors_total counter", "# TYPE hihooi_log_bytes gauge"] {
            assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
        }
        assert!(text.contains("# HELP process_cpu_seconds_total Processor"), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn who_asks_for_open_metrics_gets_it() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2,*/*;q=0.1";
        assert_eq!(Format::wanted(prometheus), Format::OpenMetrics);
        assert_eq!(Format::wanted("*/*"), Format::Plain);
        assert_eq!(Format::wanted(""), Format::Plain);
    }
}
