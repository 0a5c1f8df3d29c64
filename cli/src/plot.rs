//! Measurements as an SVG.

use engine::protocol::PolicyName;
use plotters::prelude::*;

use crate::bench::Row;

/// Draws one line for each policy and budget.
pub fn decode_speed(rows: &[Row], model: &str) -> Result<String, String> {
    let mut svg = String::new();
    draw(rows, model, SVGBackend::with_string(&mut svg, (860, 520))).map_err(|error| error.to_string())?;
    Ok(svg)
}

fn draw(rows: &[Row], model: &str, backend: SVGBackend<'_>) -> Result<(), Box<dyn std::error::Error>> {
    let root = backend.into_drawing_area();
    root.fill(&WHITE)?;
    let longest = rows.iter().map(|row| row.context).max().unwrap_or(0).max(1);
    let fastest = rows.iter().map(|row| row.decode_tok_s.max).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&root)
        .caption(format!("{model}: speed of writing"), ("sans-serif", 20))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(56)
        .build_cartesian_2d(0..longest, 0.0..fastest * 1.1)?;
    chart.configure_mesh().x_desc("tokens of context").y_desc("tok/s (median, min–max)").draw()?;

    let mut series: Vec<(PolicyName, Option<u32>)> = Vec::new();
    for row in rows {
        if !series.contains(&(row.policy, row.budget)) {
            series.push((row.policy, row.budget));
        }
    }
    for (i, key) in series.iter().enumerate() {
        let colour = Palette99::pick(i).stroke_width(2);
        let mut points: Vec<_> = rows.iter().filter(|row| (row.policy, row.budget) == *key).collect();
        points.sort_by_key(|row| row.context);
        chart
            .draw_series(LineSeries::new(points.iter().map(|row| (row.context, row.decode_tok_s.median)), colour))?
            .label(label(*key))
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
        for row in points {
            let (x, speed) = (row.context, row.decode_tok_s);
            chart.draw_series([PathElement::new([(x, speed.min), (x, speed.max)], colour)])?;
            chart.draw_series([Circle::new((x, speed.median), 3, colour.filled())])?;
        }
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    root.present()?;
    Ok(())
}

fn label((policy, budget): (PolicyName, Option<u32>)) -> String {
    match (policy, budget) {
        (PolicyName::Full, _) => "full".to_owned(),
        (_, None) => format!("{}, budget auto", policy.as_str()),
        (_, Some(budget)) => format!("{}, budget {budget}", policy.as_str()),
    }
}

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
    pub points: Vec<(f64, f64)>,
}

/// Draws charts with one x axis side by side.
pub fn panels(title: &str, x: &str, panels: &[Panel]) -> Result<String, String> {
    let mut svg = String::new();
    let size = (620 * panels.len() as u32, 460);
    draw_panels(title, x, panels, SVGBackend::with_string(&mut svg, size)).map_err(|error| error.to_string())?;
    Ok(svg)
}

fn draw_panels(
    title: &str,
    x: &str,
    panels: &[Panel],
    backend: SVGBackend<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    let root = backend.into_drawing_area();
    root.fill(&WHITE)?;
    let root = root.titled(title, ("sans-serif", 20))?;
    for (area, panel) in root.split_evenly((1, panels.len())).iter().zip(panels) {
        let points = || panel.series.iter().flat_map(|series| &series.points);
        let least = points().map(|point| point.0).fold(f64::INFINITY, f64::min).min(0.0);
        let most = points().map(|point| point.0).fold(1.0, f64::max);
        let top = points().map(|point| point.1).fold(1e-6, f64::max);
        let mut chart = ChartBuilder::on(area)
            .margin(16)
            .x_label_area_size(44)
            .y_label_area_size(60)
            .build_cartesian_2d(least..most * 1.02, 0.0..top * 1.08)?;
        chart.configure_mesh().x_desc(x).y_desc(panel.y).draw()?;
        for (i, series) in panel.series.iter().enumerate() {
            let colour = Palette99::pick(i).stroke_width(2);
            chart
                .draw_series(LineSeries::new(series.points.iter().copied(), colour))?
                .label(&series.name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour));
            chart.draw_series(series.points.iter().map(|&point| Circle::new(point, 3, colour.filled())))?;
        }
        chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    }
    root.present()?;
    Ok(())
}
