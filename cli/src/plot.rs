//! Measurements as an SVG.

use plotters::prelude::*;

/// A chart among others.
pub struct Panel {
    /// What the y axis shows.
    pub y: &'static str,
    /// Its lines.
    pub series: Vec<Series>,
}

/// A line of a chart.
pub struct Series {
    /// For the legend.
    pub name: String,
    /// Ascending in x.
    pub points: Vec<Point>,
}

/// A measurement, with the least and the most that several runs gave.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// What.
    pub y: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl From<(f64, f64)> for Point {
    fn from((x, y): (f64, f64)) -> Self {
        Self { x, y, min: y, max: y }
    }
}

impl Series {
    /// Puts points into lines by their names; the lines stand in the order in which their names first come.
    pub fn by_name(points: impl IntoIterator<Item = (String, Point)>) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for (name, point) in points {
            match all.iter_mut().find(|series| series.name == name) {
                Some(series) => series.points.push(point),
                None => all.push(Self { name, points: vec![point] }),
            }
        }
        all.iter_mut().for_each(|series| series.points.sort_by(|a, b| a.x.total_cmp(&b.x)));
        all
    }
}

/// Draws charts with one x axis side by side.
pub fn panels(title: &str, x: &str, panels: &[Panel]) -> Result<String, String> {
    let mut svg = String::new();
    let size = (620 * panels.len() as u32, 460);
    draw(title, x, panels, SVGBackend::with_string(&mut svg, size)).map_err(|error| error.to_string())?;
    Ok(svg)
}

fn draw(title: &str, x: &str, panels: &[Panel], backend: SVGBackend<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let root = backend.into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 20))?;
    for (area, panel) in root.split_evenly((1, panels.len())).iter().zip(panels) {
        let points = || panel.series.iter().flat_map(|series| &series.points);
        let least = points().map(|point| point.x).fold(f64::INFINITY, f64::min).min(0.0);
        let most = points().map(|point| point.x).fold(1.0, f64::max);
        let top = points().map(|point| point.max).fold(1e-6, f64::max);
        let mut chart = ChartBuilder::on(area)
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(least..most * 1.02, 0.0..top * 1.08)?;
        chart.configure_mesh().x_desc(x).y_desc(panel.y).draw()?;
        for (i, series) in panel.series.iter().enumerate() {
            let colour = Palette99::pick(i).stroke_width(2);
            chart
                .draw_series(LineSeries::new(series.points.iter().map(|point| (point.x, point.y)), colour))?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            let spread = |point: &Point| PathElement::new([(point.x, point.min), (point.x, point.max)], colour);
            chart.draw_series(series.points.iter().map(spread))?;
            let middle = |point: &Point| Circle::new((point.x, point.y), 3, colour.filled());
            chart.draw_series(series.points.iter().map(middle))?;
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    }
    root.present()?;
    Ok(())
}
