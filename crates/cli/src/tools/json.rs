//! A tool's table for programs: raw values, all rows.

use serde_json::{Map, Value, json};

use crate::tools::rows::Cell;
use crate::tools::tool::{Column, Tool, Unit};

/// What a column is called there: with its unit.
pub fn name(column: &Column) -> String {
    match column.unit {
        Unit::Bytes => format!("{}_bytes", column.name),
        Unit::Time => format!("{}_ns", column.name),
        Unit::Number | Unit::Share | Unit::Mean => column.name.to_owned(),
    }
}

/// `{"tool": "blocks", "rows": [{…}, …]}`
pub fn json(tool: &Tool, by: usize, rows: &[Vec<Cell>]) -> Value {
    let keys = tool.by[..=by].iter().map(|by| by.name().to_owned());
    let names: Vec<String> = keys.chain(tool.columns.iter().map(name)).collect();
    let rows: Vec<Value> = rows
        .iter()
        .map(|row| {
            let mut fields = Map::new();
            for (name, cell) in names.iter().zip(row) {
                let value = match cell {
                    Cell::Name(name) => json!(name),
                    Cell::Whole(number) => json!(number),
                    Cell::Real(number) => json!(number),
                    Cell::None => Value::Null,
                    Cell::Line(place) => {
                        let place = place.as_ref();
                        fields.insert("file".into(), json!(place.map(|(file, _)| file)));
                        json!(place.map(|(_, line)| line))
                    }
                };
                fields.insert(name.clone(), value);
            }
            Value::Object(fields)
        })
        .collect();
    json!({ "tool": tool.name, "rows": rows })
}
