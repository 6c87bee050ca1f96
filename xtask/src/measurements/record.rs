//! The schema of a result: what a record may say, and the errors that name the record and the
//! field.

use serde_json::{Map, Value};

/// One file: results about one thing.
pub struct Subject {
    /// The heading.
    pub title: String,
    /// How it was measured, where that is the same for all records, or where to read on.
    pub about: Option<String>,
    /// In the order in which they are shown.
    pub records: Vec<Record>,
}

/// One result. What is not known is absent.
pub struct Record(Map<String, Value>);

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Date,
    /// A number, a list of them (several runs), or `{"from": …, "to": …}`.
    Numbers,
    Truth,
}

/// Fields that say when, on what and how: records that follow each other and agree in all of these
/// are shown as one table.
pub const CIRCUMSTANCES: [&str; 8] = [
    "date", "gpu", "driver", "machine", "build", "commit", "software", "command",
];

const FIELDS: [(&str, Kind); 17] = [
    ("what", Kind::Text),
    ("column", Kind::Text),
    ("date", Kind::Date),
    ("gpu", Kind::Text),
    ("driver", Kind::Text),
    ("machine", Kind::Text),
    ("build", Kind::Text),
    ("commit", Kind::Text),
    ("software", Kind::Text),
    ("command", Kind::Text),
    ("figure", Kind::Numbers),
    ("unit", Kind::Text),
    ("baseline", Kind::Numbers),
    ("against", Kind::Text),
    ("ratio", Kind::Numbers),
    ("checked", Kind::Truth),
    ("note", Kind::Text),
];

/// How far a ratio may be from figure by baseline, for both were rounded.
const ROUNDING: f64 = 0.03;

impl Subject {
    /// Reads one file.
    ///
    /// # Errors
    /// All that is wrong in it.
    pub fn parse(text: &str) -> Result<Self, Vec<String>> {
        let value: Value = serde_json::from_str(text).map_err(|e| vec![e.to_string()])?;
        let Value::Object(mut fields) = value else {
            return Err(vec!["no object with `title` and `records`".to_owned()]);
        };
        let mut findings = Vec::new();
        let title = match fields.remove("title") {
            Some(Value::String(title)) if !title.is_empty() => title,
            _ => {
                findings.push("`title`: a text is needed".to_owned());
                String::new()
            }
        };
        let about = match fields.remove("about") {
            None => None,
            Some(Value::String(about)) if !about.is_empty() => Some(about),
            Some(_) => {
                findings.push("`about`: no text".to_owned());
                None
            }
        };
        let mut records = Vec::new();
        match fields.remove("records") {
            Some(Value::Array(list)) if !list.is_empty() => {
                for (at, value) in list.into_iter().enumerate() {
                    match Record::parse(value, at + 1) {
                        Ok(record) => records.push(record),
                        Err(found) => findings.extend(found),
                    }
                }
            }
            _ => findings.push("`records`: a list with a record is needed".to_owned()),
        }
        findings.extend(fields.keys().map(|name| format!("`{name}`: no such field")));
        if findings.is_empty() {
            Ok(Subject {
                title,
                about,
                records,
            })
        } else {
            Err(findings)
        }
    }
}

