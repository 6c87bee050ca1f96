//! Registers, operands and lines: what every operation is written with.

use std::collections::HashMap;
use std::fmt::Write;

use warpbpf_flow::Entity;

use crate::alone::alone;
use crate::fragment::{Env, Fragment};
use crate::ir::{Func, Mem, Ty, Value};

/// Name of the fragment's local array.
pub(super) const STACK: &str = "wbpf_stack";

pub(super) struct Emit<'a> {
    pub(super) func: &'a Func,
    pub(super) env: &'a Env,
    pub(super) registers: Vec<Option<u32>>,
    pub(super) constants: Vec<Option<u64>>,
    /// Registers in use: b32, b64, predicates.
    pub(super) counts: [u32; 3],
    /// Labels of loops inside one operation.
    pub(super) labels: u32,
    /// Masks of the lanes that reserved together, by the reservation's value.
    pub(super) reservations: HashMap<Value, String>,
    /// Blocks that a way leads back to.
    pub(super) heads: Vec<bool>,
    pub(super) text: String,
    pub(super) fragment: Fragment,
}

pub(super) const fn class(ty: Ty) -> (usize, &'static str) {
    match ty {
        Ty::B32 => (0, "%wbpf_w"),
        Ty::B64 => (1, "%wbpf_d"),
        Ty::Pred => (2, "%wbpf_p"),
    }
}

/// Suffix of untyped operations.
pub(super) const fn b(ty: Ty) -> &'static str {
    match ty {
        Ty::B32 => "b32",
        Ty::B64 => "b64",
        Ty::Pred => "pred",
    }
}

/// Bits of an integer type, as operations with a sign want them.
pub(super) const fn bits(ty: Ty) -> u32 {
    ty.bits()
}

pub(super) fn immediate(ty: Ty, c: u64) -> String {
    let signed = if ty == Ty::B32 {
        i64::from(c as i32)
    } else {
        c as i64
    };
    // Decimal where it fits 32 bits, so that addends read well; PTX literals beyond that are
    // clearest in hex.
    if i32::try_from(signed).is_ok() {
        signed.to_string()
    } else {
        format!("{c:#x}")
    }
}

/// State space and order of a load or store.
pub(super) fn mem_suffix(mem: Mem, load: bool) -> &'static str {
    match (mem, load) {
        (Mem::Local, _) => ".local",
        (Mem::Map(_) | Mem::Control, _) => ".relaxed.gpu.global",
        // With a fence behind it, see there.
        (Mem::MapSync(_), true) => ".relaxed.gpu.global",
        (Mem::MapSlot(_), _) => ".acquire.gpu.global",
        (Mem::MapSync(_), false) => ".release.gpu.global",
        (Mem::Record | Mem::Memory | Mem::Key | Mem::Env, _) => ".global",
        (Mem::Clock, _) => ".relaxed.sys.global",
    }
}

impl Emit<'_> {
    pub(super) fn line(&mut self, text: impl AsRef<str>) {
        self.text.push('\t');
        self.text.push_str(text.as_ref());
        self.text.push('\n');
    }

    pub(super) fn label(&mut self, name: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{name}:");
    }

    pub(super) fn fresh_label(&mut self, what: &str) -> String {
        self.labels += 1;
        format!("$wbpf_{what}{}", self.labels)
    }

    /// A new register.
    pub(super) fn temp(&mut self, ty: Ty) -> String {
        let (class, prefix) = class(ty);
        self.counts[class] += 1;
        format!("{prefix}{}", self.counts[class] - 1)
    }

    /// The register of a value.
    pub(super) fn reg(&mut self, v: Value) -> String {
        let (class, prefix) = class(self.func.ty(v));
        let number = *self.registers[v.index()].get_or_insert_with(|| {
            self.counts[class] += 1;
            self.counts[class] - 1
        });
        format!("{prefix}{number}")
    }

    /// A value as an operand: a register or an immediate. Predicates have no immediates.
    pub(super) fn operand(&mut self, v: Value) -> String {
        let ty = self.func.ty(v);
        match self.constants[v.index()] {
            Some(c) if ty == Ty::Pred => {
                let p = self.temp(Ty::Pred);
                self.line(format!("setp.ne.s32 {p}, {c}, 0;"));
                p
            }
            Some(c) => immediate(ty, c),
            None => self.reg(v),
        }
    }

    /// A value in a register: elements of a vector have no immediates.
    pub(super) fn in_register(&mut self, v: Value) -> String {
        let ty = self.func.ty(v);
        match self.constants[v.index()] {
            Some(c) if ty != Ty::Pred => {
                let d = self.temp(ty);
                self.line(format!("mov.{} {d}, {};", b(ty), immediate(ty, c)));
                d
            }
            Some(_) | None => self.operand(v),
        }
    }

    /// Stores 16 bytes where `guard` holds.
    pub(super) fn store_pair(&mut self, guard: &str, addr: Value, off: i32, values: [Value; 2]) {
        let at = self.address(addr, off.into());
        let [a, b] = values.map(|v| self.in_register(v));
        self.line(format!("{guard}st.global.v2.b64 {at}, {{{a}, {b}}};"));
    }

    pub(super) fn address(&mut self, addr: Value, off: i64) -> String {
        let base = self.operand(addr);
        match off {
            0 => format!("[{base}]"),
            // PTX has no minus here, but takes a negative number.
            _ => format!("[{base}+{off}]"),
        }
    }

    /// Puts a function beside the fragment, and says what it is called there.
    pub(super) fn function(&mut self, name: String, text: impl FnOnce() -> String) -> String {
        let functions = &mut self.fragment.functions;
        if self.env.meets {
            functions.entry(name.clone()).or_insert_with(text);
            return name;
        }
        let (name, text) = alone(name, text());
        functions.insert(name.clone(), text);
        name
    }

    /// Calls a function all of whose parameters are `.b64`. The result has to be read even if
    /// nobody wants it: ptxas pairs calls with their results.
    pub(super) fn call_function(&mut self, name: &str, args: &[String], result: &str) {
        self.line("{");
        for (i, arg) in args.iter().enumerate() {
            self.line(format!(".param .b64 wbpf_c{i};"));
            self.line(format!("st.param.b64 [wbpf_c{i}], {arg};"));
        }
        self.line(".param .b64 wbpf_v;");
        let list: Vec<String> = (0..args.len()).map(|i| format!("wbpf_c{i}")).collect();
        self.line(format!("call (wbpf_v), {name}, ({});", list.join(", ")));
        self.line(format!("ld.param.b64 {result}, [wbpf_v];"));
        self.line("}");
    }
}
