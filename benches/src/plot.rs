//! Pictures of a report: p50 as a bar and p99 as a mark, on a logarithmic scale, in groups by subject.

use std::path::Path;

use anyhow::anyhow;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::{Report, duration, percentile, size};

/// What a picture shows.
#[derive(Clone, Debug)]
pub struct Plot {
    /// Name of the file, without the ending.
    pub name: &'static str,
    /// What is written above it.
    pub title: &'static str,
    /// What was measured, as the report calls it, and what the picture calls it.
    pub bars: Vec<(String, &'static str)>,
    /// On whom, in order.
    pub subjects: Vec<&'static str>,
}

/// One bar.
struct Bar {
    label: String,
    colour: usize,
    /// What the bar and the mark stand for, and how that is written.
    value: f64,
    mark: Option<f64>,
    text: String,
}

const WIDTH: u32 = 860;
const BAR: i32 = 17;
const GROUP: i32 = 30;
const TOP: i32 = 46;
const BOTTOM: i32 = 44;
const LEFT: i32 = 260;
const RIGHT: i32 = 150;
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x1b, 0x7f, 0x79),
    RGBColor(0x5f, 0xb3, 0xae),
    RGBColor(0x2f, 0x5d, 0x8c),
    RGBColor(0x8a, 0xa9, 0xcc),
    RGBColor(0xb0, 0x6a, 0x2c),
    RGBColor(0xd9, 0xa7, 0x6c),
    RGBColor(0x77, 0x77, 0x77),
];
const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
const RULE: RGBColor = RGBColor(0xdd, 0xdd, 0xdd);

/// Draws those pictures of which something was measured into `folder`.
pub fn draw(plots: &[Plot], report: &Report, folder: &Path) -> anyhow::Result<()> {
    for plot in plots {
        let groups: Vec<_> = plot.subjects.iter().map(|it| (*it, bars(plot, report, it))).collect();
        let groups: Vec<_> = groups.into_iter().filter(|(_, bars)| !bars.is_empty()).collect();
        if !groups.is_empty() {
            let path = folder.join(plot.name).with_extension("svg");
            picture(plot, &groups, &report.machine.cpu, &path).map_err(|e| anyhow!("{}: {e}", plot.name))?;
        }
    }
    Ok(())
}

fn bars(plot: &Plot, report: &Report, subject: &str) -> Vec<Bar> {
    let bar = |(colour, (what, label)): (usize, &(String, &str))| {
        let (label, colour) = ((*label).to_owned(), colour % COLOURS.len());
        if let Some(sorted) = report.sorted(what, subject) {
            let (p50, p99) = (percentile(&sorted, 50.0), percentile(&sorted, 99.0));
            let text = format!("{}  (p99 {})", duration(p50), duration(p99));
            return Some(Bar { label, colour, value: p50 as f64, mark: Some(p99 as f64), text });
        }
        let fact = report.facts.iter().find(|fact| fact.what == *what && fact.subject == subject)?;
        Some(Bar { label, colour, value: fact.bytes as f64, mark: None, text: size(fact.bytes) })
    };
    plot.bars.iter().enumerate().filter_map(bar).collect()
}

