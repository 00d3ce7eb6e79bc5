//! Throughput and aborts of each protocol over the share of read-only transactions: data of all panels of the
//! RSSI paper's Figure 1 in one figure. Throughput is drawn in percent of the best protocol's; absolute values,
//! which are highest with queries only, would hide the differences.

use std::path::Path;

use hihooi_sim::isolation::protocol::Protocol;
use plotters::prelude::*;

use crate::failure::{Failure, Result};
use crate::plan::isolation::runs::{Run, Runs};

/// Size of the picture in pixels.
const SIZE: (u32, u32) = (1200, 520);
/// Colours that the colour-blind can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 3] = [RGBColor(0, 114, 178), RGBColor(213, 94, 0), RGBColor(0, 158, 115)];

struct Curve {
    protocol: Protocol,
    points: Vec<(f64, f64)>,
}

/// Draws both into one file.
///
/// # Errors
/// Fewer than two shares, or a file that can't be written.
pub fn draw(path: &Path, runs: &Runs, results: &[Run]) -> Result<()> {
    if runs.shares.len() < 2 {
        return Err(Failure::new("--plot needs two shares at least: --read-only 0,50,100"));
    }
    let throughput = curves(runs, results, |run| {
        100.0 * run.report.throughput / best_throughput(results, run.share)
    });
    let aborted = curves(runs, results, |run| 100.0 * run.report.abort_share);
    let mut svg = String::new();
    paint(&mut svg, runs, &throughput, &aborted)
        .map_err(|error| Failure::new(format!("cannot draw: {error}")))?;
    std::fs::write(path, svg).map_err(|error| {
        let reason = hihooi_postgres::cluster::plain(&error);
        Failure::new(format!("cannot write {}: {reason}", path.display()))
    })
}

/// Of all protocols at this share; never 0.
fn best_throughput(results: &[Run], share: Option<f64>) -> f64 {
    let same = results.iter().filter(|run| run.share == share);
    same.map(|run| run.report.throughput).fold(f64::MIN_POSITIVE, f64::max)
}

fn curves(runs: &Runs, results: &[Run], value: impl Fn(&Run) -> f64) -> Vec<Curve> {
    let point = |run: &Run| Some((100.0 * run.share?, value(run)));
    let curve = |protocol: &Protocol| {
        let own = results.iter().filter(|run| run.protocol == *protocol);
        Curve { protocol: *protocol, points: own.filter_map(point).collect() }
    };
    runs.protocols.iter().map(curve).collect()
}

type Drawn<T> = std::result::Result<T, DrawingAreaErrorKind<std::io::Error>>;

fn paint(svg: &mut String, runs: &Runs, throughput: &[Curve], aborted: &[Curve]) -> Drawn<()> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    let size = format!("{} sites, {} clients", runs.setup.sites, runs.setup.clients);
    let (low, high) = (SeriesLabelPosition::LowerLeft, SeriesLabelPosition::UpperRight);
    chart(&left, &format!("Throughput ({size})"), "commits, % of the best", throughput, low)?;
    chart(&right, &format!("Aborts ({size})"), "% of attempts", aborted, high)?;
    area.present()
}

fn chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    unit: &str,
    curves: &[Curve],
    legend: SeriesLabelPosition,
) -> Drawn<()> {
    let values = curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.1));
    let top = values.fold(1.0, f64::max) * 1.05;
    let shares = || curves.iter().flat_map(|curve| curve.points.iter().map(|point| point.0));
    let (first, last) = (shares().fold(100.0, f64::min), shares().fold(0.0, f64::max));
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(14)
        .x_label_area_size(42)
        .y_label_area_size(62)
        .build_cartesian_2d(first..last, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("% read-only transactions")
        .y_desc(unit)
        .x_label_formatter(&|share| format!("{share:.0}"))
        .y_label_formatter(&|value| format!("{value:.0}"))
        .label_style(("sans-serif", 13))
        .light_line_style(WHITE)
        .draw()?;
    for curve in curves {
        let colour = COLOURS[curve.protocol as usize];
        let line = LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2));
        chart
            .draw_series(line)?
            .label(curve.protocol.name())
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(legend)
        .label_font(("sans-serif", 13))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
}
