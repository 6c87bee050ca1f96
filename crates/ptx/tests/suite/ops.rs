//! Every operation that is decoded, with the registers it takes, and PTX that runs each on operands
//! from memory.

use std::fmt::Write as _;

/// An operation; a register is `p` (predicate), `h` (16 bits), `r` (32) or `d` (64).
pub struct Case {
    pub name: String,
    pub dst: &'static str,
    pub src: &'static str,
    /// Bits of a third immediate source (`lop3`).
    pub immediate: Option<u8>,
}

fn register(ty: &str) -> char {
    match ty {
        "pred" => 'p',
        "b64" | "u64" | "s64" | "f64" => 'd',
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" | "u16x2" | "s16x2" => 'r',
        _ => 'h',
    }
}

fn word(registers: &[char]) -> &'static str {
    registers.iter().collect::<String>().leak()
}

/// All of them, for sm_90.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |name: String, dst: &[char], src: &[char]| {
        cases.push(Case {
            name,
            dst: word(dst),
            src: word(src),
            immediate: None,
        });
    };
    for ty in ["u16", "s16", "u32", "s32", "u64", "s64"] {
        let k = register(ty);
        for op in ["add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"] {
            add(format!("{op}.{ty}"), &[k], &[k, k]);
        }
        for op in ["mad.lo", "mad.hi", "sad"] {
            add(format!("{op}.{ty}"), &[k], &[k, k, k]);
        }
        add(format!("shr.{ty}"), &[k], &[k, 'r']);
        for (narrow, wide) in [('h', 'r'), ('r', 'd')] {
            if k == narrow {
                add(format!("mul.wide.{ty}"), &[wide], &[k, k]);
                add(format!("mad.wide.{ty}"), &[wide], &[k, k, wide]);
            }
        }
        if ty.starts_with('s') {
            add(format!("abs.{ty}"), &[k], &[k]);
            add(format!("neg.{ty}"), &[k], &[k]);
        }
        let unsigned: &[&str] = if ty.starts_with('u') {
            &["lo", "ls", "hi", "hs"]
        } else {
            &[]
        };
        for test in ["eq", "ne", "lt", "le", "gt", "ge"].iter().chain(unsigned) {
            add(format!("setp.{test}.{ty}"), &['p', 'p'], &[k, k]);
            add(format!("set.{test}.u32.{ty}"), &['r'], &[k, k]);
        }
        for combine in ["and", "or", "xor"] {
            add(format!("setp.lt.{combine}.{ty}"), &['p', 'p'], &[k, k, 'p']);
        }
        add(format!("set.gt.f32.{ty}"), &['r'], &[k, k]);
        if k != 'h' {
            add(format!("bfe.{ty}"), &[k], &[k, 'r', 'r']);
            add(format!("bfind.{ty}"), &['r'], &[k]);
            add(format!("bfind.shiftamt.{ty}"), &['r'], &[k]);
            for op in ["add.cc", "sub.cc"] {
                add(format!("{op}.{ty}"), &[k, 'c'], &[k, k]);
            }
            for op in ["addc", "addc.cc", "subc", "subc.cc"] {
                add(format!("{op}.{ty}"), &[k, 'c'], &[k, k, 'c']);
            }
            for part in ["lo", "hi"] {
                add(format!("mad.{part}.cc.{ty}"), &[k, 'c'], &[k, k, k]);
                add(format!("madc.{part}.cc.{ty}"), &[k, 'c'], &[k, k, k, 'c']);
            }
        }
        for to in ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"] {
            add(format!("cvt.{to}.{ty}"), &[register(to)], &[k]);
            // Only where a value can be out of range.
            let width = |ty: &str| ty[1..].parse::<u32>().unwrap_or(0);
            let may_be_negative = ty.starts_with('s') && to.starts_with('u');
            let loses_a_bit = width(ty) == width(to) && ty.starts_with('u') && to.starts_with('s');
            if may_be_negative || loses_a_bit || width(to) < width(ty) {
                add(format!("cvt.sat.{to}.{ty}"), &[register(to)], &[k]);
            }
        }
        for from in ["u8", "s8"] {
            add(format!("cvt.{ty}.{from}"), &[k], &['h']);
        }
    }
    for (op, count) in [
        ("add.sat", 2),
        ("sub.sat", 2),
        ("mad.hi.sat", 3),
        ("mad24.hi.sat", 3),
        ("min.relu", 2),
        ("max.relu", 2),
    ] {
        add(format!("{op}.s32"), &['r'], &['r'; 3][..count]);
    }
    for ty in ["u32", "s32"] {
        for part in ["lo", "hi"] {
            add(format!("mul24.{part}.{ty}"), &['r'], &['r', 'r']);
            add(format!("mad24.{part}.{ty}"), &['r'], &['r', 'r', 'r']);
            for other in ["u32", "s32"] {
                add(
                    format!("dp2a.{part}.{ty}.{other}"),
                    &['r'],
                    &['r', 'r', 'r'],
                );
            }
        }
        for other in ["u32", "s32"] {
            add(format!("dp4a.{ty}.{other}"), &['r'], &['r', 'r', 'r']);
        }
        for mode in ["wrap", "clamp"] {
            add(format!("szext.{mode}.{ty}"), &['r'], &['r', 'r']);
        }
    }
    for op in [
        "add.u16x2",
        "add.s16x2",
        "min.u16x2",
        "min.s16x2",
        "max.u16x2",
        "max.s16x2",
        "min.relu.s16x2",
        "max.relu.s16x2",
    ] {
        add(op.to_owned(), &['r'], &['r', 'r']);
    }
    for ty in ["pred", "b16", "b32", "b64"] {
        let k = register(ty);
        for op in ["and", "or", "xor"] {
            add(format!("{op}.{ty}"), &[k], &[k, k]);
        }
        add(format!("not.{ty}"), &[k], &[k]);
        add(format!("mov.{ty}"), &[k], &[k]);
        if ty != "pred" {
            add(format!("cnot.{ty}"), &[k], &[k]);
            add(format!("shl.{ty}"), &[k], &[k, 'r']);
            add(format!("shr.{ty}"), &[k], &[k, 'r']);
            add(format!("selp.{ty}"), &[k], &[k, k, 'p']);
            add(format!("slct.{ty}.s32"), &[k], &[k, k, 'r']);
            add(format!("slct.{ty}.f32"), &[k], &[k, k, 'r']);
            add(format!("slct.ftz.{ty}.f32"), &[k], &[k, k, 'r']);
            add(format!("setp.eq.{ty}"), &['p', 'p'], &[k, k]);
        }
        if k == 'r' || k == 'd' {
            for op in ["popc", "clz"] {
                add(format!("{op}.{ty}"), &['r'], &[k]);
            }
            add(format!("brev.{ty}"), &[k], &[k]);
            add(format!("bfi.{ty}"), &[k], &[k, k, 'r', 'r']);
        }
    }
    for side in ["l", "r"] {
        for mode in ["wrap", "clamp"] {
            add(format!("shf.{side}.{mode}.b32"), &['r'], &['r', 'r', 'r']);
        }
    }
    for mode in ["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"] {
        add(format!("prmt.b32{mode}"), &['r'], &['r', 'r', 'r']);
    }
    add("fns.b32".to_owned(), &['r'], &['r', 'r', 'r']);
    for mode in ["wrap", "clamp"] {
        add(format!("bmsk.{mode}.b32"), &['r'], &['r', 'r']);
    }
    for (ty, rounds) in [
        ("f32", &["", ".rn", ".rz", ".rm", ".rp"][..]),
        ("f64", &["", ".rn", ".rz", ".rm", ".rp"][..]),
    ] {
        let k = register(ty);
        let flags: &[&str] = if ty == "f32" {
            &["", ".ftz", ".sat", ".ftz.sat"]
        } else {
            &[""]
        };
        for round in rounds {
            for flag in flags {
                for op in ["add", "sub", "mul"] {
                    add(format!("{op}{round}{flag}.{ty}"), &[k], &[k, k]);
                }
                if !round.is_empty() {
                    add(format!("fma{round}{flag}.{ty}"), &[k], &[k, k, k]);
                    add(format!("mad{round}{flag}.{ty}"), &[k], &[k, k, k]);
                }
                if !round.is_empty() && !flag.contains("sat") {
                    add(format!("div{round}{flag}.{ty}"), &[k], &[k, k]);
                    add(format!("rcp{round}{flag}.{ty}"), &[k], &[k]);
                    add(format!("sqrt{round}{flag}.{ty}"), &[k], &[k]);
                }
            }
        }
    }
    for flag in ["", ".ftz"] {
        for op in ["rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2"] {
            add(format!("{op}.approx{flag}.f32"), &['r'], &['r']);
        }
        add(format!("div.approx{flag}.f32"), &['r'], &['r', 'r']);
        add(format!("div.full{flag}.f32"), &['r'], &['r', 'r']);
        add(format!("neg{flag}.f32"), &['r'], &['r']);
        add(format!("abs{flag}.f32"), &['r'], &['r']);
        for nan in ["", ".NaN"] {
            for sign in ["", ".xorsign.abs"] {
                add(format!("min{flag}{nan}{sign}.f32"), &['r'], &['r', 'r']);
                add(format!("max{flag}{nan}{sign}.f32"), &['r'], &['r', 'r']);
            }
        }
    }
    for op in [
        "rcp.approx.ftz",
        "rsqrt.approx",
        "rsqrt.approx.ftz",
        "neg",
        "abs",
    ] {
        add(format!("{op}.f64"), &['d'], &['d']);
    }
    for op in ["min", "max", "copysign"] {
        add(format!("{op}.f64"), &['d'], &['d', 'd']);
    }
    add("copysign.f32".to_owned(), &['r'], &['r', 'r']);
    add("tanh.approx.f32".to_owned(), &['r'], &['r']);
    for ty in ["f16", "f16x2", "bf16", "bf16x2"] {
        let k = register(ty);
        let flags: &[&str] = if ty.starts_with('f') {
            &["", ".ftz", ".sat", ".ftz.sat"]
        } else {
            &[""]
        };
        for flag in flags {
            for op in ["add", "sub", "mul"] {
                add(format!("{op}{flag}.{ty}"), &[k], &[k, k]);
                add(format!("{op}.rn{flag}.{ty}"), &[k], &[k, k]);
            }
            add(format!("fma.rn{flag}.{ty}"), &[k], &[k, k, k]);
        }
        add(format!("fma.rn.relu.{ty}"), &[k], &[k, k, k]);
        for op in ["neg", "abs", "tanh.approx"] {
            add(format!("{op}.{ty}"), &[k], &[k]);
        }
        let ftz = if ty.starts_with('b') { ".ftz" } else { "" };
        add(format!("ex2.approx{ftz}.{ty}"), &[k], &[k]);
        for flag in ["", ".NaN", ".xorsign.abs", ".NaN.xorsign.abs"] {
            add(format!("min{flag}.{ty}"), &[k], &[k, k]);
            add(format!("max{flag}.{ty}"), &[k], &[k, k]);
        }
    }
    for ty in ["f16", "bf16", "f16x2", "bf16x2", "f32", "f64"] {
        let k = register(ty);
        let tests = [
            "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num",
            "nan",
        ];
        let predicates = &['p', 'p'][..if k == 'h' { 1 } else { 2 }];
        for test in tests {
            add(format!("setp.{test}.{ty}"), predicates, &[k, k]);
        }
        add(format!("setp.lt.xor.{ty}"), predicates, &[k, k, 'p']);
        let dst = if ty == "f32" || ty == "f64" {
            "f32"
        } else {
            ty
        };
        add(format!("set.geu.{dst}.{ty}"), &[register(dst)], &[k, k]);
        if !ty.ends_with("x2") {
            add(format!("set.lt.u32.{ty}"), &['r'], &[k, k]);
        }
    }
    add("setp.lt.ftz.f32".to_owned(), &['p', 'p'], &['r', 'r']);
    for ty in ["f32", "f64"] {
        for property in [
            "finite",
            "infinite",
            "number",
            "notanumber",
            "normal",
            "subnormal",
        ] {
            add(format!("testp.{property}.{ty}"), &['p'], &[register(ty)]);
        }
    }
    let ints = ["u8", "s8", "u16", "s16", "u32", "s32", "u64", "s64"];
    for float in ["f16", "f32", "f64"] {
        for int in ints {
            for round in ["rni", "rzi", "rmi", "rpi"] {
                add(
                    format!("cvt.{round}.{int}.{float}"),
                    &[register(int)],
                    &[register(float)],
                );
            }
            for round in ["rn", "rz", "rm", "rp"] {
                add(
                    format!("cvt.{round}.{float}.{int}"),
                    &[register(float)],
                    &[register(int)],
                );
            }
        }
        for round in ["rni", "rzi", "rmi", "rpi"] {
            add(
                format!("cvt.{round}.{float}.{float}"),
                &[register(float)],
                &[register(float)],
            );
        }
    }
    add("cvt.rni.ftz.s32.f32".to_owned(), &['r'], &['r']);
    for (name, dst, src) in [
        ("cvt.f32.f16", 'r', 'h'),
        ("cvt.f64.f16", 'd', 'h'),
        ("cvt.f64.f32", 'd', 'r'),
        ("cvt.f32.bf16", 'r', 'h'),
    ] {
        add(name.to_owned(), &[dst], &[src]);
    }
    add("cvt.ftz.f64.f32".to_owned(), &['d'], &['r']);
    add("cvt.sat.f32.f32".to_owned(), &['r'], &['r']);
    for round in ["rn", "rz", "rm", "rp"] {
        add(format!("cvt.{round}.f32.f64"), &['r'], &['d']);
        add(format!("cvt.{round}.ftz.f32.f64"), &['r'], &['d']);
        add(format!("cvt.{round}.sat.f32.f64"), &['r'], &['d']);
        add(format!("cvt.{round}.f16.f64"), &['h'], &['d']);
    }
    for round in ["rn", "rz"] {
        for relu in ["", ".relu"] {
            add(format!("cvt.{round}{relu}.f16.f32"), &['h'], &['r']);
            add(format!("cvt.{round}{relu}.bf16.f32"), &['h'], &['r']);
            add(format!("cvt.{round}{relu}.f16x2.f32"), &['r'], &['r', 'r']);
            add(format!("cvt.{round}{relu}.bf16x2.f32"), &['r'], &['r', 'r']);
            add(format!("cvt.{round}{relu}.tf32.f32"), &['r'], &['r']);
        }
    }
    add("cvt.rna.tf32.f32".to_owned(), &['r'], &['r']);
    for narrow in ["e4m3x2", "e5m2x2"] {
        for relu in ["", ".relu"] {
            let satfinite = format!("cvt.rn.satfinite{relu}.{narrow}");
            add(format!("{satfinite}.f32"), &['h'], &['r', 'r']);
            add(format!("{satfinite}.f16x2"), &['h'], &['r']);
            add(format!("cvt.rn{relu}.f16x2.{narrow}"), &['r'], &['h']);
        }
    }
    for pair in ["f16x2", "bf16x2"] {
        add(format!("set.eq.u32.{pair}"), &['r'], &['r', 'r']);
        add(format!("set.ltu.s32.{pair}"), &['r'], &['r', 'r']);
    }
    for ty in ["s32", "s16x2"] {
        add(format!("max.{ty}.relu"), &['r'], &['r', 'r']);
    }
    for to in ["u16", "s16"] {
        add(format!("cvt.pack.sat.{to}.s32"), &['r'], &['r', 'r']);
    }
    for to in ["u8", "s8", "u4", "s4", "u2", "s2"] {
        add(
            format!("cvt.pack.sat.{to}.s32.b32"),
            &['r'],
            &['r', 'r', 'r'],
        );
    }
    for table in [0x80, 0x96, 0xe8, 0x1b] {
        cases.push(Case {
            name: "lop3.b32".to_owned(),
            dst: "r",
            src: "rrri",
            immediate: Some(table),
        });
        cases.push(Case {
            name: "lop3.or.b32".to_owned(),
            dst: "rp",
            src: "rrrip",
            immediate: Some(table),
        });
        cases.push(Case {
            name: "lop3.and.b32".to_owned(),
            dst: "rp",
            src: "rrrip",
            immediate: Some(table),
        });
    }
    cases
}

