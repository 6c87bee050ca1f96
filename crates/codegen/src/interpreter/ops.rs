//! What the device can do in one step, each with its PTX: the one table of the interpreter.

use std::fmt::Write as _;

use warpbpf_ebpf::{AluOp, JumpOp, Reg, Width};

use super::area::{KEY_AT, VALUE_AT, VALUE_BYTES};
use crate::ir::{HashOp, Table};
use crate::prelude::hash_name;

/// A register of the interpreter: eBPF's, then those below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reg16(pub u8);

impl Reg16 {
    /// Holds the immediate of the instruction that runs.
    pub const IMM: Reg16 = Reg16(11);
    /// Three for parts of one eBPF instruction.
    pub const A: Reg16 = Reg16(12);
    pub const B: Reg16 = Reg16(14);
    pub const C: Reg16 = Reg16(15);
    /// Holds the address of the run's own memory: the stack, then [`KEY_AT`] and what follows.
    pub const AREA: Reg16 = Reg16(13);
    /// How many there are.
    pub const COUNT: u32 = 16;
}

impl From<Reg> for Reg16 {
    fn from(reg: Reg) -> Reg16 {
        Reg16(reg.index() as u8)
    }
}

/// Read-modify-writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rmw {
    Add,
    Or,
    And,
    Xor,
    Xchg,
    CmpXchg,
}

/// One step. `dst` and `src` are the instruction's registers, `result` gets what comes out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeviceOp {
    /// The program ends; `r0` is the result.
    Exit,
    /// `dst op src`.
    Alu(bool, AluOp),
    /// `-dst`.
    Neg(bool),
    /// The low so many bits of `src` with their sign, in all bits or in the low half.
    MovSx(bool, u8),
    /// The low so many bits of `dst`, as they are or with their bytes reversed.
    End(bool, u8),
    /// Goes to instruction `off` if it holds.
    Jump(bool, JumpOp),
    /// Goes to instruction `off`.
    Goto,
    /// From `src + off`, with its sign or without.
    Load(Width, bool),
    /// `src` to `dst + off`.
    Store(Width),
    /// At `dst + off` with `src`; with what was there as the result, or without one.
    Atomic(Width, Rmw, bool),
    /// Copies as many bytes as the immediate says from `src` to `off` in the own memory.
    Copy,
    /// Orders accesses to memory.
    Fence,
    /// The clock of the device.
    Timer,
    /// Numbers of the lane: `%smid`, `%laneid`, and of block, thread, and the sizes of both.
    Special(&'static str),
    /// A function of the prelude with key and value in the own memory; base in `r1`, flags in `r4`.
    Hash(HashOp, Table),
}

/// Special registers that a step reads.
pub const SPECIALS: [&str; 14] = [
    "%smid",
    "%laneid",
    "%ctaid.x",
    "%ctaid.y",
    "%ctaid.z",
    "%ntid.x",
    "%ntid.y",
    "%ntid.z",
    "%tid.x",
    "%tid.y",
    "%tid.z",
    "%nctaid.x",
    "%nctaid.y",
    "%nctaid.z",
];

const WIDTHS: [Width; 4] = [Width::W8, Width::W16, Width::W32, Width::W64];

impl DeviceOp {
    /// All but functions of the prelude.
    pub fn core() -> Vec<DeviceOp> {
        use {AluOp as A, JumpOp as J};
        let mut all = vec![
            DeviceOp::Timer,
            DeviceOp::Exit,
            DeviceOp::Goto,
            DeviceOp::Copy,
            DeviceOp::Fence,
        ];
        for wide in [false, true] {
            let alu = [
                A::Add,
                A::Sub,
                A::Mul,
                A::Div,
                A::SDiv,
                A::Or,
                A::And,
                A::Lsh,
                A::Rsh,
                A::Mod,
                A::SMod,
                A::Xor,
                A::Mov,
                A::Arsh,
            ];
            all.extend(alu.map(|op| DeviceOp::Alu(wide, op)));
            all.push(DeviceOp::Neg(wide));
            all.extend([8, 16, 32].map(|bits| DeviceOp::MovSx(wide, bits)));
            let jumps = [
                J::Eq,
                J::Ne,
                J::Set,
                J::Gt,
                J::Ge,
                J::Lt,
                J::Le,
                J::SGt,
                J::SGe,
                J::SLt,
                J::SLe,
            ];
            all.extend(jumps.map(|op| DeviceOp::Jump(wide, op)));
        }
        for bits in [16, 32, 64] {
            all.extend([false, true].map(|swap| DeviceOp::End(swap, bits)));
        }
        for width in WIDTHS {
            all.extend([false, true].map(|signed| DeviceOp::Load(width, signed)));
            all.push(DeviceOp::Store(width));
        }
        for width in [Width::W32, Width::W64] {
            for rmw in [Rmw::Add, Rmw::Or, Rmw::And, Rmw::Xor] {
                all.extend([false, true].map(|fetch| DeviceOp::Atomic(width, rmw, fetch)));
            }
            all.extend([Rmw::Xchg, Rmw::CmpXchg].map(|rmw| DeviceOp::Atomic(width, rmw, true)));
        }
        all.extend(SPECIALS.map(DeviceOp::Special));
        all
    }