type Failed = DrawingAreaErrorKind<std::io::Error>;
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn picture(plot: &Plot, groups: &[(&str, Vec<Bar>)], machine: &str, path: &Path) -> Result<(), Failed> {
    let rows: i32 = groups.iter().map(|(_, bars)| bars.len() as i32 * BAR + GROUP).sum();
    let height = TOP + rows + BOTTOM;
    let area = SVGBackend::new(path, (WIDTH, height as u32)).into_drawing_area();
    area.fill(&WHITE)?;
    let values = || groups.iter().flat_map(|(_, bars)| bars);
    let least = values().map(|bar| bar.value).fold(f64::MAX, f64::min).max(1.0);
    let most = values().map(|bar| bar.mark.unwrap_or(bar.value)).fold(1.0, f64::max);
    let is_time = values().any(|bar| bar.mark.is_some());
    // a rule for each power of this
    let base: u64 = if is_time { 10 } else { 4 };
    let power = |value: f64| value.max(1.0).log(base as f64);
    let (from, to) = (power(least).floor(), power(most).ceil().max(power(least).floor() + 1.0));
    let room = f64::from(WIDTH as i32 - LEFT - RIGHT);
    let x = |value: f64| LEFT + ((power(value) - from) / (to - from) * room).round() as i32;
    write(&area, plot.title, (16, 18), 19.0, HPos::Left)?;
    for power in from as u32..=to as u32 {
        let value = base.pow(power);
        let at = x(value as f64);
        area.draw(&PathElement::new(vec![(at, TOP), (at, TOP + rows)], RULE))?;
        let text =
            if is_time { duration(value) } else { size(value) }.replace(".00 ", " ").replace(".0 ", " ");
        write(&area, &text, (at, TOP + rows + 12), 11.0, HPos::Center)?;
    }
    let mut y = TOP;
    for (subject, bars) in groups {
        write(&area, subject, (16, y + GROUP - 12), 13.0, HPos::Left)?;
        y += GROUP - 6;
        for bar in bars {
            let middle = y + BAR / 2;
            write(&area, &bar.label, (LEFT - 8, middle), 12.0, HPos::Right)?;
            let body = [(LEFT, y + 2), (x(bar.value), y + BAR - 2)];
            area.draw(&Rectangle::new(body, COLOURS[bar.colour].filled()))?;
            let mut end = x(bar.value);
            if let Some(mark) = bar.mark {
                end = x(mark);
                area.draw(&PathElement::new(
                    vec![(x(bar.value), middle), (end, middle)],
                    COLOURS[bar.colour],
                ))?;
                area.draw(&PathElement::new(vec![(end, y + 4), (end, y + BAR - 4)], COLOURS[bar.colour]))?;
            }
            write(&area, &bar.text, (end + 6, middle), 11.0, HPos::Left)?;
            y += BAR;
        }
        y += 6;
    }
    let scale = if is_time { "Logarithmic. Bars: p50; marks: p99. " } else { "Logarithmic. " };
    write(&area, &format!("{scale}{machine}. Less is better."), (16, height - 12), 11.0, HPos::Left)?;
    area.present()
}

fn write(area: &Area<'_>, text: &str, at: (i32, i32), points: f64, side: HPos) -> Result<(), Failed> {
    let style = ("sans-serif", points).into_font().color(&INK).pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::report::{Fact, Row};

    #[test]
    fn a_picture_has_a_bar_for_each_row_that_was_measured() {
        let row = |what: &str, samples: Vec<u64>| Row {
            what: what.into(),
            subject: "CPython".into(),
            samples,
            means: false,
            per_second: None,
        };
        let report = Report {
            name: "r",
            machine: Machine::here(Path::new("/")),
            rows: vec![row("resume", vec![9_000; 9]), row("other", vec![1])],
            facts: vec![Fact { what: "memory".into(), subject: "CPython".into(), bytes: 54 << 10 }],
            notes: Vec::new(),
        };
        let plot = |name, bars: &[(&str, &'static str)]| Plot {
            name,
            title: "A title",
            bars: bars.iter().map(|(what, label)| ((*what).to_owned(), *label)).collect(),
            subjects: vec!["CPython", "QuickJS"],
        };
        let folder = tempfile::tempdir().unwrap();
        let times = plot("times", &[("resume", "warm slot"), ("missing", "nowhere")]);
        let bytes = plot("bytes", &[("memory", "each")]);
        draw(&[times, bytes, plot("nothing", &[("missing", "nowhere")])], &report, folder.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name));
        let times = read("times.svg").unwrap();
        for text in ["A title", "warm slot", "CPython", "9.0 µs  (p99 9.0 µs)"] {
            assert!(times.contains(text), "{times}");
        }
        assert!(!times.contains("nowhere") && !times.contains("QuickJS"), "{times}");
        assert!(read("bytes.svg").unwrap().contains("54.0 KiB"));
        assert!(read("nothing.svg").is_err());
    }
}
