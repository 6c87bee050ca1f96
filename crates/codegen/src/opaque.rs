//! What ptxas cannot see through, to keep it from optimisations that it gets wrong: a zero, and the
//! lanes of a group.

use warpbpf_flow::Entity;

use crate::ir::{BinOp, Block, Func, Inst, Op, Special, Ty, UnOp, Value};

/// A zero of each width, made in the entry block when it is first asked for.
#[derive(Default)]
pub struct Zeros(Option<[Value; 2]>);

impl Zeros {
    /// The zero of a type; predicates have none.
    pub fn of(&mut self, func: &mut Func, ty: Ty) -> Option<Value> {
        let [narrow, wide] = *self.0.get_or_insert_with(|| make(func));
        match ty {
            Ty::B32 => Some(narrow),
            Ty::B64 => Some(wide),
            Ty::Pred => None,
        }
    }
}

/// A lane is not among those below it: `%lanemask_eq & %lanemask_lt` (PTX ISA, "Special
/// Registers").
fn make(func: &mut Func) -> [Value; 2] {
    let mut at_start = Vec::new();
    let mut push = |ty, op| {
        let result = func.add_value(ty);
        at_start.push(Inst {
            result: Some(result),
            op,
        });
        result
    };
    let own = push(Ty::B32, Op::Special(Special::LanemaskEq));
    let below = push(Ty::B32, Op::Special(Special::LanemaskLt));
    let narrow = push(Ty::B32, Op::Bin(BinOp::And, own, below));
    let wide = push(Ty::B64, Op::Un(UnOp::Zext, narrow));
    func.blocks[Block::ENTRY.index()]
        .insts
        .splice(0..0, at_start);
    [narrow, wide]
}

/// Sets `register` to the mask of the lanes that are here together, so that ptxas does not take it
/// for the same in all lanes that come together later. It believes that of `activemask`, and behind
/// a call makes one atomic operation of those of lanes from different groups: one lane's operand
/// times the number of lanes (ptxas 13.0, sm_90). Where nothing is called between `activemask` and
/// what needs it, as in reservations of rings and in hashes, it is taken as it is.
pub fn group_mask(register: &str) -> String {
    format!(
        "\t{{\n\t.reg .b32 %wbpf_self;\n\tactivemask.b32 {register};\n\tmov.u32 %wbpf_self, %lanemask_eq;\n\t\
         or.b32 {register}, {register}, %wbpf_self;\n\t}}\n"
    )
}
