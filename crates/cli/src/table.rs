//! Tables: columns, no lines.

use api::Since;

use base::ByteLen;

/// A table: rows below a head.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    pub fn new(head: &[&str]) -> Table {
        Table { rows: vec![head.iter().map(|&name| name.to_owned()).collect()] }
    }

    /// Adds a row with a cell for each column.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.rows.push(cells.into());
    }

    /// Adds a row to a table whose number of columns varies.
    ///
    /// # Panics
    /// The number of cells differs from the head's.
    pub fn cells(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.rows[0].len(), "a cell a column");
        self.rows.push(cells);
    }

    /// Leaves a column out.
    pub fn omit(&mut self, name: &str) {
        if let Some(column) = self.rows[0].iter().position(|head| head == name) {
            self.rows.iter_mut().for_each(|row| drop(row.remove(column)));
        }
    }

    /// The table as text; `none` if it has no rows.
    pub fn text(&self, none: &str) -> String {
        if self.rows.len() == 1 {
            return format!("{none}\n");
        }
        let columns = self.rows[0].len();
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut text = String::new();
        for row in &self.rows {
            let cells: Vec<String> =
                row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
            text.push_str(cells.join("  ").trim_end());
            text.push('\n');
        }
        text
    }
}

/// Names and values of an object, one per line.
pub fn fields<const N: usize>(fields: [(&str, String); N]) -> String {
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    fields
        .iter()
        .flat_map(|(name, value)| {
            let lines = if value.is_empty() { vec![""] } else { value.lines().collect() };
            let name_once = |at| if at == 0 { *name } else { "" };
            let line = |(at, line)| format!("{:width$}  {line}", name_once(at)).trim_end().to_owned() + "\n";
            lines.into_iter().enumerate().map(line).collect::<Vec<_>>()
        })
        .collect()
}

/// Prints the missing nodes on standard error, since programs read rows or JSON on standard output.
pub fn say_missing(missing: &[api::Missing]) {
    for api::Missing { node, node_name, reason } in missing {
        eprintln!("MISSING: node {node} ({node_name}): {reason}");
    }
}

/// Formats a size for people.
pub fn size(bytes: u64) -> String {
    ByteLen(bytes).to_string()
}

/// Formats a duration for people.
pub fn age(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", seconds % 60),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

/// Formats for how long something has lasted; `now` is in seconds since 1970.
pub fn lasting(now: u64, since: Since) -> String {
    let at_least = if since.or_earlier { "at least " } else { "" };
    // The node's clock may be ahead.
    format!("for {at_least}{}", age(now.saturating_sub(since.at)))
}

/// Formats a list for people.
pub fn list<T: ToString>(items: impl IntoIterator<Item = T>, none: &str) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { none.to_owned() } else { items.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let mut table = Table::new(&["NAME", "SIZE"]);
        assert_eq!(table.text("none"), "none\n");
        table.row(["a".into(), "10G".into()]);
        table.row(["longer".into(), "".into()]);
        assert_eq!(table.text("none"), "NAME    SIZE\na       10G\nlonger\n");
        table.omit("NAME");
        assert_eq!(table.text("none"), "SIZE\n10G\n\n");
    }

    #[test]
    fn quantities_are_short() {
        assert_eq!([size(0), size(10 << 30), size(1_234_567_890)], ["0", "10G", "1.1G"]);
        assert_eq!([age(9), age(61), age(7_260), age(90_000)], ["9s", "1m01s", "2h01m", "1d01h"]);
        assert_eq!(lasting(185, Since::exactly(5)), "for 3m00s");
        assert_eq!(lasting(4, Since { at: 5, or_earlier: true }), "for at least 0s");
        assert_eq!(fields([("a", "1\n2".into()), ("long", String::new())]), "a     1\n      2\nlong\n");
    }
}
