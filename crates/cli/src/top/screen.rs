//! Draws a frame: a head, a table, the keys.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table, Widget};

use super::frame::Frame;
use super::live::missing;
use super::view::{Grid, Tone, View, Views, bytes, count};

/// Rows of the head, and of the keys.
const HEAD_ROWS: u16 = 3;
const KEY_ROWS: u16 = 1;
/// Rows of the table's titles.
const TITLE_ROWS: u16 = 1;
const KEYS: &str = "q quit   v c p o or Tab: views   s < > sort   r reverse   arrows   space pause";
/// Columns between two columns of the table.
const GAP: u16 = 2;
/// The longest name that is shown in full: the numbers beside it matter more.
const NAME_COLUMNS_MAX: usize = 44;
/// The minimum width with `--once`: the head fits.
const TEXT_COLUMNS_MIN: u16 = 80;

/// All that is drawn.
pub(super) struct Screen<'a> {
    pub(super) frame: &'a Frame,
    pub(super) views: &'a Views,
    /// Why there are no newer figures; absent if there are.
    pub(super) trouble: Option<&'a str>,
    /// Whether the keys are shown.
    pub(super) keys: bool,
}

pub(super) fn table_rows(height: u16) -> usize {
    usize::from(height.saturating_sub(HEAD_ROWS + TITLE_ROWS + KEY_ROWS))
}

/// The whole frame as text of any length.
pub(super) fn text(frame: &Frame, views: &Views) -> String {
    let grid = views.grid(frame);
    let width: u16 = widths(&grid).iter().map(|width| width + GAP).sum();
    // An empty table has a line of text.
    let rows = u16::try_from(grid.rows.len().max(1)).unwrap_or(u16::MAX - HEAD_ROWS - TITLE_ROWS);
    let area = Rect::new(0, 0, width.max(TEXT_COLUMNS_MIN), HEAD_ROWS + TITLE_ROWS + rows);
    let mut buffer = Buffer::empty(area);
    let screen = Screen { frame, views, trouble: None, keys: false };
    screen.render(area, &mut buffer);
    lines(&buffer)
}

pub(super) fn lines(buffer: &Buffer) -> String {
    let area = buffer.area;
    let line = |y: u16| {
        let line: String = (area.left()..area.right()).map(|x| buffer[(x, y)].symbol()).collect();
        line.trim_end().to_owned() + "\n"
    };
    (area.top()..area.bottom()).map(line).collect()
}

impl Widget for Screen<'_> {
    fn render(self, area: Rect, buffer: &mut Buffer) {
        let keys = if self.keys { KEY_ROWS } else { 0 };
        let [head, table, foot] =
            Layout::vertical([Constraint::Length(HEAD_ROWS), Constraint::Min(0), Constraint::Length(keys)])
                .areas(area);
        self.head(head, buffer);
        let grid = self.views.grid(self.frame);
        draw(&grid, self.views.first, table, buffer);
        let dim = Style::new().add_modifier(Modifier::DIM);
        Paragraph::new(Line::styled(KEYS, dim)).render(foot, buffer);
    }
}

impl Screen<'_> {
    fn head(&self, area: Rect, buffer: &mut Buffer) {
        let frame = self.frame;
        let sum = |of: fn(&super::frame::VolumeRow) -> f64| frame.volumes.iter().map(of).sum::<f64>();
        let mut first = frame.node.clone();
        if !frame.version.is_empty() {
            first += &format!(", ursa {}", frame.version);
        }
        if let Some((up, all)) = frame.nodes {
            first += &format!(", {up} of {all} nodes up");
        }
        let load = format!(
            "{} reads/s, {} writes/s; {}/s read, {}/s written",
            count(sum(|row| row.reads)),
            count(sum(|row| row.writes)),
            bytes(sum(|row| row.bytes_read)),
            bytes(sum(|row| row.bytes_written)),
        );
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let bad = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
        let mut first = vec![Span::styled(first, bold)];
        if let Some(trouble) = self.trouble {
            first.push(Span::styled(format!("   {trouble}"), bad));
        } else if self.views.paused {
            first.push(Span::styled("   PAUSED", bold));
        } else if !frame.missing.is_empty() {
            first.push(Span::styled(format!("   MISSING: {}", missing(&frame.missing)), bad));
        } else if frame.findings > 0 {
            first.push(Span::styled(format!("   {} FINDINGS: ursa status", frame.findings), bad));
        }
        let tab = |view: View| match view == self.views.shown {
            true => Span::styled(format!("[{}] ", view.name()), bold),
            false => Span::raw(format!(" {}  ", view.name())),
        };
        let tabs = Line::from_iter(View::ALL.map(tab));
        Paragraph::new(vec![Line::from(first), Line::raw(load), tabs]).render(area, buffer);
    }
}

fn widths(grid: &Grid) -> Vec<u16> {
    let width = |column: usize| {
        let cells = grid.rows.iter().map(|(cells, _)| cells[column].chars().count());
        // The sort mark follows the title.
        let title = grid.titles[column].len() + 1;
        let width = cells.chain([title]).max().unwrap_or(title);
        if grid.right[column] { width } else { width.min(NAME_COLUMNS_MAX) }
    };
    (0..grid.titles.len()).map(|column| width(column) as u16).collect()
}

fn draw(grid: &Grid, first: usize, area: Rect, buffer: &mut Buffer) {
    let (by, reversed) = grid.order;
    let aligned = |column: usize, text: String| {
        let line = Line::raw(text);
        Cell::from(if grid.right[column] { line.right_aligned() } else { line })
    };
    let titles = grid.titles.iter().enumerate().map(|(column, title)| {
        let mark = match (column == by, reversed) {
            (false, _) => "",
            (true, false) => "*",
            (true, true) => "^",
        };
        aligned(column, format!("{title}{mark}"))
    });
    let head = Row::new(titles).style(Style::new().add_modifier(Modifier::REVERSED));
    if grid.rows.is_empty() {
        let [titles, rest] =
            Layout::vertical([Constraint::Length(TITLE_ROWS), Constraint::Min(0)]).areas(area);
        Table::new(Vec::<Row<'_>>::new(), constraints(grid))
            .header(head)
            .column_spacing(GAP)
            .render(titles, buffer);
        Paragraph::new(grid.none).render(rest, buffer);
        return;
    }
    let row = |(cells, tone): &(Vec<String>, Tone)| {
        let style = match tone {
            Tone::Plain => Style::new(),
            Tone::Working => Style::new().fg(Color::Yellow),
            Tone::Bad => Style::new().fg(Color::Red),
        };
        Row::new(cells.iter().enumerate().map(|(column, cell)| aligned(column, cell.clone()))).style(style)
    };
    // There may be fewer rows than when the user scrolled.
    let first = first.min(grid.rows.len() - 1);
    let rows = grid.rows.iter().skip(first).take(usize::from(area.height)).map(row);
    Table::new(rows, constraints(grid)).header(head).column_spacing(GAP).render(area, buffer);
}

fn constraints(grid: &Grid) -> Vec<Constraint> {
    let widths = widths(grid);
    let right = grid.right.iter();
    // On a narrow screen names are cut first; numbers stay.
    widths
        .into_iter()
        .zip(right)
        .map(|(width, right)| if *right { Constraint::Length(width) } else { Constraint::Max(width) })
        .collect()
}
