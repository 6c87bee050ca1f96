//! Ways to write PTX that ptxas takes, beyond what compilers make: what they compute here, and that
//! what it refuses is refused.

use crate::common::{Params, Rig, header};

/// Runs kernel `k` of a module with one thread, and reads the words that it wrote.
fn words(module: &str, count: usize) -> Vec<u32> {
    let mut rig = Rig::new(&header(module));
    let out = rig.zeroes(count);
    rig.run("k", 1, 1, &Params::default().u64(out));
    rig.read_u32(out, count)
}

/// The same of a body with registers, which has the address in `a`.
fn body(before: &str, body: &str, count: usize) -> Vec<u32> {
    let text = format!(
        "{before}\n.visible .entry k(.param .u64 out) {{
            .reg .b64 a, b; .reg .b32 r, s, t, u; .reg .b16 h; .reg .f32 f; .reg .f64 d; .reg .pred p;
            .reg .v2 .b32 V; .reg .v4 .b32 W, X; .reg .v2 .b64 L; .reg .v4 .b16 H; .reg .v2 .f32 F;
            ld.param.u64 a, [out];\n{body}\nret; }}"
    );
    words(&text, count)
}

#[test]
fn vectors_are_moved_whole_and_in_parts() {
    let fill =
        "mov.b32 r, 1; mov.b32 s, 2; mov.b32 t, 3; mov.b32 u, 4; mov.v4.b32 W, {r, s, t, u};";
    let store = "st.global.v4.b32 [a], {r, s, t, u};";
    let run = |moves: &str| body("", &format!("{fill}\n{moves}\n{store}"), 4);
    assert_eq!(run("mov.v4.b32 {u, t, s, r}, W;"), [4, 3, 2, 1]);
    assert_eq!(run("mov.v4.b32 {r, s, t, u}, {u, r, s, t};"), [4, 1, 2, 3]);
    assert_eq!(
        run("mov.v4.b32 X, W; mov.v4.b32 {_, r, _, s}, X;"),
        [2, 4, 3, 4]
    );
    assert_eq!(
        run("mov.v2.b32 V, {W.w, W.x}; mov.v2.b32 {s, r}, V;"),
        [1, 4, 3, 4]
    );
    assert_eq!(
        run("mov.v4.b32 X, {5, 6, 7, 8}; mov.b32 r, X.z; add.u32 X.w, X.w, 1; mov.b32 s, X.w;"),
        [7, 9, 3, 4]
    );
    // A guard holds for each part.
    assert_eq!(
        run("setp.eq.u32 p, r, 2; @p mov.v4.b32 {u, t, s, r}, W; @!p mov.v2.b32 {r, s}, {s, r};"),
        [2, 1, 3, 4]
    );
    assert_eq!(
        run("mov.v2.f32 F, {0f3F800000, 0f40000000}; mov.v2.f32 {f, _}, F; mov.b32 r, f;"),
        [0x3f80_0000, 2, 3, 4]
    );
    assert_eq!(
        run("mov.v2.b64 L, {a, 9}; mov.v2.b64 {_, b}, L; cvt.u32.u64 r, b;"),
        [9, 2, 3, 4]
    );
}

#[test]
fn vector_registers_are_passed_to_functions() {
    let functions =
        ".func (.reg .v2 .b32 o) turned(.reg .v2 .b32 i) { mov.v2.b32 o, {i.y, i.x}; ret; }";
    let call = |call: &str| {
        let before = "mov.v2.b32 V, {3, 4}; mov.b64 b, {5, 6}; mov.b32 r, 0;";
        let after = "st.global.v2.b32 [a], V; st.global.b64 [a+8], b;";
        body(functions, &format!("{before} {call} {after}"), 4)
    };
    assert_eq!(call("call (V), turned, (V);"), [4, 3, 5, 6]);
    // A register of as many bits does as well.
    assert_eq!(call("call (V), turned, (b);"), [6, 5, 5, 6]);
    assert_eq!(call("call (b), turned, (V);"), [3, 4, 4, 3]);
    assert_eq!(
        call("setp.eq.u32 p, r, 1; @p call (b), turned, (V);"),
        [3, 4, 5, 6]
    );
    assert_eq!(
        call("call (H), turned, (V); mov.v4.b16 {h, _, _, _}, H; cvt.u64.u16 b, h;"),
        [3, 4, 4, 0]
    );
}

