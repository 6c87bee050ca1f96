//! How often programs were ended in loops that are bounded when they run: an array of one number
//! for each such program, which stands behind the object's own maps. So it is laid out, copied and
//! added up as every map is.

use std::collections::BTreeMap;

use warpbpf_abi::maps::MapType;
use warpbpf_abi::names::STOPS;
use warpbpf_object::{MapDef, MapKind};

use crate::map_plan::MapPlan;
use crate::value::Value;
use crate::view::MapView;

/// The definition of a program's count.
pub fn counter(program: &str) -> MapDef {
    MapDef {
        name: format!("{STOPS}{program}"),
        map_type: MapType::Array as u32,
        key_size: 4,
        value_size: 8,
        max_entries: 1,
        flags: 0,
        kind: MapKind::User,
        extra: BTreeMap::new(),
        key_type: None,
        value_type: None,
        inner: None,
        initial: Vec::new(),
    }
}

/// The program whose count a map is.
pub fn program_of(map: &str) -> Option<&str> {
    map.strip_prefix(STOPS)
}

/// How many runs it has counted, by copies of it out of all contexts.
pub fn count(plan: &MapPlan, parts: &[Vec<u8>]) -> u64 {
    let value = MapView::merged(plan, parts).and_then(|view| view.lookup(&[0; 4]));
    match value {
        Ok(Some(Value::One(bytes))) => bytes.first_chunk().map_or(0, |n| u64::from_le_bytes(*n)),
        _ => 0,
    }
}

/// What to tell of a count that is not 0.
pub fn told(program: &str, count: u64) -> String {
    let times = if count == 1 { "time" } else { "times" };
    format!(
        "program `{program}` was ended {count} {times} in a loop that used up the budget (--bound-loops); what was still to be done is missing: raise the budget (--budget N)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpbpf_abi::layout::SumField;

    use crate::map_plan::{Hardware, SumUse};
    use crate::plan::plan_on;

    #[test]
    fn a_count_is_that_of_all_multiprocessors_and_contexts() {
        let def = counter("walks");
        assert_eq!(program_of(&def.name), Some("walks"));
        assert_eq!(program_of("walks"), None);
        let adds = SumUse {
            adds: [SumField { offset: 0, size: 8 }].into(),
            ..SumUse::default()
        };
        let plan = plan_on(&def, Hardware::new(3, (9, 0)), &[adds]).unwrap();
        let mut part = vec![0; plan.bytes() as usize];
        assert_eq!(count(&plan, std::slice::from_ref(&part)), 0);
        let shard = part.len() / 3;
        for (n, of_shard) in part.chunks_mut(shard).enumerate() {
            of_shard[0] = 1 << n;
        }
        assert_eq!(count(&plan, &[part.clone(), part]), 14);
        // Nothing was copied yet.
        assert_eq!(count(&plan, &[]), 0);
    }

    #[test]
    fn one_time_is_one_time() {
        assert!(told("p", 1).starts_with("program `p` was ended 1 time in a loop"));
        assert!(told("p", 2).starts_with("program `p` was ended 2 times in a loop"));
    }
}
