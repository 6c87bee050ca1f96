//! The functions by which fragments make texts in memory of ours, as PTX text: `bpf_snprintf` and
//! the reads of strings. What a conversion means is in [`warpbpf_abi::format`].
//!
//! Every loop has a bound: a number has at most 22 digits, a width is at most [`MAX_WIDTH`],
//! strings end with their room.

use warpbpf_abi::format::{Conversion, MAX_WIDTH, POINTER_DIGITS, Spec};
use warpbpf_abi::maps::EFAULT;

use crate::ir::TextOp;

/// How a number or string is printed, as the argument of a function: the width in bits 0 to 15,
/// characters that stand before the digits in 16 to 31, the least number of digits in 32 to 39,
/// then flags.
pub struct Number;

impl Number {
    const BEFORE: u32 = 16;
    const DIGITS: u32 = 32;
    const LEFT: u64 = 1 << 40;
    const ZERO: u64 = 1 << 41;
    const HEX: u64 = 1 << 42;
    const OCTAL: u64 = 1 << 43;
    const UPPER: u64 = 1 << 44;
    const SIGNED: u64 = 1 << 45;
    /// What stands before is only for numbers other than 0.
    const NOT_ZERO: u64 = 1 << 46;

    /// The argument of a conversion.
    pub fn of(spec: &Spec) -> u64 {
        let flag = |set: bool, bit: u64| if set { bit } else { 0 };
        let sign: &[u8; 2] = match (spec.plus, spec.space) {
            (true, _) => b"+\0",
            (false, true) => b" \0",
            (false, false) => b"\0\0",
        };
        let alternate = |before: [u8; 2]| if spec.alternate { before } else { [0; 2] };
        let (before, digits, flags) = match spec.conversion {
            Conversion::Signed => (*sign, 1, Number::SIGNED),
            Conversion::Unsigned => ([0; 2], 1, 0),
            Conversion::Octal => (alternate(*b"0\0"), 1, Number::OCTAL | Number::NOT_ZERO),
            Conversion::Hex => (alternate(*b"0x"), 1, Number::HEX),
            Conversion::HexUpper => (alternate(*b"0X"), 1, Number::HEX | Number::UPPER),
            Conversion::Pointer => ([0; 2], POINTER_DIGITS, Number::HEX),
            Conversion::Char | Conversion::String => ([0; 2], 0, 0),
        };
        u64::from(spec.width.min(MAX_WIDTH))
            | u64::from(u16::from_le_bytes(before)) << Number::BEFORE
            | u64::from(digits) << Number::DIGITS
            | flags
            | flag(spec.left, Number::LEFT)
            | flag(spec.fills_zeros(), Number::ZERO)
    }
}

/// Name of the function behind an operation on memory with this suffix of stores.
pub fn text_name(op: TextOp, suffix: &str) -> String {
    let what = match op {
        TextOp::Put => "put",
        TextOp::Number => "number",
        TextOp::String => "string",
        TextOp::End => "end",
        TextOp::Read => "read",
    };
    format!("wbpf_text_{what}{}", suffix.replace('.', "_"))
}

/// Text of that function. All parameters and the result are `.b64`; [`TextOp`] says which.
pub fn text_function(op: TextOp, suffix: &str) -> String {
    let (params, body) = match op {
        TextOp::Put => (5, put(suffix)),
        TextOp::Number => (5, number(suffix)),
        TextOp::String => (7, string(suffix)),
        TextOp::End => (3, end(suffix)),
        TextOp::Read => (4, read(suffix)),
    };
    let list: Vec<String> = (0..params)
        .map(|i| format!(".param .b64 wbpf_a{i}"))
        .collect();
    let name = text_name(op, suffix);
    let mut text = format!(
        ".func (.param .b64 wbpf_r) {name}({})\n{{\n\t.reg .pred %wbpf_p<3>;\n\t.reg .b32 %wbpf_w<3>;\n\t.reg .b64 %wbpf_a<{params}>, %wbpf_t<8>, %wbpf_res;\n",
        list.join(", ")
    );
    for i in 0..params {
        text.push_str(&format!("\tld.param.b64 %wbpf_a{i}, [wbpf_a{i}];\n"));
    }
    for line in body.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if !line.ends_with(':') {
            text.push('\t');
        }
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("\tst.param.b64 [wbpf_r], %wbpf_res;\n\tret;\n}\n");
    text
}

/// `%wbpf_a1` becomes the offset of the last byte, which only the NUL may take; `%wbpf_res` the
/// place that comes next.
const BEGIN: &str = "setp.ne.s64 %wbpf_p0, %wbpf_a1, 0;
    @%wbpf_p0 add.s64 %wbpf_a1, %wbpf_a1, -1;
    mov.b64 %wbpf_res, %wbpf_a2;";