#[test]
fn an_alias_is_another_name_of_a_function() {
    let functions = ".visible .func (.reg .b32 o) real(.reg .b32 i) { add.u32 o, i, 1; ret; }
        .visible .func (.reg .b32 o) other(.reg .b32 i);
        .alias /* a comment */ other, real;
        .global .u64 pointer = other;";
    let by_name = "call (r), other, (4); st.global.u32 [a], r;";
    assert_eq!(body(functions, by_name, 1), [5]);
    let by_address = "P: .callprototype (.reg .b32 _) _ (.reg .b32 _);
        ld.global.u64 b, [pointer]; call (r), b, (6), P; st.global.u32 [a], r;
        mov.u64 b, other; call (r), b, (7), P; st.global.u32 [a+4], r;";
    assert_eq!(body(functions, by_address, 2), [7, 8]);
}

#[test]
fn a_prototype_may_lack_its_semicolon() {
    let functions = ".func (.reg .u32 o) next(.reg .u32 i)
        .extern .func (.param .b32 o) vprintf(.param .b64 f, .param .b64 a)
        .func (.reg .u32 o) next(.reg .u32 i) { add.u32 o, i, 1; ret; }
        .func nothing()\n.func nothing() { ret; }";
    let call = "call (r), next, (4); call nothing; st.global.u32 [a], r;";
    assert_eq!(body(functions, call, 1), [5]);
}

#[test]
fn comments_and_expressions_in_initialisers() {
    let variables = ".global .u32 table[4] = { 1, // one
            2 /* two */, (3 + 4) * 2, -5 };
        .global .u64 at[2] = { table + 4 * 2 /* the third */, table };
        .global .f32 half = 1.0 / 2.0;";
    let read = "ld.global.v4.u32 {r, s, t, u}, [table]; st.global.v4.u32 [a], {r, s, t, u};
        ld.global.u64 b, [at]; ld.global.u32 r, [b]; st.global.u32 [a+16], r;
        ld.global.u32 r, [half]; st.global.u32 [a+20], r;";
    assert_eq!(
        body(variables, read, 6),
        [1, 2, 14, 5u32.wrapping_neg(), 14, 0x3f00_0000]
    );
}

#[test]
fn elements_of_arrays_are_operands() {
    let variables = ".global .u32 table[4] = {10, 20, 30, 40}; .global .u16 grid[2][3] = {{1, 2, 3}, {4, 5, 6}};
        .global .v2 .u32 pairs[2] = {{7, 8}, {9, 10}};";
    let read = "ld.global.u32 r, table[2]; st.global.u32 [a], r;
        mov.u64 b, table[1]; ld.global.u32 r, [b]; st.global.u32 [a+4], r;
        ld.global.u16 h, [grid+2*3]; cvt.u32.u16 r, h; st.global.u32 [a+8], r;
        ld.global.v2.u32 {r, s}, pairs[1]; st.global.v2.u32 [a+16], {r, s};
        { .shared .u32 own[4]; .local .u32 mine[2]; mov.u32 r, 5; st.shared.u32 own[3], r; st.local.u32 mine[1], r;
          ld.shared.u32 s, [own+12]; ld.local.u32 t, [mine+4]; add.u32 r, s, t; st.global.u32 [a+12], r; }";
    assert_eq!(body(variables, read, 6), [30, 20, 4, 10, 9, 10]);
    let by_register = "mov.u32 r, 1; ld.global.u32 s, table[r]; ld.global.u32 t, table[r + 2]; st.global.v2.u32 [a], {s, t};
        mov.u16 h, 3; mov.u64 b, table[h]; ld.global.u32 s, [b]; mov.u32 t, r + 4; st.global.v2.u32 [a+8], {s, t};
        mov.s64 b, 0x100000002; st.global.u32 table[b], r; ld.global.u32 s, [table+8]; st.global.u32 [a+16], s;";
    assert_eq!(body(variables, by_register, 5), [20, 40, 40, 5, 1]);
}