impl Record {
    fn parse(value: Value, number: usize) -> Result<Self, Vec<String>> {
        let Value::Object(fields) = value else {
            return Err(vec![format!("record {number}: no object")]);
        };
        let mut findings = Vec::new();
        for (name, value) in &fields {
            let kind = FIELDS.iter().find(|(known, _)| known == name);
            let wrong = match kind {
                None => Some("no such field"),
                Some((_, Kind::Text)) => wrong_text(value),
                Some((_, Kind::Date)) => match value.as_str() {
                    Some(text) if is_date(text) => None,
                    _ => Some("no date such as 2026-11-20"),
                },
                Some((_, Kind::Numbers)) => match numbers(value) {
                    Some(_) => None,
                    None => Some("no number, list of numbers, or `from` and `to`"),
                },
                Some((_, Kind::Truth)) => (!value.is_boolean()).then_some("neither true nor false"),
            };
            findings.extend(wrong.map(|wrong| format!("`{name}`: {wrong}")));
        }
        if findings.is_empty() {
            findings = Record(fields.clone()).contradictions();
        }
        if findings.is_empty() {
            return Ok(Record(fields));
        }
        let what = fields.get("what").and_then(Value::as_str);
        let what = what.map_or_else(String::new, |what| format!(" (`{what}`)"));
        let found = findings.iter();
        Err(found
            .map(|f| format!("record {number}{what}: {f}"))
            .collect())
    }

    /// Fields that need others, or do not agree.
    fn contradictions(&self) -> Vec<String> {
        let mut findings = Vec::new();
        let has = |name: &str| self.0.contains_key(name);
        if !has("what") {
            findings.push("`what`: is needed".to_owned());
        }
        if !["figure", "ratio", "note"].iter().any(|name| has(name)) {
            findings.push("says nothing: no `figure`, no `ratio`, no `note`".to_owned());
        }
        for (name, needs) in [
            ("figure", "unit"),
            ("unit", "figure"),
            ("baseline", "figure"),
        ] {
            if has(name) && !has(needs) {
                findings.push(format!("`{name}`: needs `{needs}`"));
            }
        }
        if has("against") && !has("baseline") && !has("ratio") {
            findings.push("`against`: needs `baseline` or `ratio`".to_owned());
        }
        let one = |name: &str| self.0.get(name).and_then(Value::as_f64);
        if let (Some(figure), Some(baseline), Some(ratio)) =
            (one("figure"), one("baseline"), one("ratio"))
        {
            let expected = figure / baseline;
            if (expected - ratio).abs() > ROUNDING * expected.max(1.0) {
                findings.push(format!(
                    "`ratio`: {ratio}, but `figure` by `baseline` is {expected:.2}"
                ));
            }
        }
        findings
    }

    /// A field's text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// Whether the application's result was compared.
    pub fn checked(&self) -> Option<bool> {
        self.0.get("checked").and_then(Value::as_bool)
    }

    /// A field's numbers as they are shown.
    pub fn numbers(&self, name: &str) -> Option<String> {
        self.0.get(name).and_then(numbers)
    }

    /// Whether two were measured in the same circumstances.
    pub fn is_beside(&self, other: &Record) -> bool {
        let mut fields = CIRCUMSTANCES.iter();
        fields.all(|name| self.text(name) == other.text(name))
    }
}

fn wrong_text(value: &Value) -> Option<&'static str> {
    match value.as_str() {
        None => Some("no text"),
        Some("") => Some("empty: leave out what is not known"),
        Some(text) if text.trim() != text || text.contains('\n') => {
            Some("space around it, or a line break in it")
        }
        Some(_) => None,
    }
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let [year, month, day] = parts.as_slice() else {
        return false;
    };
    let is_in = |part: &str, digits: usize, most: u32| {
        let number: Option<u32> = part.parse().ok();
        part.len() == digits && number.is_some_and(|n| n > 0 && n <= most)
    };
    is_in(year, 4, 9999) && is_in(month, 2, 12) && is_in(day, 2, 31)
}

/// The text of a number, of several, or of what lies between two.
fn numbers(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(with_commas(&number.to_string())),
        Value::Array(list) if !list.is_empty() => {
            let texts: Option<Vec<String>> = list
                .iter()
                .map(|one| one.is_number().then(|| numbers(one)).flatten())
                .collect();
            // Numbers have commas of their own.
            let texts = texts?;
            let between = match texts.iter().any(|text| text.contains(',')) {
                true => "; ",
                false => ", ",
            };
            Some(texts.join(between))
        }
        Value::Object(range) if range.len() == 2 => {
            let end = |name: &str| range.get(name).filter(|v| v.is_number()).and_then(numbers);
            Some(format!("{} to {}", end("from")?, end("to")?))
        }
        _ => None,
    }
}