/// Writes the character in `%wbpf_w0` at the offset in `at` if it has room there.
fn character(at: &str, suffix: &str) -> String {
    format!(
        "setp.lt.u64 %wbpf_p0, {at}, %wbpf_a1;
        add.s64 %wbpf_t0, %wbpf_a0, {at};
        @%wbpf_p0 st{suffix}.u8 [%wbpf_t0], %wbpf_w0;"
    )
}

/// Appends the character in `%wbpf_w0` as often as `count` says, which is counted down to 0.
fn repeat(count: &str, label: &str, suffix: &str) -> String {
    format!(
        "setp.eq.s64 %wbpf_p0, {count}, 0;
        @%wbpf_p0 bra $wbpf_{label}_done;
        $wbpf_{label}:
        {}
        add.s64 %wbpf_res, %wbpf_res, 1;
        add.s64 {count}, {count}, -1;
        setp.ne.s64 %wbpf_p0, {count}, 0;
        @%wbpf_p0 bra $wbpf_{label};
        $wbpf_{label}_done:",
        character("%wbpf_res", suffix)
    )
}

fn put(suffix: &str) -> String {
    format!(
        "{BEGIN}
        $wbpf_next:
        cvt.u32.u64 %wbpf_w0, %wbpf_a3;
        {}
        shr.u64 %wbpf_a3, %wbpf_a3, 8;
        add.s64 %wbpf_res, %wbpf_res, 1;
        add.s64 %wbpf_a4, %wbpf_a4, -1;
        setp.ne.s64 %wbpf_p0, %wbpf_a4, 0;
        @%wbpf_p0 bra $wbpf_next;",
        character("%wbpf_res", suffix)
    )
}

