//! The SIPRe paper's Figures 1 and 2 for a given share of updates and write overhead: scale-out over the number
//! of sites, by kind of replication and by number of copies.

use std::path::Path;

use hihooi_placement::model::even::Even;
use hihooi_placement::model::solve;
use plotters::prelude::*;

use crate::failure::{Failure, Result};

/// Points of a curve at most.
const POINTS_MAX: usize = 25;
/// Copies in the figure by kind when the asked-for system has a copy at (almost) every site.
const COPIES: usize = 5;
/// Size of the picture in pixels.
const SIZE: (u32, u32) = (1200, 520);
/// Colours that the colour-blind can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Draws both into one file.
///
/// # Errors
/// A model that can't be solved, or a file that can't be written.
pub fn draw(path: &Path, asked: &Even) -> Result<()> {
    let by_kind = by_kind(asked)?;
    let by_copies = by_copies(asked)?;
    let mut svg = String::new();
    paint(&mut svg, asked, &by_kind, &by_copies)
        .map_err(|error| Failure::new(format!("cannot draw: {error}")))?;
    std::fs::write(path, svg).map_err(|error| {
        let reason = hihooi_postgres::cluster::plain(&error);
        Failure::new(format!("cannot write {}: {reason}", path.display()))
    })
}

/// Figure 1.
fn by_kind(asked: &Even) -> Result<Vec<Curve>> {
    let copies = if asked.copies * 2 < asked.sites { asked.copies } else { COPIES };
    Ok(vec![
        curve("full replication", asked, |n| (0, n))?,
        curve(&format!("hybrid: 1 full site, {copies} copies"), asked, |n| (1, copies.min(n - 1)))?,
        curve(&format!("partial: {copies} copies"), asked, |n| (0, copies.min(n)))?,
    ])
}

/// Figure 2.
fn by_copies(asked: &Even) -> Result<Vec<Curve>> {
    let mut numbers = vec![2, 5, 10];
    if asked.copies * 2 < asked.sites && !numbers.contains(&asked.copies) {
        numbers.push(asked.copies);
    }
    numbers.sort_unstable();
    let mut curves = Vec::new();
    for copies in numbers {
        let name = if copies == 1 { "1 copy".to_owned() } else { format!("{copies} copies") };
        curves.push(curve(&name, asked, |n| (0, copies.min(n)))?);
    }
    curves.push(curve("N/2 copies", asked, |n| (0, n.div_ceil(2)))?);
    curves.push(curve("N copies", asked, |n| (0, n))?);
    Ok(curves)
}

/// The scale-out of 1 to N sites; `kind` says how many are full, and the copies at the others.
fn curve(name: &str, asked: &Even, kind: impl Fn(usize) -> (usize, usize)) -> Result<Curve> {
    let step = asked.sites.div_ceil(POINTS_MAX);
    let mut sites: Vec<usize> = (1..=asked.sites).step_by(step).collect();
    if sites.last() != Some(&asked.sites) {
        sites.push(asked.sites);
    }
    let mut points = Vec::with_capacity(sites.len());
    for n in sites {
        let (full_sites, copies) = kind(n);
        let even =
            Even { sites: n, full_sites, copies, objects: (n - full_sites).max(1), ..*asked };
        let solved = solve(&even.system().map_err(Failure::new)?).map_err(Failure::new)?;
        points.push((n as f64, solved.scale_out));
    }
    Ok(Curve { name: name.to_owned(), points })
}

type Drawn<T> = std::result::Result<T, DrawingAreaErrorKind<std::io::Error>>;

fn paint(svg: &mut String, asked: &Even, by_kind: &[Curve], by_copies: &[Curve]) -> Drawn<()> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&WHITE)?;
    let load =
        format!("{:.0} % updates, write overhead {}", 100.0 * asked.updates, asked.write_overhead);
    let (left, right) = area.split_horizontally(SIZE.0 / 2);
    chart(&left, &format!("Scale-out by kind of replication ({load})"), by_kind)?;
    chart(&right, &format!("Scale-out of partial replication ({load})"), by_copies)?;
    area.present()
}

fn chart(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    title: &str,
    curves: &[Curve],
) -> Drawn<()> {
    let points = || curves.iter().flat_map(|curve| curve.points.iter());
    let right = points().fold(2.0, |most: f64, point| most.max(point.0));
    let top = points().fold(1.0, |most: f64, point| most.max(point.1)) * 1.05;
    let mut chart = ChartBuilder::on(area)
        .caption(title, ("sans-serif", 17))
        .margin(14)
        .x_label_area_size(42)
        .y_label_area_size(52)
        .build_cartesian_2d(1.0..right, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc("sites")
        .y_desc("scale-out")
        .x_label_formatter(&|sites| format!("{sites:.0}"))
        .y_label_formatter(&|load| format!("{load:.0}"))
        .label_style(("sans-serif", 13))
        .light_line_style(WHITE)
        .draw()?;
    for (curve, &colour) in curves.iter().zip(COLOURS.iter().cycle()) {
        let line = LineSeries::new(curve.points.iter().copied(), colour.stroke_width(2));
        let last = curve.points.last().map_or(0.0, |point| point.1);
        chart
            .draw_series(line)?
            .label(format!("{} ({last:.1})", curve.name))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .label_font(("sans-serif", 13))
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK.mix(0.3))
        .draw()
}
