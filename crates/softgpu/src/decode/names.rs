//! Scopes: what a name in a body stands for.

use warpbpf_ptx::ast::RegisterDecl;

use super::decoder::{FunctionDecoder, ROW_LIMIT, bits_of};
use crate::decode::scope::{Counted, Sym};
use crate::op::Special;
use crate::op::operand::Row;

impl<'a> FunctionDecoder<'_, '_, 'a> {
    pub(super) fn scope(&self) -> usize {
        self.scopes.last().map_or(0, |scope| scope.id)
    }

    pub(super) fn declare(&mut self, name: &'a str, sym: Sym) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.names.insert(name, sym);
        }
    }

    pub(super) fn new_row(&mut self, bits: u32) -> Row {
        let weight = match bits {
            1 => 0,
            2..=32 => 1,
            _ => 2,
        };
        self.ranges.push((u32::MAX, 0, weight));
        self.rows += 1;
        self.rows - 1
    }

    /// Declares registers; `false` if there are too many.
    pub(super) fn declare_registers(&mut self, decl: &RegisterDecl<'a>) -> bool {
        let (lanes, bits) = rows_of(decl.ty);
        let row = self.rows;
        let count = u64::from(lanes) * u64::from(decl.count.unwrap_or(1));
        if u64::from(row) + count > u64::from(ROW_LIMIT) {
            return false;
        }
        (0..count).for_each(|_| {
            self.new_row(bits);
        });
        match decl.count {
            Some(count) => {
                if let Some(scope) = self.scopes.last_mut() {
                    scope.counted.insert(
                        decl.name,
                        Counted {
                            row,
                            count,
                            bits,
                            lanes,
                        },
                    );
                }
            }
            None if lanes == 1 => self.declare(decl.name, Sym::Register { row, bits }),
            None => self.declare(
                decl.name,
                Sym::Vector {
                    row,
                    count: lanes,
                    bits,
                },
            ),
        }
        true
    }

    /// What `name` stands for; registers are noted as in use here.
    pub(super) fn lookup(&mut self, name: &str) -> Option<Sym> {
        let found = self.scopes.iter().rev().find_map(|scope| scope.find(name));
        if let Some(sym) = found {
            if let Sym::Register { row, .. } = sym {
                self.touch(row);
            }
            return Some(sym);
        }
        if let Some((vector, part)) = name.rsplit_once('.')
            && let Some(Sym::Vector { row, count, bits }) = self
                .scopes
                .iter()
                .rev()
                .find_map(|scope| scope.find(vector))
        {
            let index = match part {
                "x" | "r" => 0,
                "y" | "g" => 1,
                "z" | "b" => 2,
                "w" | "a" => 3,
                _ => return None,
            };
            return (index < count).then_some(Sym::Register {
                row: row + index,
                bits,
            });
        }
        self.b.global_name(name)
    }

    fn touch(&mut self, row: Row) {
        let here = self.code.len() as u32;
        if let Some(range) = self.ranges.get_mut(row as usize) {
            range.0 = range.0.min(here);
            range.1 = range.1.max(here);
        }
    }
}

/// Rows of a register of this type, and their bits.
pub(super) fn rows_of(ty: &str) -> (u32, u32) {
    match ty.split_once('.') {
        Some((lanes, ty)) => {
            let (rows, bits) = rows_of(ty);
            (
                lanes.trim_start_matches('v').parse().unwrap_or(1) * rows,
                bits,
            )
        }
        None if ty == "b128" => (2, 64),
        None => (1, bits_of(ty)),
    }
}

/// Special registers by name, PTX ISA "Special Registers".
pub(super) fn special(name: &str) -> Option<Special> {
    let name = name.strip_prefix('%')?;
    if let Some((base, axis)) = name.split_once('.') {
        let axis = match axis {
            "x" => 0,
            "y" => 1,
            "z" => 2,
            "w" => 3,
            _ => return None,
        };
        return Some(match base {
            "tid" => Special::Tid(axis),
            "ntid" => Special::Ntid(axis),
            "ctaid" => Special::Ctaid(axis),
            "nctaid" => Special::Nctaid(axis),
            "clusterid" => Special::ClusterId(axis),
            "nclusterid" => Special::NclusterId(axis),
            "cluster_ctaid" => Special::ClusterCtaid(axis),
            "cluster_nctaid" => Special::ClusterNctaid(axis),
            _ => return None,
        });
    }
    Some(match name {
        // Old modules read the 16-bit forms without a selector: the first component.
        "tid" => Special::Tid(0),
        "ntid" => Special::Ntid(0),
        "ctaid" => Special::Ctaid(0),
        "nctaid" => Special::Nctaid(0),
        "laneid" => Special::LaneId,
        "warpid" => Special::WarpId,
        "nwarpid" => Special::NwarpId,
        "smid" => Special::SmId,
        "nsmid" => Special::NsmId,
        "gridid" => Special::GridId,
        "lanemask_eq" => Special::LanemaskEq,
        "lanemask_le" => Special::LanemaskLe,
        "lanemask_lt" => Special::LanemaskLt,
        "lanemask_ge" => Special::LanemaskGe,
        "lanemask_gt" => Special::LanemaskGt,
        "clock" => Special::Clock,
        "clock_hi" => Special::ClockHi,
        "clock64" => Special::Clock64,
        "globaltimer" => Special::GlobalTimer,
        "globaltimer_lo" => Special::GlobalTimerLo,
        "globaltimer_hi" => Special::GlobalTimerHi,
        "total_smem_size" => Special::TotalSharedSize,
        "aggr_smem_size" => Special::AggregateSharedSize,
        "dynamic_smem_size" => Special::DynamicSharedSize,
        "reserved_smem_offset_begin" => Special::ReservedShared(0),
        "reserved_smem_offset_end" | "reserved_smem_offset_cap" => {
            Special::ReservedShared(crate::limits::RESERVED_SHARED)
        }
        "reserved_smem_offset_0" => Special::ReservedShared(RESERVED_FIRST),
        "reserved_smem_offset_1" => Special::ReservedShared(RESERVED_SECOND),
        "current_graph_exec" => Special::Absent,
        "cluster_ctarank" => Special::ClusterCtaRank,
        "cluster_nctarank" => Special::ClusterNctaRank,
        "is_explicit_cluster" => Special::IsExplicitCluster,
        _ => {
            // Performance counters that nobody has set up count nothing.
            if let Some(counter) = name.strip_prefix("pm") {
                let number = counter.strip_suffix("_64").unwrap_or(counter);
                return (number.parse::<u8>().ok()? < 8).then_some(Special::Absent);
            }
            let number = name.strip_prefix("envreg")?.parse().ok()?;
            return (number < 32).then_some(Special::Environment(number));
        }
    })
}

/// The two places in reserved shared memory that have registers of their own. Cooperative groups
/// have 288 bytes at the second.
const RESERVED_FIRST: u32 = 0;
const RESERVED_SECOND: u32 = 32;