    /// Its PTX. `%wbpf_x` and `%wbpf_y` hold `dst` and `src`, `%wbpf_u` and `%wbpf_v` their low
    /// halves, `%wbpf_off` and `%wbpf_imm` the rest of the instruction. It goes to `put` with a
    /// result in `%wbpf_x`, to `put32` with one in `%wbpf_u`, to `next` without one, or to `done`.
    pub fn text(self, number: usize) -> String {
        const NEXT: &str = "bra $wbpf_next;";
        match self {
            DeviceOp::Exit => "bra $wbpf_done;".to_owned(),
            DeviceOp::Goto => format!("mov.b64 %wbpf_pc, %wbpf_off;\n{NEXT}"),
            DeviceOp::Copy => copy(number),
            DeviceOp::Fence => format!("membar.gl;\n{NEXT}"),
            DeviceOp::Alu(true, op) => {
                format!("{}bra $wbpf_put;", alu(op, "%wbpf_x", "%wbpf_y", 64))
            }
            DeviceOp::Alu(false, op) => {
                format!("{}bra $wbpf_put32;", alu(op, "%wbpf_u", "%wbpf_v", 32))
            }
            DeviceOp::Neg(true) => "neg.s64 %wbpf_x, %wbpf_x;\nbra $wbpf_put;".to_owned(),
            DeviceOp::Neg(false) => "neg.s32 %wbpf_u, %wbpf_u;\nbra $wbpf_put32;".to_owned(),
            DeviceOp::MovSx(wide, bits) => {
                let extend = match bits {
                    32 => "mov.b32 %wbpf_u, %wbpf_v;".to_owned(),
                    bits => format!("cvt.s32.s{bits} %wbpf_u, %wbpf_v;"),
                };
                match wide {
                    true => format!("{extend}\ncvt.s64.s32 %wbpf_x, %wbpf_u;\nbra $wbpf_put;"),
                    false => format!("{extend}\nbra $wbpf_put32;"),
                }
            }
            DeviceOp::End(swap, bits) => end(swap, bits),
            DeviceOp::Jump(wide, op) => jump(wide, op),
            DeviceOp::Load(width, signed) => load(width, signed),
            DeviceOp::Store(width) => {
                let (value, size) = match width {
                    Width::W64 => ("%wbpf_y", 64),
                    other => ("%wbpf_v", other.bits()),
                };
                format!(
                    "add.s64 %wbpf_x, %wbpf_x, %wbpf_off;\nst.volatile.u{size} [%wbpf_x], {value};\n{NEXT}"
                )
            }
            DeviceOp::Atomic(width, rmw, fetch) => atomic(width, rmw, fetch),
            DeviceOp::Timer => "mov.u64 %wbpf_x, %globaltimer;\nbra $wbpf_put;".to_owned(),
            DeviceOp::Special(name) => format!("mov.u32 %wbpf_u, {name};\nbra $wbpf_put32;"),
            DeviceOp::Hash(op, table) => hash(op, &table),
        }
    }
}

