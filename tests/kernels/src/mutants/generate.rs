//! Kernels that nobody wrote: random PTX whose threads keep to memory of their own, whatever else
//! is changed in it.
//!
//! Names say what may be changed. `%r`, `%l`, `%f`, `%h`, `%p` are values: any change of them gives
//! another kernel that is as good. `%a` and `%b` are addresses and what they are made of, `%c` and
//! `%q` count rounds of loops: with them as they are, no thread leaves its rows, no loop goes on
//! for ever, and all threads come to each barrier.

use std::fmt::Write as _;

use warpbpf_conformance::rng::Rng;

/// Bytes that a thread has in each buffer.
pub const ROW: u32 = 64;
/// Bytes that a thread has in shared memory.
const SHARED_ROW: u32 = 32;
/// Name of the kernel.
pub const KERNEL: &str = "mutant";
/// Most threads of a block.
pub const MOST_THREADS: u32 = 96;

/// A kernel and how it is launched: `in`, `out` (a row for each thread), a number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generated {
    /// The module.
    pub text: String,
    /// Blocks.
    pub blocks: u32,
    /// Threads per block.
    pub threads: u32,
}

/// A random kernel.
pub fn generate(rng: &mut Rng) -> Generated {
    let mut writer = Writer {
        out: String::new(),
        labels: 0,
        loops: 0,
        function: rng.one_in(2),
        table: rng.one_in(4),
        generic: rng.one_in(2),
        fused: rng.one_in(4),
        rng,
    };
    let threads = writer.rng.pick(&[32, 64, 96, 40, 33]);
    writer.module();
    Generated {
        text: writer.out,
        blocks: 3,
        threads,
    }
}