/// How what fills a width of `%wbpf_t1` is spread: the count in `%wbpf_t1` goes in front or, for
/// `LEFT`, into `%wbpf_t2`.
fn sides() -> String {
    format!(
        "mov.b64 %wbpf_t2, 0;
        and.b64 %wbpf_t0, %wbpf_t7, {left:#x};
        setp.ne.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 mov.b64 %wbpf_t2, %wbpf_t1;
        @%wbpf_p0 mov.b64 %wbpf_t1, 0;",
        left = Number::LEFT
    )
}

/// `%wbpf_t1` becomes what a width of `%wbpf_t7` has beyond `length`.
fn fill(length: &str) -> String {
    format!(
        "and.b64 %wbpf_t1, %wbpf_t7, 0xffff;
        max.u64 %wbpf_t1, %wbpf_t1, {length};
        sub.s64 %wbpf_t1, %wbpf_t1, {length};"
    )
}

/// Registers: `t7` the conversion, `t3` the digits, `t4` what stands before them, `t1` and `t2`
/// what fills the width.
fn number(suffix: &str) -> String {
    let divide = |from: &str, label: &str| {
        format!(
            "@%wbpf_p1 bra $wbpf_{label}_hex;
            @%wbpf_p2 bra $wbpf_{label}_octal;
            div.u64 %wbpf_t6, {from}, 10;
            mul.lo.s64 %wbpf_t0, %wbpf_t6, 10;
            sub.s64 %wbpf_t0, {from}, %wbpf_t0;
            bra $wbpf_{label}_got;
            $wbpf_{label}_hex:
            and.b64 %wbpf_t0, {from}, 15;
            shr.u64 %wbpf_t6, {from}, 4;
            bra $wbpf_{label}_got;
            $wbpf_{label}_octal:
            and.b64 %wbpf_t0, {from}, 7;
            shr.u64 %wbpf_t6, {from}, 3;
            $wbpf_{label}_got:
            mov.b64 {from}, %wbpf_t6;"
        )
    };
    format!(
        "{BEGIN}
        mov.b64 %wbpf_t7, %wbpf_a4;
        shr.u64 %wbpf_t4, %wbpf_t7, {before};
        and.b64 %wbpf_t4, %wbpf_t4, 0xffff;
        and.b64 %wbpf_t0, %wbpf_t7, {signed:#x};
        setp.eq.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 bra $wbpf_unsigned;
        setp.ge.s64 %wbpf_p0, %wbpf_a3, 0;
        @%wbpf_p0 bra $wbpf_unsigned;
        neg.s64 %wbpf_a3, %wbpf_a3;
        mov.b64 %wbpf_t4, 45;
        $wbpf_unsigned:
        and.b64 %wbpf_t0, %wbpf_t7, {not_zero:#x};
        setp.eq.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 bra $wbpf_shown;
        setp.eq.s64 %wbpf_p0, %wbpf_a3, 0;
        @%wbpf_p0 mov.b64 %wbpf_t4, 0;
        $wbpf_shown:
        and.b64 %wbpf_t0, %wbpf_t7, {hex:#x};
        setp.ne.s64 %wbpf_p1, %wbpf_t0, 0;
        and.b64 %wbpf_t0, %wbpf_t7, {octal:#x};
        setp.ne.s64 %wbpf_p2, %wbpf_t0, 0;
        mov.b64 %wbpf_t3, 0;
        mov.b64 %wbpf_t5, %wbpf_a3;
        $wbpf_count:
        {count}
        add.s64 %wbpf_t3, %wbpf_t3, 1;
        setp.ne.s64 %wbpf_p0, %wbpf_t5, 0;
        @%wbpf_p0 bra $wbpf_count;
        shr.u64 %wbpf_t0, %wbpf_t7, {digits};
        and.b64 %wbpf_t0, %wbpf_t0, 0xff;
        max.u64 %wbpf_t3, %wbpf_t3, %wbpf_t0;
        mov.b64 %wbpf_t5, %wbpf_t3;
        setp.ne.s64 %wbpf_p0, %wbpf_t4, 0;
        @%wbpf_p0 add.s64 %wbpf_t5, %wbpf_t5, 1;
        setp.gt.u64 %wbpf_p0, %wbpf_t4, 0xff;
        @%wbpf_p0 add.s64 %wbpf_t5, %wbpf_t5, 1;
        {fill}
        and.b64 %wbpf_t0, %wbpf_t7, {zero:#x};
        setp.eq.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 bra $wbpf_no_zeros;
        add.s64 %wbpf_t3, %wbpf_t3, %wbpf_t1;
        mov.b64 %wbpf_t1, 0;
        $wbpf_no_zeros:
        {sides}
        mov.b32 %wbpf_w0, 32;
        {lead}
        $wbpf_before:
        setp.eq.s64 %wbpf_p0, %wbpf_t4, 0;
        @%wbpf_p0 bra $wbpf_digits;
        cvt.u32.u64 %wbpf_w0, %wbpf_t4;
        {before_character}
        add.s64 %wbpf_res, %wbpf_res, 1;
        shr.u64 %wbpf_t4, %wbpf_t4, 8;
        bra $wbpf_before;
        $wbpf_digits:
        mov.b32 %wbpf_w1, 87;
        and.b64 %wbpf_t0, %wbpf_t7, {upper:#x};
        setp.ne.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 mov.b32 %wbpf_w1, 55;
        mov.b64 %wbpf_t1, %wbpf_t3;
        add.s64 %wbpf_res, %wbpf_res, %wbpf_t3;
        mov.b64 %wbpf_t5, %wbpf_res;
        $wbpf_digit:
        {digit}
        cvt.u32.u64 %wbpf_w0, %wbpf_t0;
        setp.gt.u32 %wbpf_p0, %wbpf_w0, 9;
        @%wbpf_p0 add.s32 %wbpf_w0, %wbpf_w0, %wbpf_w1;
        @!%wbpf_p0 add.s32 %wbpf_w0, %wbpf_w0, 48;
        add.s64 %wbpf_t5, %wbpf_t5, -1;
        {digit_character}
        add.s64 %wbpf_t1, %wbpf_t1, -1;
        setp.ne.s64 %wbpf_p0, %wbpf_t1, 0;
        @%wbpf_p0 bra $wbpf_digit;
        mov.b32 %wbpf_w0, 32;
        {trail}",
        before = Number::BEFORE,
        signed = Number::SIGNED,
        not_zero = Number::NOT_ZERO,
        hex = Number::HEX,
        octal = Number::OCTAL,
        upper = Number::UPPER,
        zero = Number::ZERO,
        digits = Number::DIGITS,
        count = divide("%wbpf_t5", "c"),
        digit = divide("%wbpf_a3", "d"),
        fill = fill("%wbpf_t5"),
        sides = sides(),
        lead = repeat("%wbpf_t1", "lead", suffix),
        trail = repeat("%wbpf_t2", "trail", suffix),
        before_character = character("%wbpf_res", suffix),
        digit_character = character("%wbpf_t5", suffix),
    )
}

/// `%wbpf_t3` is the length: 0 if the string does not end where something lives. A string that has
/// not ended after as many bytes as are looked at is so long.
fn string(suffix: &str) -> String {
    format!(
        "{BEGIN}
        mov.b64 %wbpf_t7, %wbpf_a6;
        mov.b64 %wbpf_t3, 0;
        $wbpf_measure:
        setp.ge.u64 %wbpf_p0, %wbpf_t3, %wbpf_a5;
        @%wbpf_p0 bra $wbpf_measured;
        setp.ge.u64 %wbpf_p0, %wbpf_t3, %wbpf_a4;
        @%wbpf_p0 bra $wbpf_nothing;
        add.s64 %wbpf_t0, %wbpf_a3, %wbpf_t3;
        ld.volatile.u8 %wbpf_w0, [%wbpf_t0];
        setp.eq.s32 %wbpf_p0, %wbpf_w0, 0;
        @%wbpf_p0 bra $wbpf_measured;
        add.s64 %wbpf_t3, %wbpf_t3, 1;
        bra $wbpf_measure;
        $wbpf_nothing:
        mov.b64 %wbpf_t3, 0;
        $wbpf_measured:
        {fill}
        {sides}
        mov.b32 %wbpf_w0, 32;
        {lead}
        setp.eq.s64 %wbpf_p0, %wbpf_t3, 0;
        @%wbpf_p0 bra $wbpf_copied;
        $wbpf_copy:
        ld.volatile.u8 %wbpf_w0, [%wbpf_a3];
        {character}
        add.s64 %wbpf_a3, %wbpf_a3, 1;
        add.s64 %wbpf_res, %wbpf_res, 1;
        add.s64 %wbpf_t3, %wbpf_t3, -1;
        setp.ne.s64 %wbpf_p0, %wbpf_t3, 0;
        @%wbpf_p0 bra $wbpf_copy;
        $wbpf_copied:
        mov.b32 %wbpf_w0, 32;
        {trail}",
        fill = fill("%wbpf_t3"),
        sides = sides(),
        lead = repeat("%wbpf_t1", "lead", suffix),
        trail = repeat("%wbpf_t2", "trail", suffix),
        character = character("%wbpf_res", suffix),
    )
}

fn end(suffix: &str) -> String {
    format!(
        "mov.b64 %wbpf_res, 0;
        setp.eq.s64 %wbpf_p0, %wbpf_a1, 0;
        @%wbpf_p0 bra $wbpf_done;
        add.s64 %wbpf_a1, %wbpf_a1, -1;
        min.u64 %wbpf_t0, %wbpf_a1, %wbpf_a2;
        add.s64 %wbpf_t0, %wbpf_a0, %wbpf_t0;
        mov.b32 %wbpf_w0, 0;
        st{suffix}.u8 [%wbpf_t0], %wbpf_w0;
        $wbpf_done:"
    )
}

/// `%wbpf_t1` counts bytes, `%wbpf_p1` says that the string goes on. Linux reads the last byte
/// before it puts the NUL in its place, so it must live too.
fn read(suffix: &str) -> String {
    format!(
        "mov.b64 %wbpf_res, 0;
        mov.b64 %wbpf_t1, 0;
        setp.eq.s64 %wbpf_p1, %wbpf_t1, 0;
        $wbpf_byte:
        setp.ge.u64 %wbpf_p0, %wbpf_t1, %wbpf_a3;
        @%wbpf_p0 bra $wbpf_done;
        mov.b32 %wbpf_w0, 0;
        @!%wbpf_p1 bra $wbpf_store;
        setp.ge.u64 %wbpf_p0, %wbpf_t1, %wbpf_a2;
        @%wbpf_p0 bra $wbpf_fault;
        add.s64 %wbpf_t0, %wbpf_a1, %wbpf_t1;
        ld.volatile.u8 %wbpf_w0, [%wbpf_t0];
        add.s64 %wbpf_res, %wbpf_res, 1;
        setp.eq.s64 %wbpf_p0, %wbpf_res, %wbpf_a3;
        @%wbpf_p0 mov.b32 %wbpf_w0, 0;
        setp.ne.s32 %wbpf_p1, %wbpf_w0, 0;
        $wbpf_store:
        add.s64 %wbpf_t0, %wbpf_a0, %wbpf_t1;
        st{suffix}.u8 [%wbpf_t0], %wbpf_w0;
        add.s64 %wbpf_t1, %wbpf_t1, 1;
        bra $wbpf_byte;
        $wbpf_fault:
        mov.b64 %wbpf_res, {EFAULT};
        mov.b32 %wbpf_w0, 0;
        mov.b64 %wbpf_t1, 0;
        $wbpf_zero:
        add.s64 %wbpf_t0, %wbpf_a0, %wbpf_t1;
        st{suffix}.u8 [%wbpf_t0], %wbpf_w0;
        add.s64 %wbpf_t1, %wbpf_t1, 1;
        setp.lt.u64 %wbpf_p0, %wbpf_t1, %wbpf_a3;
        @%wbpf_p0 bra $wbpf_zero;
        $wbpf_done:"
    )
}