fn alu(op: AluOp, a: &str, b: &str, bits: u32) -> String {
    // A divisor that the machine can take, and what comes out where there was none.
    let safe = |signed: bool| {
        let t = if bits == 64 { "%wbpf_t0" } else { "%wbpf_w0" };
        let mut out =
            format!("setp.eq.s{bits} %wbpf_p0, {b}, 0;\nselp.b{bits} {t}, 1, {b}, %wbpf_p0;\n");
        if signed {
            let _ = write!(
                out,
                "setp.eq.s{bits} %wbpf_p1, {b}, -1;\nselp.b{bits} {t}, 1, {t}, %wbpf_p1;\n"
            );
        }
        (out, t)
    };
    let simple = |name: &str| format!("{name} {a}, {a}, {b};\n");
    let shift = |name: &str| {
        format!(
            "and.b32 %wbpf_v, %wbpf_v, {};\n{name} {a}, {a}, %wbpf_v;\n",
            bits - 1
        )
    };
    match op {
        AluOp::Add => simple(&format!("add.s{bits}")),
        AluOp::Sub => simple(&format!("sub.s{bits}")),
        AluOp::Mul => simple(&format!("mul.lo.s{bits}")),
        AluOp::Or => simple(&format!("or.b{bits}")),
        AluOp::And => simple(&format!("and.b{bits}")),
        AluOp::Xor => simple(&format!("xor.b{bits}")),
        AluOp::Mov => format!("mov.b{bits} {a}, {b};\n"),
        AluOp::Lsh => shift(&format!("shl.b{bits}")),
        AluOp::Rsh => shift(&format!("shr.u{bits}")),
        AluOp::Arsh => shift(&format!("shr.s{bits}")),
        AluOp::Div => {
            let (safe, t) = safe(false);
            format!("{safe}div.u{bits} {a}, {a}, {t};\nselp.b{bits} {a}, 0, {a}, %wbpf_p0;\n")
        }
        AluOp::Mod => {
            let (safe, t) = safe(false);
            format!("{safe}rem.u{bits} {t}, {a}, {t};\nselp.b{bits} {a}, {a}, {t}, %wbpf_p0;\n")
        }
        AluOp::SDiv => {
            let (safe, t) = safe(true);
            format!(
                "{safe}div.s{bits} {t}, {a}, {t};\n@%wbpf_p1 neg.s{bits} {t}, {a};\nselp.b{bits} {a}, 0, {t}, %wbpf_p0;\n"
            )
        }
        AluOp::SMod => {
            let (safe, t) = safe(true);
            format!(
                "{safe}rem.s{bits} {t}, {a}, {t};\n@%wbpf_p1 mov.b{bits} {t}, 0;\nselp.b{bits} {a}, {a}, {t}, %wbpf_p0;\n"
            )
        }
    }
}

fn end(swap: bool, bits: u8) -> String {
    let text = match (swap, bits) {
        (false, 16) => "and.b64 %wbpf_x, %wbpf_x, 0xffff;\nbra $wbpf_put;",
        (false, 32) => "bra $wbpf_put32;",
        (false, _) => "bra $wbpf_put;",
        (true, 16) => "prmt.b32 %wbpf_u, %wbpf_u, 0, 0x4401;\nbra $wbpf_put32;",
        (true, 32) => "prmt.b32 %wbpf_u, %wbpf_u, 0, 0x0123;\nbra $wbpf_put32;",
        (true, _) => {
            "mov.b64 {%wbpf_u, %wbpf_v}, %wbpf_x;\nprmt.b32 %wbpf_u, %wbpf_u, 0, 0x0123;\nprmt.b32 %wbpf_v, %wbpf_v, 0, 0x0123;\n\
             mov.b64 %wbpf_x, {%wbpf_v, %wbpf_u};\nbra $wbpf_put;"
        }
    };
    text.to_owned()
}

fn jump(wide: bool, op: JumpOp) -> String {
    let (a, b, bits) = match wide {
        true => ("%wbpf_x", "%wbpf_y", 64),
        false => ("%wbpf_u", "%wbpf_v", 32),
    };
    let compare = |name: &str| format!("setp.{name}{bits} %wbpf_p0, {a}, {b};");
    let test = match op {
        JumpOp::Eq => compare("eq.u"),
        JumpOp::Ne => compare("ne.u"),
        JumpOp::Set => format!("and.b{bits} {a}, {a}, {b};\nsetp.ne.u{bits} %wbpf_p0, {a}, 0;"),
        JumpOp::Gt => compare("gt.u"),
        JumpOp::Ge => compare("ge.u"),
        JumpOp::Lt => compare("lt.u"),
        JumpOp::Le => compare("le.u"),
        JumpOp::SGt => compare("gt.s"),
        JumpOp::SGe => compare("ge.s"),
        JumpOp::SLt => compare("lt.s"),
        JumpOp::SLe => compare("le.s"),
    };
    format!("{test}\n@%wbpf_p0 mov.b64 %wbpf_pc, %wbpf_off;\nbra $wbpf_next;")
}

