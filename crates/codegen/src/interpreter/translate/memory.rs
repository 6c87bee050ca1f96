//! Accesses to memory: what is not aligned comes apart, and so does what is atomic where nobody
//! else sees it.

use std::collections::BTreeSet;

use warpbpf_abi::context;
use warpbpf_ebpf::{AluOp, AtomicOp, Code, Insn, JumpOp, Pc, Source, Width};
use warpbpf_verify::{InsnFact, Instance, Place, Region};

use super::super::error::NotInterpreted;
use super::super::form::Imm;
use super::super::ops::{DeviceOp, Reg16, Rmw};
use super::super::slot::holds;
use super::translator::{R0, Translator};

impl Translator<'_, '_> {
    /// Load, combine, store on one map value, in a row: an atomic, as in compiled code, because
    /// `(*v)++` on memory that all threads share would lose counts.
    pub(super) fn adds_to_map(
        &mut self,
        instance: &Instance,
        pc: Pc,
        targets: &BTreeSet<Pc>,
    ) -> Result<bool, NotInterpreted> {
        let (second, third) = (pc.next(), pc.next().next());
        let joined = [second, third].iter().any(|pc| targets.contains(pc));
        if third >= instance.end || joined {
            return Ok(false);
        }
        let [from, to] = [pc, third].map(|pc| match instance.at(pc) {
            InsnFact::Access(place) => Some(*place),
            InsnFact::Dead | InsnFact::Plain | InsnFact::Call(_) | InsnFact::Branch { .. } => None,
        });
        let (
            Insn::Load {
                width,
                signed: false,
                dst,
                base,
                off,
            },
            Insn::Alu {
                wide,
                op,
                dst: combined,
                src,
            },
            Insn::Store {
                width: stored,
                base: same_base,
                off: same_off,
                src: Source::Reg(value),
            },
        ) = (
            *self.code.at(pc),
            *self.code.at(second),
            *self.code.at(third),
        )
        else {
            return Ok(false);
        };
        let rmw = match op {
            AluOp::Add | AluOp::Sub => Rmw::Add,
            AluOp::Or => Rmw::Or,
            AluOp::And => Rmw::And,
            AluOp::Xor => Rmw::Xor,
            AluOp::Mul
            | AluOp::Div
            | AluOp::SDiv
            | AluOp::Lsh
            | AluOp::Rsh
            | AluOp::Mod
            | AluOp::SMod
            | AluOp::Mov
            | AluOp::Arsh => return Ok(false),
        };
        let of_map = |place: Option<Place>| {
            let place = place.filter(|place| matches!(place.region, Region::MapValue { .. }));
            place.is_some_and(|place| aligned(place, width))
        };
        let fits = matches!(width, Width::W32 | Width::W64) && (wide || width == Width::W32);
        let same = (stored, same_base, same_off) == (width, base, off);
        let own = dst == combined && dst == value && dst != base && src != Source::Reg(dst);
        if !(fits && same && own && of_map(from) && of_map(to)) {
            return Ok(false);
        }
        let (operand, imm) = match src {
            Source::Reg(src) => (Reg16::from(src), 0),
            Source::Imm(imm) => (Reg16::IMM, i64::from(imm) as u64),
        };
        let (change, dst) = (Reg16::A, Reg16::from(dst));
        let mov = DeviceOp::Alu(true, AluOp::Mov);
        self.emit(mov, [change, operand, change], 0, Imm::Value(imm))?;
        if op == AluOp::Sub {
            self.emit(DeviceOp::Neg(true), [change; 3], 0, Imm::Value(0))?;
        }
        let atomic = DeviceOp::Atomic(width, rmw, true);
        let base = Reg16::from(base);
        self.emit(
            atomic,
            [base, change, Reg16::B],
            i32::from(off),
            Imm::Value(0),
        )?;
        // What the program goes on with. The operand may be what was loaded before, so that comes
        // last.
        let combine = DeviceOp::Alu(wide, op);
        self.emit(combine, [Reg16::B, operand, Reg16::B], 0, Imm::Value(imm))?;
        self.copy(dst, Reg16::B)?;
        Ok(true)
    }

    pub(super) fn access(&self, fact: &InsnFact, width: Width) -> Result<Place, NotInterpreted> {
        match fact {
            InsnFact::Access(place) if place.region == Region::Context => {
                self.field(*place, width).map(|()| *place)
            }
            InsnFact::Access(place) => Ok(*place),
            _ => self.missing("the memory of an access"),
        }
    }

