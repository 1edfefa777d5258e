//! Tables: columns as wide as necessary, the first one aligned left, the others right.

/// A table.
pub(super) struct Columns(Vec<Vec<String>>);

impl Columns {
    /// A table with this head.
    pub(super) fn new(head: &[&str]) -> Columns {
        Columns(vec![head.iter().map(|&name| name.to_owned()).collect()])
    }

    pub(super) fn row(&mut self, cells: Vec<String>) {
        self.0.push(cells);
    }

    pub(super) fn text(&self) -> String {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.0
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("  {cell:>width$}"),
            });
            cells.collect::<String>().trim_end().to_owned() + "\n"
        };
        self.0.iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Columns::new(&["", "IOPS"]);
        table.row(vec!["reads".into(), "1".into()]);
        table.row(vec!["µs".into(), "12,345".into()]);
        assert_eq!(table.text(), "         IOPS\nreads       1\nµs     12,345\n");
    }
}
