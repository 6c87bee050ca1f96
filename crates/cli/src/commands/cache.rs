//! `warpbpf cache`: compiled code that is kept from one run to the next.

use std::path::Path;
use std::time::Duration;

use serde_json::json;
use warpbpf_cache::tend::{Item, Tended};
use warpbpf_cache::{Place, VARIABLE};

use crate::flags::{CacheAction, CacheFlags};
use crate::report::table::{Table, counted, group};
use crate::term::error::CliError;
use crate::term::output::say;

/// Does what is asked.
pub fn run(flags: &CacheFlags) -> Result<u8, CliError> {
    let other = |error: &dyn std::fmt::Display| CliError::Other(error.to_string());
    let variable = |name: &str| std::env::var_os(name);
    let place = match &flags.cache {
        Some(named) => Place::named(Path::new(named), variable),
        // What is there may be of earlier runs, with `--cache on`.
        None if variable(VARIABLE).is_none() => Place::own(variable),
        None => Place::of_environment(variable),
    };
    let Place::Folder(path) = place.map_err(|e| other(&e))? else {
        let text = "compiled code is kept nowhere: the cache is `off`";
        return Err(CliError::Other(text.into()));
    };
    let tended = Tended::open(&path).map_err(|e| other(&e))?;
    let items = tended.as_ref().map_or(Ok(Vec::new()), Tended::items);
    let items = items.map_err(|e| other(&e))?;
    let prune = |bytes| match &tended {
        Some(tended) => tended.prune(bytes).map_err(|e| other(&e)),
        None => Ok((0, 0)),
    };
    match flags.action.as_ref().unwrap_or(&CacheAction::List) {
        CacheAction::List => {
            say(&match flags.json {
                true => format!("{}\n", list_json(&path, &items)),
                false => list(&path, &items),
            });
            Ok(0)
        }
        CacheAction::Verify => {
            let damaged: Vec<&Item> = items.iter().filter(|item| item.label.is_err()).collect();
            for item in &damaged {
                if let Some(tended) = &tended {
                    tended.remove(&item.key);
                }
            }
            say(&match flags.json {
                true => format!("{}\n", verify_json(items.len(), &damaged)),
                false => verified(items.len(), &damaged),
            });
            Ok(u8::from(!damaged.is_empty()))
        }
        CacheAction::Clear => {
            pruned(flags, prune(0)?);
            Ok(0)
        }
        CacheAction::Prune { cache_size } => {
            pruned(flags, prune(*cache_size)?);
            Ok(0)
        }
    }
}

/// How many there are and what they have, in the folder of this user; or why there is none.
pub fn summary() -> Result<String, String> {
    let place = Place::of_environment(|name| std::env::var_os(name));
    match place.map_err(|e| e.to_string())? {
        Place::Off => Ok("off, unless `--cache on` is said".into()),
        Place::Folder(path) => {
            let tended = Tended::open(&path).map_err(|e| e.to_string())?;
            let items = tended.map_or(Ok(Vec::new()), |tended| tended.items());
            let items = items.map_err(|e| e.to_string())?;
            Ok(headline(&path, &items))
        }
    }
}

fn headline(path: &Path, items: &[Item]) -> String {
    let bytes: u64 = items.iter().map(|item| item.bytes).sum();
    format!(
        "{} in {}, {} bytes",
        counted(items.len() as u128, "kernel"),
        path.display(),
        group(u128::from(bytes))
    )
}

/// Kernel and architecture of a label.
fn parts(item: &Item) -> (&str, &str) {
    match &item.label {
        Ok(label) => label.split_once('\n').unwrap_or((label, "")),
        Err(_) => ("(damaged)", ""),
    }
}

fn list(path: &Path, items: &[Item]) -> String {
    let mut table = Table::new(&["kernel", "for", "bytes", "used", "key"]);
    for item in items {
        let (kernel, target) = parts(item);
        table.row(vec![
            kernel.to_owned(),
            target.to_owned(),
            group(u128::from(item.bytes)),
            age(item.age),
            item.key.to_string()[..12].to_owned(),
        ]);
    }
    let mut text = headline(path, items) + "\n";
    if !items.is_empty() {
        table.write(&mut text);
    }
    text
}

fn list_json(path: &Path, items: &[Item]) -> serde_json::Value {
    let rows: Vec<_> = items
        .iter()
        .map(|item| {
            let (kernel, target) = parts(item);
            json!({
                "key": item.key.to_string(),
                "kernel": kernel,
                "target": target,
                "bytes": item.bytes,
                "used_seconds_ago": item.age.as_secs(),
                "damage": item.label.as_ref().err(),
            })
        })
        .collect();
    json!({ "folder": path.display().to_string(), "entries": rows })
}

fn verified(all: usize, damaged: &[&Item]) -> String {
    let mut text = format!(
        "{} checked, {} damaged and taken away\n",
        counted(all as u128, "kernel"),
        damaged.len()
    );
    for item in damaged {
        let reason = item.label.as_ref().err().map_or("", String::as_str);
        text += &format!("  {}: {reason}\n", item.key);
    }
    text
}

fn verify_json(all: usize, damaged: &[&Item]) -> serde_json::Value {
    let rows: Vec<_> = damaged
        .iter()
        .map(|item| json!({ "key": item.key.to_string(), "damage": item.label.as_ref().err() }))
        .collect();
    json!({ "checked": all, "damaged": rows })
}

fn pruned(flags: &CacheFlags, (before, after): (u64, u64)) {
    say(&match flags.json {
        true => format!("{}\n", json!({ "before": before, "after": after })),
        false => format!(
            "{} bytes taken away, {} are left\n",
            group(u128::from(before - after)),
            group(u128::from(after))
        ),
    });
}

/// `5 s ago`, `3 h ago`
fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let (count, unit) = match seconds {
        0..120 => (seconds, "s"),
        120..7200 => (seconds / 60, "min"),
        7200..172_800 => (seconds / 3600, "h"),
        _ => (seconds / 86_400, "d"),
    };
    format!("{count} {unit} ago")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_one_unit() {
        let told = [0, 119, 120, 7199, 7200, 172_799, 172_800].map(|s| age(Duration::from_secs(s)));
        assert_eq!(
            told,
            [
                "0 s ago",
                "119 s ago",
                "2 min ago",
                "119 min ago",
                "2 h ago",
                "47 h ago",
                "2 d ago"
            ]
        );
    }
}