    /// What is read of the context is there.
    fn field(&self, place: Place, width: Width) -> Result<(), NotInterpreted> {
        let Some(site) = self.site else {
            return self.refuse("reads its context");
        };
        let offset = place.offset.and_then(|offset| u32::try_from(offset).ok());
        let field = offset.and_then(|at| context::of(site).containing(at, width.bytes()));
        match field {
            Some(field) if holds(field) => Ok(()),
            Some(field) => Err(NotInterpreted::Field {
                pc: self.pc,
                field: field.name,
            }),
            None => self.missing("a field of the context"),
        }
    }

    pub(super) fn read(
        &mut self,
        place: Place,
        width: Width,
        signed: bool,
        dst: Reg16,
        base: Reg16,
        off: i32,
    ) -> Result<(), NotInterpreted> {
        if aligned(place, width) {
            return self.load(width, signed, dst, base, off);
        }
        let (part, whole) = (Reg16::A, Reg16::B);
        self.set(whole, Imm::Value(0))?;
        for byte in 0..width.bytes() {
            self.load(Width::W8, false, part, base, off + byte as i32)?;
            self.alu_imm(AluOp::Lsh, part, u64::from(byte) * 8)?;
            self.alu(true, AluOp::Or, whole, part)?;
        }
        if signed && width != Width::W64 {
            let op = DeviceOp::MovSx(true, width.bits() as u8);
            return self.emit(op, [dst, whole, dst], 0, Imm::Value(0));
        }
        self.copy(dst, whole)
    }

    pub(super) fn write(
        &mut self,
        place: Place,
        width: Width,
        base: Reg16,
        off: i32,
        src: Reg16,
        imm: u64,
    ) -> Result<(), NotInterpreted> {
        if aligned(place, width) {
            return self.store(width, base, off, src, imm);
        }
        let rest = Reg16::A;
        let op = DeviceOp::Alu(true, AluOp::Mov);
        self.emit(op, [rest, src, rest], 0, Imm::Value(imm))?;
        for byte in 0..width.bytes() {
            self.store(Width::W8, base, off + byte as i32, rest, 0)?;
            self.alu_imm(AluOp::Rsh, rest, 8)?;
        }
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        place: Place,
        width: Width,
        op: AtomicOp,
        base: Reg16,
        off: i32,
        src: Reg16,
    ) -> Result<(), NotInterpreted> {
        let (rmw, alu, fetch) = match op {
            AtomicOp::Add { fetch } => (Rmw::Add, Some(AluOp::Add), fetch),
            AtomicOp::Or { fetch } => (Rmw::Or, Some(AluOp::Or), fetch),
            AtomicOp::And { fetch } => (Rmw::And, Some(AluOp::And), fetch),
            AtomicOp::Xor { fetch } => (Rmw::Xor, Some(AluOp::Xor), fetch),
            AtomicOp::Xchg => (Rmw::Xchg, None, true),
            AtomicOp::CmpXchg => (Rmw::CmpXchg, None, true),
        };
        let to = if rmw == Rmw::CmpXchg { R0 } else { src };
        let own = matches!(place.region, Region::Stack { .. });
        if !own && aligned(place, width) {
            let op = DeviceOp::Atomic(width, rmw, fetch);
            return self.emit(op, [base, src, to], off, Imm::Value(0));
        }
        if matches!(place.region, Region::MapValue { .. }) {
            return self.missing("an aligned address");
        }
        // Nobody else sees it. The old value is put where nothing of what follows is.
        let (old, new) = (Reg16::C, Reg16::B);
        self.read(place, width, false, old, base, off)?;
        let done = self.label();
        match alu {
            Some(alu) => {
                self.copy(new, old)?;
                self.alu(true, alu, new, src)?;
            }
            None => {
                if rmw == Rmw::CmpXchg {
                    self.jump(width == Width::W64, JumpOp::Ne, old, R0, 0, done)?;
                }
                self.copy(new, src)?;
            }
        }
        self.write(place, width, base, off, new, 0)?;
        self.place(done);
        match fetch {
            true => self.copy(to, old),
            false => Ok(()),
        }
    }
}

/// Instructions of a function that are jumped to.
pub(super) fn targets(code: &Code, instance: &Instance) -> BTreeSet<Pc> {
    let all = &code.insns()[instance.start.index()..instance.end.index()];
    let target = |insn: &Insn| match insn {
        Insn::Jump { target, .. } | Insn::Goto { target, .. } | Insn::MayGoto { target } => {
            Some(*target)
        }
        _ => None,
    };
    all.iter().filter_map(target).collect()
}

/// The address is a multiple of the width: every region begins at a multiple of 8.
fn aligned(place: Place, width: Width) -> bool {
    match place.offset {
        Some(offset) => offset % i64::from(width.bytes()) == 0,
        None => place.align >= width.bytes(),
    }
}