/// Thousands apart, and `1.0` as `1.00`: a ratio that was measured to the second digit.
fn with_commas(number: &str) -> String {
    let (whole, rest) = number.split_once('.').unwrap_or((number, ""));
    let (sign, digits) = match whole.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", whole),
    };
    let mut shown = String::from(sign);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    match rest {
        "" => shown,
        "0" => shown + ".00",
        rest => format!("{shown}.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(record: &str) -> Vec<String> {
        let text =
            format!(r#"{{"title": "t", "records": [{{"what": "first", "note": "n"}}, {record}]}}"#);
        Subject::parse(&text).err().unwrap_or_default()
    }

    #[test]
    fn errors_name_the_record_and_the_field() {
        assert_eq!(
            found(r#"{"what": "a", "figure": "3", "unit": "s", "when": "now"}"#),
            [
                "record 2 (`a`): `figure`: no number, list of numbers, or `from` and `to`",
                "record 2 (`a`): `when`: no such field",
            ]
        );
        assert_eq!(
            found(r#"{"what": "a", "figure": 3}"#),
            ["record 2 (`a`): `figure`: needs `unit`"]
        );
        assert_eq!(
            found(r#"{"note": "b", "baseline": 3}"#),
            [
                "record 2: `what`: is needed",
                "record 2: `baseline`: needs `figure`",
            ]
        );
        assert_eq!(
            found(r#"{"what": "a"}"#),
            ["record 2 (`a`): says nothing: no `figure`, no `ratio`, no `note`"]
        );
        assert_eq!(
            found(r#"{"what": "a", "note": "b", "date": "2026-13-01", "gpu": ""}"#),
            [
                "record 2 (`a`): `date`: no date such as 2026-11-20",
                "record 2 (`a`): `gpu`: empty: leave out what is not known",
            ]
        );
        assert_eq!(found("3"), ["record 2: no object"]);
    }

    #[test]
    fn ratios_are_those_of_their_figures() {
        let with = |ratio: &str| {
            found(&format!(
                r#"{{"what": "a", "figure": 3.68, "unit": "µs", "baseline": 3.03, "ratio": {ratio}}}"#
            ))
        };
        assert_eq!(with("1.22"), Vec::<String>::new());
        assert_eq!(
            with("2.12"),
            ["record 2 (`a`): `ratio`: 2.12, but `figure` by `baseline` is 1.21"]
        );
    }

    #[test]
    fn files_need_a_title_and_records() {
        let found = |text: &str| Subject::parse(text).err().unwrap();
        assert_eq!(
            found(r#"{"about": 3, "records": [], "more": 1}"#),
            [
                "`title`: a text is needed",
                "`about`: no text",
                "`records`: a list with a record is needed",
                "`more`: no such field",
            ]
        );
        assert_eq!(found("[]"), ["no object with `title` and `records`"]);
    }

    #[test]
    fn numbers_are_shown_as_people_read_them() {
        let shown = |text: &str| numbers(&serde_json::from_str(text).unwrap());
        assert_eq!(shown("1234567").as_deref(), Some("1,234,567"));
        assert_eq!(shown("-1234.25").as_deref(), Some("-1,234.25"));
        assert_eq!(shown("1.0").as_deref(), Some("1.00"));
        assert_eq!(shown("[3, 4.5]").as_deref(), Some("3, 4.5"));
        assert_eq!(shown("[3000, 4000]").as_deref(), Some("3,000; 4,000"));
        assert_eq!(shown(r#"{"from": 3, "to": 4}"#).as_deref(), Some("3 to 4"));
        assert_eq!(shown(r#"{"from": 3}"#), None);
        assert_eq!(shown("[]"), None);
    }
}