#[test]
fn constant_expressions_are_operands() {
    let value = |text: &str| body("", &format!("mov.u32 r, {text}; st.global.u32 [a], r;"), 1)[0];
    assert_eq!(value("(1<<4) + (7/2)*2 - !0 + (5>3 ? 10 : 20)"), 31);
    assert_eq!(value("-7/2") as i32, -3);
    assert_eq!(value("017 + 0b11 + 0x1F"), 49);
    assert_eq!(value("(5)"), 5);
    assert_eq!(value("(6 | 1)"), 7);
    assert_eq!(value("6 | 1"), 7);
    assert_eq!(value("WARP_SZ * 2"), 64);
    let sum = body(
        "",
        "mov.u32 r, 1; add.u32 r, r, 2*3; st.global.u32 [a+2*2], r; ld.global.u32 s, [a+(8-4)]; st.global.u32 [a], s;
         setp.lt.u32 p, r, 4+4; selp.u32 r, 1+1, 3, p; st.global.u32 [a+8], r;",
        3,
    );
    assert_eq!(sum, [7, 7, 2]);
}

#[test]
fn variables_of_bodies_outlive_their_kernels() {
    let text = header(
        ".visible .entry k(.param .u64 out) { .reg .b64 a; .reg .b32 r; .global .u32 count = 40; .const .u32 step[2] = {1, 2};
            ld.param.u64 a, [out]; ld.const.u32 r, [step+4]; atom.global.add.u32 r, [count], r; st.global.u32 [a], r; ret; }
         .visible .entry other(.param .u64 out) { .reg .b64 a; .reg .b32 r; .global .u32 count;
            ld.param.u64 a, [out]; ld.global.u32 r, [count]; st.global.u32 [a], r; ret; }",
    );
    let mut rig = Rig::new(&text);
    let out = rig.zeroes(1);
    for expected in [40, 42] {
        rig.run("k", 1, 1, &Params::default().u64(out));
        assert_eq!(rig.read_u32(out, 1), [expected]);
    }
    rig.run("other", 1, 1, &Params::default().u64(out));
    assert_eq!(rig.read_u32(out, 1), [0]);
}

#[test]
fn additions_and_subtractions_have_one_flag() {
    // What an H100 gives.
    let read = "ld.global.u32 t, [a];
        sub.cc.u32 r, t, 1; addc.u32 s, 0, 0; st.global.u32 [a], s;
        sub.cc.u32 r, t, 0; addc.u32 s, 0, 0; st.global.u32 [a+4], s;
        add.cc.u32 r, t, 1; subc.u32 s, 0, 0; st.global.u32 [a+8], s;
        mov.u32 u, -1; add.cc.u32 r, u, 1; subc.u32 s, 0, 0; st.global.u32 [a+12], s;
        sub.cc.u32 r, 5, 6; subc.u32 s, 3, 1; st.global.u32 [a+16], s;
        mad.lo.cc.u32 r, u, u, u; subc.u32 s, 9, 4; st.global.u32 [a+20], s;
        sub.cc.u32 r, 1, 1; madc.hi.u32 s, u, u, 0; st.global.u32 [a+24], s;";
    assert_eq!(body("", read, 7), [0, 1, u32::MAX, 0, 1, 5, u32::MAX]);
}

#[test]
fn names_that_nobody_defines_are_refused() {
    let gpu = warpbpf_softgpu::Gpu::new(crate::common::config());
    let fail = |body: &str| match gpu.load(&header(body)) {
        Ok(_) => panic!("loads: {body}"),
        Err(error) => error.to_string(),
    };
    let reason = "function `f` is not defined: link the modules that define it before loading";
    for text in [
        ".extern .func f();\n.visible .entry k() { call f; ret; }",
        ".func f();\n.func g() { call f; ret; } .visible .entry k() { ret; }",
        ".extern .func f();\n.visible .entry k() { .reg .b64 a; mov.u64 a, f; ret; }",
    ] {
        let said = fail(text);
        assert!(
            said.ends_with(reason) && said.contains("PTX line 5"),
            "{said}"
        );
    }
    for text in [
        ".extern .func f();\n.visible .entry k() { ret; }",
        ".extern .func f();\n.visible .entry k() { .reg .b32 f; mov.b32 f, 1; ret; }",
    ] {
        assert!(gpu.load(&header(text)).is_ok(), "{text}");
    }
}

