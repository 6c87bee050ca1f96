//! Atomic read-modify-writes (RFC 9669 §5.3). Memory that no other thread sees needs no atomicity:
//! the parts of the operation are done one after the other, which also serves `.local` memory,
//! where PTX has no atomics.

use warpbpf_ebpf::{AtomicOp, Reg, Width};
use warpbpf_verify::Region;

use super::memory::aligned;
use super::spot::Spot;
use super::translator::Translator;
use crate::error::CodegenError;
use crate::ir::{BinOp, Cond, Op, Order, Origin, Rmw, Ty, Value};

impl Translator<'_> {
    pub(super) fn atomic(
        &mut self,
        spot: Spot,
        width: Width,
        op: AtomicOp,
        src: Reg,
    ) -> Result<(), CodegenError> {
        let (kind, fetch) = match op {
            AtomicOp::Add { fetch } => (Rmw::Add, fetch),
            AtomicOp::Or { fetch } => (Rmw::Or, fetch),
            AtomicOp::And { fetch } => (Rmw::And, fetch),
            AtomicOp::Xor { fetch } => (Rmw::Xor, fetch),
            AtomicOp::Xchg => (Rmw::Exch, true),
            AtomicOp::CmpXchg => (Rmw::Cas, true),
        };
        let to = if kind == Rmw::Cas { Reg::R0 } else { src };
        let whole = aligned(spot.place, width);
        let origin = match spot.place.region {
            Region::MapValue { .. } if !whole => return self.missing("an aligned address"),
            Region::MapValue { map } => Some(Origin {
                map,
                offset: spot.place.offset,
            }),
            Region::Record { .. } | Region::Memory if whole => None,
            Region::Stack { .. } | Region::Record { .. } | Region::Memory => {
                let old = self.separate(spot, width, kind, src)?;
                if fetch {
                    self.set_reg(to, old);
                }
                return Ok(());
            }
            Region::Context | Region::MapKey { .. } => return self.missing("a writable region"),
        };
        let wide = width == Width::W64;
        let mut value = self.reg(src);
        let mut compare = (kind == Rmw::Cas).then(|| self.reg(Reg::R0));
        if !wide {
            value = self.trunc(value);
            compare = compare.map(|c| self.trunc(c));
        }
        let op = Op::Atomic {
            origin,
            op: kind,
            // Linux orders the fetching atomics fully and the others not at all.
            order: if fetch { Order::AcqRel } else { Order::Relaxed },
            width,
            addr: spot.pointer,
            off: spot.off,
            value,
            compare,
            guard: None,
        };
        if fetch {
            let old = self.push(if wide { Ty::B64 } else { Ty::B32 }, op);
            let old = if wide { old } else { self.zext(old) };
            self.set_reg(to, old);
        } else {
            self.push_effect(op);
        }
        Ok(())
    }

    /// Loads, combines, stores. Returns what was there.
    fn separate(
        &mut self,
        spot: Spot,
        width: Width,
        op: Rmw,
        src: Reg,
    ) -> Result<Value, CodegenError> {
        let source = self.reg(src);
        let old = self.load(spot, width, false, false)?;
        let new = self.combine(op, width == Width::W64, old, source);
        self.store(spot, width, new, false)?;
        Ok(old)
    }

    /// What a read-modify-write stores.
    fn combine(&mut self, op: Rmw, wide: bool, old: Value, source: Value) -> Value {
        let bin = match op {
            Rmw::Add => BinOp::Add,
            Rmw::And => BinOp::And,
            Rmw::Or => BinOp::Or,
            Rmw::Xor => BinOp::Xor,
            Rmw::Exch => return source,
            Rmw::Cas => {
                let expected = self.reg(Reg::R0);
                let same = if wide {
                    self.cmp(Cond::Eq, old, expected)
                } else {
                    let (a, b) = (self.trunc(old), self.trunc(expected));
                    self.cmp(Cond::Eq, a, b)
                };
                return self.select(same, source, old);
            }
        };
        self.bin(bin, old, source)
    }
}