fn load(width: Width, signed: bool) -> String {
    let sign = if signed { 's' } else { 'u' };
    let (bits, address) = (
        width.bits(),
        "add.s64 %wbpf_y, %wbpf_y, %wbpf_off;\nld.volatile",
    );
    match (width, signed) {
        (Width::W64, _) => format!("{address}.u64 %wbpf_x, [%wbpf_y];\nbra $wbpf_put;"),
        (_, false) => format!("{address}.u{bits} %wbpf_u, [%wbpf_y];\nbra $wbpf_put32;"),
        (_, true) => format!(
            "{address}.{sign}{bits} %wbpf_u, [%wbpf_y];\ncvt.s64.s32 %wbpf_x, %wbpf_u;\nbra $wbpf_put;"
        ),
    }
}

fn atomic(width: Width, rmw: Rmw, fetch: bool) -> String {
    let wide = width == Width::W64;
    let (value, out, bits) = match wide {
        true => ("%wbpf_y", "%wbpf_x", 64),
        false => ("%wbpf_v", "%wbpf_u", 32),
    };
    let name = match rmw {
        Rmw::Add => format!("add.u{bits}"),
        Rmw::Or => format!("or.b{bits}"),
        Rmw::And => format!("and.b{bits}"),
        Rmw::Xor => format!("xor.b{bits}"),
        Rmw::Xchg => format!("exch.b{bits}"),
        Rmw::CmpXchg => format!("cas.b{bits}"),
    };
    let put = if wide { "put" } else { "put32" };
    let address = "add.s64 %wbpf_t0, %wbpf_x, %wbpf_off;\n";
    if !fetch {
        return format!(
            "{address}red.relaxed.gpu.global.{name} [%wbpf_t0], {value};\nbra $wbpf_next;"
        );
    }
    let expected = match (rmw, wide) {
        (Rmw::CmpXchg, true) => ("ld.local.u64 %wbpf_t1, [wbpf_regs];\n", "%wbpf_t1, "),
        (Rmw::CmpXchg, false) => ("ld.local.u32 %wbpf_w0, [wbpf_regs];\n", "%wbpf_w0, "),
        _ => ("", ""),
    };
    format!(
        "{address}{}atom.acq_rel.gpu.global.{name} {out}, [%wbpf_t0], {}{value};\nbra $wbpf_{put};",
        expected.0, expected.1
    )
}

fn copy(number: usize) -> String {
    format!(
        "add.s64 %wbpf_t0, %wbpf_area, %wbpf_off;\n\
         min.u64 %wbpf_t1, %wbpf_imm, {VALUE_BYTES};\n\
         $wbpf_copy_{number}:\n\
         setp.eq.u64 %wbpf_p0, %wbpf_t1, 0;\n\
         @%wbpf_p0 bra $wbpf_next;\n\
         ld.volatile.u8 %wbpf_u, [%wbpf_y];\n\
         st.volatile.u8 [%wbpf_t0], %wbpf_u;\n\
         add.s64 %wbpf_y, %wbpf_y, 1;\n\
         add.s64 %wbpf_t0, %wbpf_t0, 1;\n\
         sub.s64 %wbpf_t1, %wbpf_t1, 1;\n\
         bra $wbpf_copy_{number};"
    )
}

fn hash(op: HashOp, table: &Table) -> String {
    let (key, value) = match table {
        Table::Hash(l) => (l.key_size, l.value_size),
        Table::Lru(l) => (l.key_size, l.value_size),
        Table::Hosted(l) => (l.key_size, l.value_size),
    };
    let words = |at: u32, bytes: u32| (0..bytes.div_ceil(8)).map(move |word| at + word * 8);
    let mut loads = vec!["ld.local.u64 %wbpf_t0, [wbpf_regs+8];".to_owned()];
    if op == HashOp::Update {
        loads.push("ld.local.u64 %wbpf_t0, [wbpf_regs+32];".to_owned());
    }
    let values = if op == HashOp::Update { value } else { 0 };
    let own = words(KEY_AT, key).chain(words(VALUE_AT, values));
    loads.extend(own.map(|at| format!("ld.u64 %wbpf_t0, [%wbpf_area+{at}];")));
    let mut out = String::from("{\n");
    for (i, load) in loads.iter().enumerate() {
        let _ = write!(
            out,
            ".param .b64 wbpf_c{i};\n{load}\nst.param.b64 [wbpf_c{i}], %wbpf_t0;\n"
        );
    }
    let list: Vec<String> = (0..loads.len()).map(|i| format!("wbpf_c{i}")).collect();
    let _ = write!(
        out,
        ".param .b64 wbpf_v;\ncall (wbpf_v), {}, ({});\nld.param.b64 %wbpf_x, [wbpf_v];\n}}\nbra $wbpf_put;",
        hash_name(op, table, None),
        list.join(", ")
    );
    out
}