/// Variants of each construct: text before the kernel, and the kernel's body.
const VARIANTS: &[(&str, &str)] = &[
    // moves of vectors
    ("", "mov.v4.b32 W, {r, s, t, u};"),
    ("", "mov.v4.b32 {r, s, t, u}, W;"),
    ("", "mov.v4.b32 W, X;"),
    ("", "mov.v4.u32 W, {r, s, t, u};"),
    ("", "mov.v4.f32 W, {r, s, t, u};"),
    ("", "mov.v2.b32 W, {r, s};"),
    ("", "mov.v2.b32 {r, s}, W;"),
    ("", "mov.v4.b32 {r, s}, W;"),
    ("", "mov.v4.b32 V, W;"),
    ("", "mov.v2.b32 V, {r, s};"),
    ("", "mov.v2.b32 V, {1, 2};"),
    ("", "mov.v2.b32 {r, s}, {s, r};"),
    ("", "mov.v2.b32 {_, s}, V;"),
    ("", "mov.v2.b32 {r, r}, V;"),
    ("", "mov.v2.b64 L, {a, b};"),
    ("", "mov.v2.b16 {h, h}, H;"),
    ("", "mov.v4.b16 H, {h, h, h, h};"),
    ("", "mov.b64 b, V;"),
    ("", "mov.b64 V, b;"),
    ("", "mov.b64 {r, s}, V;"),
    ("", "mov.b64 V, {r, s};"),
    ("", "mov.b64 b, {r, s};"),
    ("", "mov.b64 b, H;"),
    ("", "mov.b128 Q, W;"),
    ("", "mov.b128 Q, L;"),
    ("", "mov.b128 Q, {a, b};"),
    ("", "mov.b128 {a, b}, Q;"),
    ("", "mov.b128 W, Q;"),
    ("", "mov.b128 {r, s, t, u}, Q;"),
    ("", "mov.b32 r, V;"),
    ("", "mov.b32 V, r;"),
    ("", "mov.b32 r, W.x;"),
    ("", "mov.b32 r, W.r;"),
    ("", "mov.b32 W.x, r;"),
    ("", "mov.v4.u32 W, %tid;"),
    ("", "mov.v4.u32 {r, s, t, u}, %ntid;"),
    ("", "mov.v2.u32 V, %tid;"),
    ("", "mov.v2.f32 F, {0f3F800000, 0f40000000};"),
    ("", "mov.v2.pred {p, q}, {q, p};"),
    ("", "@p mov.v2.b32 V, {r, s};"),
    ("", "add.u32 V, V, V;"),
    ("", "add.u32 V.x, V.y, 1;"),
    ("", "ld.global.v2.b32 V, [a];"),
    ("", "st.global.v2.b32 [a], V;"),
    ("", "st.global.b64 [a], V;"),
    ("", "ld.global.b32 V.x, [a];"),
    ("", "st.global.v4.b32 [a], {V.x, V.y, r, s};"),
    ("", "st.global.v4.b32 [a], {V, r, s};"),
    // calls with vectors
    (TURNED, "call (V), turned, (V);"),
    (TURNED, "call ({r, s}), turned, (V);"),
    (TURNED, "call (V), turned, ({r, s});"),
    (TURNED, "call (r, s), turned, (r, s);"),
    (".func fun(.reg .b64 i) { ret; }", "call fun, (V);"),
    (".func fun(.reg .b32 i) { ret; }", "call fun, (2 + 3);"),
    (".func fun(.reg .b32 i) { ret; }", "call fun, ((2 + 3));"),
    (".func fun(.reg .b32 i) { ret; }", "call fun, (-5);"),
    (
        ".func fun(.param .align 8 .b8 i[8]) { ret; }",
        "{ .param .align 8 .b8 x[8]; st.param.v2.b32 [x], V; call fun, (x); }",
    ),
    (".func fun(.reg .v4 .f32 i) { ret; }", "call fun, (W);"),
    (
        ".func (.reg .b128 o) fun(.reg .b128 i) { mov.b128 o, i; ret; }",
        "call (Q), fun, (Q);",
    ),
    (TAKES, "call takes, (F);"),
    (TAKES, "call takes, (H);"),
    (TAKES, "call takes, (W);"),
    (TAKES, "call takes, (L);"),
    (TAKES, "call (V), gives;"),
    (TAKES, "call (H), gives;"),
    (TAKES, "call (r), gives;"),
    (".func fun(.reg .b128 i) { ret; }", "call fun, (W);"),
    (".func fun(.reg .b128 i) { ret; }", "call fun, (L);"),
    (".func fun(.param .b64 i) { ret; }", "call fun, (V);"),
    (".func fun(.param .b64 i) { ret; }", "call fun, (b);"),
    ("", "mov.u64 b, V;"),
    ("", "mov.f64 d, F;"),
    ("", "mov.v4.b16 H, V;"),
    ("", "xor.b64 V, V, a;"),
    ("", "st.global.b64 [V], a;"),
    (TABLE, "mov.u64 b, table[r];"),
    (TABLE, "mov.u64 b, table[b];"),
    (TABLE, "mov.u64 b, table[h];"),
    (TABLE, "st.global.u32 table[s + 1], r;"),
    ("", "mov.u64 b, a + 8;"),
    ("", "add.u32 r, s + 1, t;"),
    // aliases
    (
        ".func real() { ret; } .func other(); .alias other, real;",
        "call other;",
    ),
    (
        ".visible .func real() { ret; } .visible .func other(); .alias other, real;",
        "call other;",
    ),
    (
        ".visible .func real() { ret; } .visible .func other(); .alias other, real;",
        "mov.u64 b, other;",
    ),
    (
        ".visible .func real() { ret; } .alias other, real;",
        "call other;",
    ),
    (
        ".visible .func other(); .visible .func real() { ret; } .alias other,real;",
        "call other;",
    ),
    (
        ".visible .func real(); .visible .func other(); .alias other, real; .visible .func real() { ret; }",
        "call other;",
    ),
    (
        ".weak .func real() { ret; } .weak .func other(); .alias other, real;",
        "call other;",
    ),
    (
        ".visible .func real() { ret; } .extern .func other(); .alias other, real;",
        "call other;",
    ),
    // prototypes
    (".func fun() .func fun() { ret; }", "call fun;"),
    (".extern .func fun() .func g() { ret; }", "call g;"),
    (
        ".func fun()\n.global .u32 x;\n.func fun() { ret; }",
        "call fun;",
    ),
    (
        ".func (.reg .b32 o) fun(.reg .b32 i) .func (.reg .b32 o) fun(.reg .b32 i) { mov.b32 o, i; ret; }",
        "call (r), fun, (s);",
    ),
    (".visible .entry e() .visible .entry e() { ret; }", ""),
    (".visible .entry e(); .visible .entry e() { ret; }", ""),
    // initialisers
    (".global .u32 x = /* one */ 1;", ""),
    (".global .u32 x[2] = { 1, // one\n 2 };", ""),
    (".global .u32 x[2] = { 1, 2, };", ""),
    (".global .u32 x[2] = { 1 2 };", ""),
    (".global .u32 x[2] = { 1 + 2, (3) };", ""),
    (".global .u32 x[2] = { };", ""),
    (".global .u32 x[] = { 1, 2 };", ""),
    (".global .u32 x[2] = { 1, 2, 3 };", ""),
    (".global .u32 x[1 + 1];", ""),
    (".global .u32 x[2][2] = { {1}, {2, 3} };", ""),
    (".global .u32 x[2][2] = { 1, 2, 3, 4 };", ""),
    (".global .v2 .u32 x[2] = { {1, 2}, {3, 4} };", ""),
    (".global .f32 x = 1;", ""),
    (".global .f32 x = 1.0 + 2.0;", ""),
    (".global .f32 x = 0f3F800000;", ""),
    (".global .f64 x = -1.5;", ""),
    (".global .u32 x = 1.5;", ""),
    (".global .u32 y; .global .u64 x = y + 4 * 2;", ""),
    (".global .u32 y[4]; .global .u64 x = y[2];", ""),
    (".global .u32 y; .global .u64 x = 4 + y;", ""),
    (".global .u32 y; .global .u64 x = generic(y) + 4;", ""),
    (
        ".global .u32 y; .global .u8 x[2] = { 0xff(y), 0xff00(y) };",
        "",
    ),
    (".global .u64 x = 1 / 0;", ""),
    (".func fun() { ret; } .global .u64 x = fun;", ""),
    (".extern .func fun(); .global .u64 x = fun;", ""),
    (".global .u64 x = nothing;", ""),
    (".global .s64 x = (.s64) 5;", ""),
    (".global .u64 x = 5 > 3 ? 1 : 2;", ""),
    (".global .u64 x = 5U;", ""),
    (".global .u64 x = !1 || 2 && ~3;", ""),
    (".global .u64 x = WARP_SZ;", ""),
    // elements as operands
    (TABLE, "ld.global.u32 r, table[2];"),
    (TABLE, "ld.global.u32 r, table[1 + 1];"),
    (TABLE, "ld.global.u32 r, [table + 2 * 4];"),
    (TABLE, "ld.global.u32 r, [table + (8)];"),
    (TABLE, "ld.global.u32 r, table[s];"),
    (TABLE, "ld.global.u32 r, table[9];"),
    (TABLE, "ld.global.u32 r, grid[1];"),
    (TABLE, "mov.u64 b, table[1];"),
    (TABLE, "mov.u64 b, table + 4;"),
    (TABLE, "mov.u64 b, table + 4 * 2;"),
    (TABLE, "mov.u64 b, one[1];"),
    (TABLE, "st.global.u32 table[3], r;"),
    (TABLE, "red.global.add.u32 [table + 4 + 4], 1;"),
    (TABLE, "ld.global.u32 r, [a + 4 * 2];"),
    (TABLE, "ld.global.u32 r, [a + (4 << 1)];"),
    (TABLE, "ld.global.u32 r, [a + s];"),
    (TABLE, "ld.global.u32 r, a[1];"),
    // expressions as operands
    ("", "mov.u32 r, 1 + 2;"),
    ("", "mov.u32 r, (1 + 2) * 3;"),
    ("", "mov.u32 r, (1);"),
    ("", "mov.u32 r, !0;"),
    ("", "mov.u32 r, ~5;"),
    ("", "mov.u32 r, - 5;"),
    ("", "mov.u32 r, +5;"),
    ("", "mov.u32 r, 1 | 2;"),
    ("", "mov.u32 r, 1 || 2;"),
    ("", "mov.u32 r, 7 % 4;"),
    ("", "mov.u32 r, 1 ? 2 : 3;"),
    ("", "mov.u32 r, 5 >= 3;"),
    ("", "mov.u32 r, 1 << 2 >> 1;"),
    ("", "mov.u32 r, 1 / 0;"),
    ("", "mov.u32 r, (.u64) 5;"),
    ("", "mov.u32 r, WARP_SZ + 1;"),
    ("", "mov.u32 r, s + 1;"),
    ("", "add.u32 r, s, 2 * 3;"),
    ("", "add.u32 r, s, (2 * 3);"),
    ("", "mov.f32 f, 1.0 + 2.0;"),
    ("", "mov.f32 f, 1.0;"),
    ("", "mov.f64 d, 1.0 / 3.0;"),
    ("", "bar.sync 1 + 1;"),
    ("", "setp.lt.u32 p, r, 4 + 4;"),
    ("", "shl.b32 r, s, 1 + 1;"),
    ("", "st.global.u32 [a], 1 + 1;"),
    ("", "st.global.v2.u32 [a], {1 + 1, 2 * 2};"),
    ("", "selp.u32 r, 1 + 1, (3), p;"),
    // variables in bodies
    ("", ".global .u32 x;"),
    ("", ".global .u32 x = 5; ld.global.u32 r, [x];"),
    ("", ".const .u32 x[2] = {1, 2}; ld.const.u32 r, [x + 4];"),
    ("", ".shared .u32 x[4]; ld.shared.u32 r, x[3];"),
    ("", ".local .u32 x[4]; ld.local.u32 r, x[3];"),
    ("", ".visible .global .u32 x;"),
    ("", ".extern .global .u32 x;"),
    ("", "{ .global .u32 x; } { .global .u32 x; }"),
    // carries
    ("", "add.cc.u32 r, s, t; subc.u32 r, s, t;"),
    (
        "",
        "sub.cc.u64 b, b, a; madc.hi.cc.u64 b, a, a, b; addc.u64 b, a, b;",
    ),
    (
        "",
        "mad.lo.cc.u32 r, s, t, u; subc.cc.u32 r, s, t; addc.u32 r, 0, 0;",
    ),
    ("", "subc.u32 r, s, t;"),
    // names that nobody defines
    (".extern .func fun();", "call fun;"),
    (".extern .func fun();", ""),
    (".extern .func fun();", "@p call fun;"),
    (".extern .func fun();", "bra OUT; call fun; OUT:"),
    (".extern .func fun();", "mov.u64 b, fun;"),
    (".func fun();", "call fun;"),
    (".extern .func fun(); .func g() { call fun; ret; }", ""),
    (".extern .global .u32 x;", ""),
    (".extern .global .u32 x;", "ld.global.u32 r, [x];"),
    (
        ".extern .func (.reg .b32 o) vprintf(.reg .b64 f, .reg .b64 a);",
        "call (r), vprintf, (a, a);",
    ),
    (
        ".extern .func (.param .b32 o) vprintf(.param .b64 f, .param .b64 a);",
        "{ .param .b64 x; .param .b32 y; call (y), vprintf, (x, x); }",
    ),
    ("", "call fun;"),
    ("", "add.u32 r, what, 1;"),
    ("", "bra NOWHERE;"),
    ("", "mov.u64 b, nothing;"),
];