/// The kernel `case_N` of a case. Thread `t` reads five 64-bit sources at `in + 40 t` and writes
/// two results, each zero-extended, at `out + 16 t`.
pub fn kernel(number: usize, case: &Case) -> String {
    let mut text = format!(".visible .entry case_{number}(.param .u64 in, .param .u64 out)\n{{\n");
    text += "\t.reg .b64 %in, %out, %t<8>;\n\t.reg .b32 %i<4>, %carry;\n\t.reg .pred %q;\n";
    text += "\tmov.u32 %i0, %ctaid.x;\n\tmov.u32 %i1, %ntid.x;\n\tmov.u32 %i2, %tid.x;\n\tmad.lo.u32 %i0, %i0, %i1, %i2;\n";
    text += "\tld.param.u64 %in, [in];\n\tld.param.u64 %out, [out];\n";
    text += "\tcvta.to.global.u64 %in, %in;\n\tcvta.to.global.u64 %out, %out;\n";
    text += "\tmad.wide.u32 %in, %i0, 40, %in;\n\tmad.wide.u32 %out, %i0, 16, %out;\n";
    let mut sources = Vec::new();
    for (at, kind) in case.src.chars().enumerate() {
        let _ = writeln!(text, "\tld.global.u64 %t{at}, [%in+{}];", 8 * at);
        let (ty, fill) = match kind {
            'p' => (
                "pred",
                format!("and.b64 %t{at}, %t{at}, 1;\n\tsetp.ne.u64 %s{at}, %t{at}, 0;"),
            ),
            'h' => ("b16", format!("cvt.u16.u64 %s{at}, %t{at};")),
            'd' => ("b64", format!("mov.b64 %s{at}, %t{at};")),
            'i' => {
                sources.push(format!("{:#x}", case.immediate.unwrap_or(0)));
                continue;
            }
            _ => ("b32", format!("cvt.u32.u64 %s{at}, %t{at};")),
        };
        let _ = writeln!(text, "\t.reg .{ty} %s{at};\n\t{fill}");
        if kind == 'c' {
            // Additions and subtractions have one flag.
            let set = "add.cc.u32 %carry, %i3, 0xffffffff;";
            let _ = writeln!(text, "\tand.b32 %i3, %s{at}, 1;\n\t{set}");
        } else {
            sources.push(format!("%s{at}"));
        }
    }
    let mut dst = Vec::new();
    for (at, kind) in case.dst.chars().enumerate() {
        let ty = match kind {
            'p' => "pred",
            'h' => "b16",
            'd' => "b64",
            _ => "b32",
        };
        let _ = writeln!(text, "\t.reg .{ty} %d{at};");
        if kind != 'c' {
            dst.push(format!("%d{at}"));
        }
    }
    let _ = writeln!(
        text,
        "\t{} {}, {};",
        case.name,
        dst.join("|"),
        sources.join(", ")
    );
    for (at, kind) in case.dst.chars().enumerate() {
        let take = match kind {
            'p' => format!("selp.b64 %t7, 1, 0, %d{at};"),
            'h' => format!("cvt.u64.u16 %t7, %d{at};"),
            'd' => format!("mov.b64 %t7, %d{at};"),
            // What a `.cc` left behind; without `.cc` nothing is told of the flag.
            'c' if !case.name.contains(".cc") => "mov.b64 %t7, 0;".to_owned(),
            'c' => format!("addc.u32 %d{at}, 0, 0;\n\tcvt.u64.u32 %t7, %d{at};"),
            _ => format!("cvt.u64.u32 %t7, %d{at};"),
        };
        let _ = writeln!(text, "\t{take}\n\tst.global.u64 [%out+{}], %t7;", 8 * at);
    }
    if case.dst.len() == 1 {
        text += "\tmov.b64 %t7, 0;\n\tst.global.u64 [%out+8], %t7;\n";
    }
    text += "\tret;\n}\n";
    text
}

/// A module with a kernel for each case.
pub fn module(version: &str, target: &str, cases: &[Case]) -> String {
    let mut text = format!(".version {version}\n.target {target}\n.address_size 64\n");
    for (number, case) in cases.iter().enumerate() {
        text += &kernel(number, case);
    }
    text
}
