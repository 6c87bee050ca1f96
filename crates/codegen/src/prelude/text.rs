//! PTX text as it is written.

/// Lines of PTX.
#[derive(Default)]
pub struct Text(String);

impl Text {
    /// A line as it is.
    pub fn raw(&mut self, line: &str) {
        self.0.push_str(line);
        self.0.push('\n');
    }
    /// Lines of a body: labels at the margin, all else behind a tab.
    pub fn code(&mut self, lines: &str) {
        for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
            if !line.ends_with(':') {
                self.0.push('\t');
            }
            self.raw(line);
        }
    }
    /// All of it.
    pub fn finish(self) -> String {
        self.0
    }
}
