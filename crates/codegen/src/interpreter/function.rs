//! The function on the device.

use std::collections::{BTreeMap, BTreeSet};

use warpbpf_abi::layout::MapLayout;
use warpbpf_abi::names::PREFIX;

use super::ops::DeviceOp;
use super::text;
use crate::fragment::{Env, Fragment, Input, Target};
use crate::ir::{HashOp, Table};
use crate::prelude::{hash_function, hash_name};

/// The function on the device, for programs that use maps of some layouts.
#[derive(Debug, Clone)]
pub struct Interpreter {
    pub(super) name: String,
    pub(super) ops: Vec<DeviceOp>,
    pub(super) functions: BTreeMap<String, String>,
}

impl Interpreter {
    /// For programs that may use maps of `layouts`, in a module for `target`.
    pub fn new(layouts: &[MapLayout], target: Target) -> Interpreter {
        let tables = layouts.iter().filter_map(table);
        let tables: BTreeMap<String, Table> = tables
            .map(|table| (hash_name(HashOp::Lookup, &table, None), table))
            .collect();
        let mut ops = DeviceOp::core();
        let mut functions = BTreeMap::new();
        for table in tables.values() {
            for op in [HashOp::Lookup, HashOp::Update, HashOp::Delete] {
                ops.push(DeviceOp::Hash(op, *table));
                let text = hash_function(op, table, None, target);
                functions.insert(hash_name(op, table, None), text);
            }
        }
        // One for other layouts is another function. Functions stand in the order of their names,
        // and behind those that they call.
        let of_tables: String = tables
            .keys()
            .map(|lookup| lookup.trim_start_matches(PREFIX))
            .collect();
        let name = format!("{PREFIX}vm_{of_tables}");
        functions.insert(name.clone(), text::function(&name, &ops));
        Interpreter {
            name,
            ops,
            functions,
        }
    }

    /// Its functions, by name: as [`Fragment::functions`].
    pub fn functions(&self) -> &BTreeMap<String, String> {
        &self.functions
    }

    /// Number of an operation.
    pub(super) fn number(&self, op: DeviceOp) -> Option<u8> {
        let at = self.ops.iter().position(|known| *known == op)?;
        u8::try_from(at).ok()
    }

    /// Code that runs the program at the address in slot `code`, which gets what a compiled one
    /// would by [`Input::Memory`]. `None` for an environment with another input.
    pub fn fragment(&self, env: &Env, code: u32) -> Option<Fragment> {
        let Input::Memory { slot, size, stride } = env.input else {
            return None;
        };
        let space = env.slots.word();
        Some(Fragment {
            body: text::call(&self.name, space, [code, slot], size, stride),
            functions: self.functions.clone(),
            slots: BTreeSet::from([code, slot]),
            ..Fragment::default()
        })
    }
}

/// What functions of the prelude a map needs.
pub(super) fn table(layout: &MapLayout) -> Option<Table> {
    match layout {
        MapLayout::Hash(layout) => Some(Table::Hash(*layout)),
        MapLayout::Lru(layout) => Some(Table::Lru(*layout)),
        MapLayout::Array(_)
        | MapLayout::Ring(_)
        | MapLayout::PerThread(_)
        | MapLayout::Queue(_)
        | MapLayout::Bloom(_)
        | MapLayout::Hosted(_)
        | MapLayout::UserRing(_) => None,
    }
}