struct Writer<'r> {
    out: String,
    labels: u32,
    loops: u32,
    /// There is a function to call.
    function: bool,
    /// There is a constant table, so that the kernel is made into a clone.
    table: bool,
    /// Rows are read and written through generic addresses, too.
    generic: bool,
    /// Products and sums that the compiler may fuse.
    fused: bool,
    rng: &'r mut Rng,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "\t{text}");
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("$L{}", self.labels)
    }

    fn module(&mut self) {
        self.out
            .push_str(".version 8.0\n.target sm_90\n.address_size 64\n");
        if self.table {
            self.out
                .push_str(".const .align 4 .u32 table[8] = {3, 1, 4, 1, 5, 9, 2, 6};\n");
        }
        if self.function {
            self.out
                .push_str(".func (.param .b32 result) helper(.param .b32 x, .param .b64 row)\n{\n");
            self.registers();
            self.line("ld.param.b64 %a0, [row];");
            self.line("ld.param.b32 %r0, [x];");
            self.line("mov.b32 %b1, 0;");
            self.values(false);
            self.straight(4);
            if self.rng.one_in(2) {
                self.branch(0);
            }
            self.line("ld.global.u32 %r1, [%a0+8];");
            self.line("add.u32 %r0, %r0, %r1;");
            self.line("st.param.b32 [result], %r0;");
            self.line("ret;");
            self.out.push_str("}\n");
        }
        let _ = write!(
            self.out,
            ".visible .entry {KERNEL}(.param .u64 in, .param .u64 out, .param .u32 salt)\n{{\n"
        );
        self.kernel();
        self.out.push_str("}\n");
    }

    fn registers(&mut self) {
        for declared in [
            ".reg .pred %p<4>;",
            ".reg .pred %q<8>;",
            ".reg .b16 %h<3>;",
            ".reg .b32 %r<10>;",
            ".reg .b32 %b<8>;",
            ".reg .b32 %c<8>;",
            ".reg .f32 %f<5>;",
            ".reg .b64 %l<5>;",
            ".reg .b64 %a<10>;",
        ] {
            self.line(declared);
        }
    }

    /// Every value gets one, so that no change leaves a register without.
    fn values(&mut self, kernel: bool) {
        let first = if kernel { 0 } else { 1 };
        for register in first..10 {
            let number = self.rng.number() as u32;
            self.line(&format!("mov.b32 %r{register}, {number:#x};"));
        }
        for register in 0..5 {
            let number = self.rng.number();
            self.line(&format!("mov.b64 %l{register}, {number:#x};"));
            let small = (self.rng.below(64) as f32 - 20.0) / 4.0;
            self.line(&format!("mov.f32 %f{register}, 0f{:08X};", small.to_bits()));
        }
        for register in 0..3 {
            let number = self.rng.below(0x10000);
            self.line(&format!("mov.b16 %h{register}, {number};"));
        }
        for register in 0..4 {
            let limit = self.rng.below(64);
            self.line(&format!("setp.lt.u32 %p{register}, %r{register}, {limit};"));
        }
    }

    fn kernel(&mut self) {
        self.registers();
        self.line(&format!(
            ".shared .align 16 .b8 rows[{}];",
            SHARED_ROW * MOST_THREADS
        ));
        self.line(".local .align 16 .b8 own[32];");
        for text in [
            "ld.param.u64 %a0, [in];",
            "ld.param.u64 %a1, [out];",
            "cvta.to.global.u64 %a0, %a0;",
            "cvta.to.global.u64 %a1, %a1;",
            "mov.u32 %b0, %tid.x;",
            "mov.u32 %b2, %ctaid.x;",
            "mov.u32 %b3, %ntid.x;",
            "mad.lo.u32 %b2, %b2, %b3, %b0;",
        ] {
            self.line(text);
        }
        self.line(&format!("mul.wide.u32 %a9, %b2, {ROW};"));
        self.line("add.u64 %a0, %a0, %a9;");
        self.line("add.u64 %a1, %a1, %a9;");
        self.line("mov.u32 %b1, rows;");
        self.line(&format!("mad.lo.u32 %b1, %b0, {SHARED_ROW}, %b1;"));
        self.line("mov.u64 %a2, own;");
        self.values(true);
        self.line("ld.param.u32 %r0, [salt];");
        self.line("xor.b32 %r0, %r0, %b2;");
        // What is read of shared and local memory later was written.
        for at in [0, 16] {
            self.line(&format!(
                "st.shared.v4.u32 [%b1+{at}], {{%r0, %r1, %r2, %r3}};"
            ));
            self.line(&format!(
                "st.local.v4.u32 [%a2+{at}], {{%r4, %r5, %r6, %r7}};"
            ));
        }
        let exits = self.rng.one_in(3);
        for _ in 0..self.rng.between(2, 4) {
            match self.rng.below(8) {
                0 if !exits => self.exchange(),
                1 if !exits => self.warp(),
                2 if exits => {
                    let guard = self.guard();
                    let word = self.rng.pick(&["exit", "ret"]);
                    self.line(&format!("{guard} {word};"));
                }
                3 => self.jump(),
                4 if self.function => self.call(),
                _ => self.branch(0),
            }
            self.straight(3);
        }
        self.line("st.global.v2.u32 [%a1+48], {%r0, %r1};");
        self.line("st.global.f32 [%a1+56], %f0;");
        let ending = self.rng.pick(&["ret;", "exit;", ""]);
        self.line(ending);
    }

    fn register(&mut self) -> String {
        format!("%r{}", self.rng.below(10))
    }

    fn guard(&mut self) -> String {
        let not = if self.rng.one_in(2) { "!" } else { "" };
        format!("@{not}%p{}", self.rng.below(4))
    }

    fn source(&mut self) -> String {
        if self.rng.one_in(3) {
            format!("{}", self.rng.number() as u32 as i32)
        } else {
            self.register()
        }
    }

    fn straight(&mut self, most: usize) {
        for _ in 0..=self.rng.below(most) {
            match self.rng.below(6) {
                0 | 1 => self.access(),
                2 => self.float(),
                3 => self.long(),
                _ => self.arithmetic(),
            }
        }
    }

    fn arithmetic(&mut self) {
        let (d, a, b) = (self.register(), self.register(), self.source());
        let text = match self.rng.below(12) {
            0 => format!("mul.lo.u32 {d}, {a}, {b};"),
            1 => format!("mad.lo.s32 {d}, {a}, {b}, {};", self.register()),
            2 => format!("shl.b32 {d}, {a}, {};", self.rng.below(40)),
            3 => format!("shr.s32 {d}, {a}, {};", self.rng.below(40)),
            4 => format!("selp.b32 {d}, {a}, {b}, %p{};", self.rng.below(4)),
            5 => {
                let compare = self.rng.pick(&["eq", "ne", "lt", "le", "gt", "ge"]);
                let ty = self.rng.pick(&["u32", "s32"]);
                format!("setp.{compare}.{ty} %p{}, {a}, {b};", self.rng.below(4))
            }
            6 => format!("prmt.b32 {d}, {a}, {b}, {};", self.rng.below(0x10000)),
            7 => format!("popc.b32 {d}, {a};"),
            8 => format!("min.s32 {d}, {a}, {b};"),
            9 => format!("cvt.u16.u32 %h{}, {a};", self.rng.below(3)),
            _ => {
                let operation = self
                    .rng
                    .pick(&["add.u32", "sub.s32", "xor.b32", "and.b32", "or.b32"]);
                format!("{operation} {d}, {a}, {b};")
            }
        };
        let guard = match self.rng.one_in(6) {
            true => self.guard() + " ",
            false => String::new(),
        };
        self.line(&format!("{guard}{text}"));
    }

    fn float(&mut self) {
        let (d, a, b) = (self.rng.below(5), self.rng.below(5), self.rng.below(5));
        let round = if self.fused { "" } else { ".rn" };
        let text = match self.rng.below(6) {
            0 => format!("add{round}.f32 %f{d}, %f{a}, %f{b};"),
            1 => format!("mul{round}.f32 %f{d}, %f{a}, %f{b};"),
            2 => format!("fma.rn.f32 %f{d}, %f{a}, %f{b}, %f{d};"),
            3 => format!("cvt.rn.f32.s32 %f{d}, {};", self.register()),
            4 => format!("cvt.rzi.s32.f32 {}, %f{a};", self.register()),
            _ => format!("neg.f32 %f{d}, %f{a};"),
        };
        self.line(&text);
    }

    fn long(&mut self) {
        let (d, a, b) = (self.rng.below(5), self.rng.below(5), self.rng.below(5));
        let text = match self.rng.below(6) {
            0 => format!("add.s64 %l{d}, %l{a}, %l{b};"),
            1 => format!(
                "mul.wide.u32 %l{d}, {}, {};",
                self.register(),
                self.register()
            ),
            2 => format!("cvt.u32.u64 {}, %l{a};", self.register()),
            3 => format!("shr.u64 %l{d}, %l{a}, {};", self.rng.below(70)),
            4 => format!(
                "mov.b64 %l{d}, {{{}, {}}};",
                self.register(),
                self.register()
            ),
            _ => format!("xor.b64 %l{d}, %l{a}, %l{b};"),
        };
        self.line(&text);
    }

    /// An address in one of the rows, for an access of so many bytes: base and offset, or a base
    /// that was computed.
    fn place(&mut self, bytes: u32, base: &str, row: u32) -> String {
        if self.rng.one_in(3) {
            // Computed from a value, and masked.
            let mask = (row - 1) & !(bytes - 1);
            let value = self.register();
            self.line(&format!("and.b32 %b7, {value}, {mask};"));
            if base.starts_with("%b") {
                self.line(&format!("add.u32 %b6, {base}, %b7;"));
                return "[%b6]".into();
            }
            self.line("cvt.u64.u32 %a9, %b7;");
            self.line(&format!("add.u64 %a8, {base}, %a9;"));
            return "[%a8]".into();
        }
        let at = self.rng.below((row / bytes) as usize) as u32 * bytes;
        match self.rng.below(4) {
            0 if at == 0 => format!("[{base}]"),
            1 => format!("[{base}+{at:#x}]"),
            2 => {
                let minus = if base.starts_with("%b") {
                    "u32 %b6"
                } else {
                    "u64 %a8"
                };
                let register = &minus[4..];
                self.line(&format!("add.{minus}, {base}, {row};"));
                format!("[{register}+-{}]", row - at)
            }
            _ => format!("[{base}+{at}]"),
        }
    }

    fn access(&mut self) {
        let guard = match self.rng.one_in(4) {
            true => self.guard() + " ",
            false => String::new(),
        };
        let in_function = !self.out.contains(".entry");
        let choice = self.rng.below(if in_function { 4 } else { 12 });
        let text = match choice {
            0 => {
                let at = self.place(4, "%a0", ROW);
                let form = self.rng.pick(&["", ".nc", ".ca", ".cg"]);
                format!("ld.global{form}.u32 {}, {at};", self.register())
            }
            1 => {
                let at = self.place(1, "%a0", ROW);
                let ty = self.rng.pick(&["u8", "s8"]);
                format!("ld.global.{ty} {}, {at};", self.register())
            }
            2 => {
                let at = self.place(8, "%a0", ROW);
                format!(
                    "ld.global.v2.u32 {{{}, {}}}, {at};",
                    "%r2",
                    self.rng.pick(&["%r3", "%r4"])
                )
            }
            3 => {
                let at = self.place(8, "%a0", ROW);
                format!("ld.global.b64 %l{}, {at};", self.rng.below(5))
            }
            4 => {
                let at = self.place(4, "%a1", 48);
                let form = self.rng.pick(&["", ".wb", ".cg", ".cs"]);
                format!("st.global{form}.u32 {at}, {};", self.source())
            }
            5 => {
                let at = self.place(16, "%a1", 48);
                format!(
                    "st.global.v4.u32 {at}, {{%r1, %r5, %r1, {}}};",
                    self.register()
                )
            }
            6 => {
                let at = self.place(2, "%a1", 48);
                format!("st.global.u16 {at}, %h{};", self.rng.below(3))
            }
            7 => {
                let at = self.place(4, "%b1", SHARED_ROW);
                match self.rng.one_in(2) {
                    true => format!("st.shared.u32 {at}, {};", self.register()),
                    false => format!("ld.volatile.shared.u32 {}, {at};", self.register()),
                }
            }
            8 => {
                let at = self.place(4, "%a2", 32);
                match self.rng.one_in(2) {
                    true => format!("st.local.u32 {at}, {};", self.register()),
                    false => format!("ld.local.u32 {}, {at};", self.register()),
                }
            }
            9 => {
                let at = self.place(4, "%a1", 48);
                let operation = self
                    .rng
                    .pick(&["add.u32", "max.s32", "xor.b32", "exch.b32"]);
                format!(
                    "atom.global.{operation} {}, {at}, {};",
                    self.register(),
                    self.register()
                )
            }
            10 => {
                let at = self.place(4, "%a1", 48);
                let operation = self.rng.pick(&["add.u32", "min.u32", "or.b32"]);
                format!(
                    "red.relaxed.gpu.global.{operation} {at}, {};",
                    self.register()
                )
            }
            _ if self.table => {
                let value = self.register();
                self.line(&format!("and.b32 %b7, {value}, 28;"));
                self.line("cvt.u64.u32 %a9, %b7;");
                self.line("mov.u64 %a8, table;");
                self.line("add.u64 %a8, %a8, %a9;");
                format!("ld.const.u32 {}, [%a8];", self.register())
            }
            _ if self.generic => {
                let base = self.rng.pick(&["%b1", "%a1"]);
                if base == "%b1" {
                    self.line("cvt.u64.u32 %a9, %b1;");
                    self.line("cvta.shared.u64 %a8, %a9;");
                } else {
                    self.line("cvta.global.u64 %a8, %a1;");
                }
                let at = self.rng.below(8) * 4;
                format!("ld.u32 {}, [%a8+{at}];", self.register())
            }
            _ => {
                let at = self.place(4, "%a1", 48);
                format!("ld.global.u32 {}, {at};", self.register())
            }
        };
        self.line(&format!("{guard}{text}"));
    }

    fn branch(&mut self, depth: u32) {
        if depth > 2 {
            return self.straight(3);
        }
        match self.rng.below(3) {
            0 => self.rounds(depth),
            1 => {
                let (guard, end) = (self.guard(), self.label());
                self.line(&format!("{guard} bra {end};"));
                self.inside(depth);
                self.line(&format!("{end}:"));
            }
            _ => {
                let (guard, other, end) = (self.guard(), self.label(), self.label());
                self.line(&format!("{guard} bra {other};"));
                self.inside(depth);
                self.line(&format!("bra.uni {end};"));
                self.line(&format!("{other}:"));
                self.inside(depth);
                self.line(&format!("{end}:"));
            }
        }
    }

    fn inside(&mut self, depth: u32) {
        self.straight(3);
        if self.rng.one_in(3) {
            self.branch(depth + 1);
            self.straight(2);
        }
    }

    fn rounds(&mut self, depth: u32) {
        if self.loops == 8 {
            return self.straight(3);
        }
        let (number, again) = (self.loops, self.label());
        self.loops += 1;
        self.line(&format!("mov.u32 %c{number}, 0;"));
        if self.rng.one_in(2) {
            self.line(".pragma \"nounroll\";");
        }
        self.line(&format!("{again}:"));
        self.inside(depth);
        self.line(&format!("add.u32 %c{number}, %c{number}, 1;"));
        // Some lanes go round more often than others.
        let limit = match self.rng.one_in(2) && self.out.contains(".entry") {
            true => {
                self.line("and.b32 %b7, %b0, 3;");
                self.line("add.u32 %b7, %b7, 1;");
                "%b7".to_owned()
            }
            false => self.rng.between(1, 4).to_string(),
        };
        self.line(&format!("setp.lt.u32 %q{number}, %c{number}, {limit};"));
        self.line(&format!("@%q{number} bra {again};"));
    }

    /// A jump through a table.
    fn jump(&mut self) {
        let labels: Vec<String> = (0..4).map(|_| self.label()).collect();
        let (targets, end) = (self.label(), self.label());
        let value = self.register();
        self.line(&format!("and.b32 %b7, {value}, 3;"));
        self.line(&format!("{targets}: .branchtargets {};", labels.join(", ")));
        self.line(&format!("brx.idx %b7, {targets};"));
        for label in labels {
            self.line(&format!("{label}:"));
            self.straight(2);
            self.line(&format!("bra {end};"));
        }
        self.line(&format!("{end}:"));
    }

    fn call(&mut self) {
        let (argument, result) = (self.register(), self.register());
        for text in [
            "{",
            ".param .b32 x0;",
            &format!("st.param.b32 [x0], {argument};"),
            ".param .b64 x1;",
            "st.param.b64 [x1], %a0;",
            ".param .b32 back;",
            "call.uni (back), helper, (x0, x1);",
            &format!("ld.param.b32 {result}, [back];"),
            "}",
        ] {
            self.line(text);
        }
    }

    /// Each thread reads what its neighbour wrote, between barriers.
    fn exchange(&mut self) {
        let barrier = self
            .rng
            .pick(&["bar.sync 0;", "barrier.sync.aligned 0;", "bar.sync 1;"]);
        let value = self.register();
        self.line(barrier);
        self.line(&format!("st.shared.u32 [%b1+12], {value};"));
        self.line(barrier);
        self.line("mov.u32 %b7, %ntid.x;");
        self.line("add.u32 %b6, %b0, 1;");
        self.line("rem.u32 %b6, %b6, %b7;");
        self.line("mov.u32 %b5, rows;");
        self.line(&format!("mad.lo.u32 %b6, %b6, {SHARED_ROW}, %b5;"));
        let to = self.register();
        self.line(&format!("ld.shared.u32 {to}, [%b6+12];"));
        self.line(barrier);
    }

    /// Lanes tell each other something.
    fn warp(&mut self) {
        let (d, a) = (self.register(), self.register());
        // The last warp of a block may not be full: its mask is made from the number of threads.
        for text in [
            "and.b32 %b6, %b0, 0xffffffe0;",
            "mov.u32 %b5, %ntid.x;",
            "sub.u32 %b5, %b5, %b6;",
            "min.u32 %b5, %b5, 32;",
            "mov.u32 %b6, 32;",
            "sub.u32 %b6, %b6, %b5;",
            "mov.u32 %b7, 0xffffffff;",
            "shr.u32 %b7, %b7, %b6;",
        ] {
            self.line(text);
        }
        match self.rng.below(3) {
            // Lane 0 is there in every warp; what a lane that is not there holds is undefined.
            0 => self.line(&format!("shfl.sync.idx.b32 {d}, {a}, 0, 0x1f, %b7;")),
            1 => {
                let p = self.rng.below(4);
                self.line(&format!("vote.sync.ballot.b32 {d}, %p{p}, %b7;"));
            }
            _ => self.line(&format!("redux.sync.add.u32 {d}, {a}, %b7;")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_numbers_make_the_same_kernel() {
        let make = |index| generate(&mut Rng::new(5, index));
        assert_eq!(make(1), make(1));
        assert_ne!(make(1).text, make(2).text);
    }
}