const TURNED: &str = ".func (.reg .v2 .b32 o) turned(.reg .v2 .b32 i) { mov.v2.b32 o, i; ret; }";
const TAKES: &str =
    ".func takes(.reg .b64 i) { ret; } .func (.reg .b64 o) gives() { mov.b64 o, 5; ret; }";
const TABLE: &str = ".global .u32 table[4]; .global .u32 grid[2][3]; .global .u32 one;";

#[test]
fn ptxas_agrees() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("constructs");
    std::fs::create_dir_all(&folder).expect("a scratch directory");
    let gpu = warpbpf_softgpu::Gpu::new(crate::common::config());
    let mut wrong = Vec::new();
    for (number, (before, body)) in VARIANTS.iter().enumerate() {
        let text = header(&format!(
            "{before}\n.visible .entry k(.param .u64 out) {{
                .reg .b64 a, b; .reg .b32 r, s, t, u; .reg .b16 h; .reg .f32 f; .reg .f64 d; .reg .pred p, q; .reg .b128 Q;
                .reg .v2 .b32 V; .reg .v4 .b32 W, X; .reg .v2 .b64 L; .reg .v4 .b16 H; .reg .v2 .f32 F;
                ld.param.u64 a, [out];\n{body}\nret; }}"
        ));
        let path = folder.join(format!("{number}.ptx"));
        std::fs::write(&path, &text).expect("written");
        let theirs = std::process::Command::new(crate::common::cuda_home().join("bin/ptxas"))
            .args(["-O0", "-arch", "sm_90", "-o", "/dev/null"])
            .arg(&path)
            .output()
            .expect("ptxas runs");
        let unsupported = |module: &warpbpf_softgpu::Module| {
            let found = module.kernel("k").expect("k").unsupported();
            found.map(|list| list.first().map(|(_, text)| text.clone()))
        };
        let ours = match gpu.load(&text).and_then(|m| m.decode_all().map(|()| m)) {
            Ok(module) => unsupported(&module).ok().flatten(),
            Err(error) => Some(error.to_string()),
        };
        if theirs.status.success() != ours.is_none() {
            let said = String::from_utf8_lossy(&theirs.stderr);
            let said = said.lines().next().unwrap_or("accepted").to_owned();
            wrong.push(format!(
                "{before} {body}\n    ours: {ours:?}\n    ptxas: {said}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
