//! Tensor-core instructions, compared with plain products that the host computes. All values are
//! small integers, so that every sum is exact and hardware gives the same bits.

use crate::common::{
    self,
    matrix::{
        Formula, Ty, bits_of, download, fragment, matrix_of, packed, product, random, registers_of,
        replicate, upload,
    },
};
use crate::common::{Params, Rig, header, nvcc};

/// An `mma.sync` with its fragments.
struct Case {
    name: &'static str,
    /// m, n, k
    shape: [usize; 3],
    /// d, a, b, c
    types: [Ty; 4],
    a: Formula,
    b: Formula,
    c: Formula,
}

fn c16(g: usize, t: usize, i: usize) -> (usize, usize) {
    (if i < 2 { g } else { g + 8 }, t * 2 + (i & 1))
}

fn c8(g: usize, t: usize, i: usize) -> (usize, usize) {
    (g, t * 2 + (i & 1))
}

/// Half of a row or the other, `p` elements in a register, `a` of two by two registers.
fn a_quarters(p: usize, g: usize, t: usize, i: usize) -> (usize, usize) {
    let upper = i < p || (2 * p..3 * p).contains(&i);
    let column = t * p + i % p;
    (
        if upper { g } else { g + 8 },
        if i < 2 * p { column } else { column + 4 * p },
    )
}

fn b_halves(p: usize, g: usize, t: usize, i: usize) -> (usize, usize) {
    (t * p + i % p + if i < p { 0 } else { 4 * p }, g)
}

fn cases() -> Vec<Case> {
    use Ty::{B1, Bf16, E4m3, E5m2, F16, F32, F64, S4, S8, S32, Tf32, U4, U8};
    let case = |name, shape, types, (a, b, c): (Formula, Formula, Formula)| Case {
        name,
        shape,
        types,
        a,
        b,
        c,
    };
    let q2: (Formula, Formula, Formula) = (
        |g, t, i| a_quarters(2, g, t, i),
        |g, t, i| b_halves(2, g, t, i),
        c16,
    );
    let q4: (Formula, Formula, Formula) = (
        |g, t, i| a_quarters(4, g, t, i),
        |g, t, i| b_halves(4, g, t, i),
        c16,
    );
    let q8: (Formula, Formula, Formula) = (
        |g, t, i| a_quarters(8, g, t, i),
        |g, t, i| b_halves(8, g, t, i),
        c16,
    );
    let q32: (Formula, Formula, Formula) = (
        |g, t, i| a_quarters(32, g, t, i),
        |g, t, i| b_halves(32, g, t, i),
        c16,
    );
    let q1: (Formula, Formula, Formula) = (
        |g, t, i| a_quarters(1, g, t, i),
        |g, t, i| b_halves(1, g, t, i),
        c16,
    );
    let d16: (Formula, Formula, Formula) = (
        |g, t, i| (if i % 2 == 0 { g } else { g + 8 }, i / 2 * 4 + t),
        |g, t, i| (i * 4 + t, g),
        c16,
    );
    vec![
        case(
            "m16n8k16.row.col.f32.f16.f16.f32",
            [16, 8, 16],
            [F32, F16, F16, F32],
            q2,
        ),
        case(
            "m16n8k16.row.col.f16.f16.f16.f16",
            [16, 8, 16],
            [F16, F16, F16, F16],
            q2,
        ),
        case(
            "m16n8k8.row.col.f32.f16.f16.f32",
            [16, 8, 8],
            [F32, F16, F16, F32],
            q2,
        ),
        case(
            "m16n8k8.row.col.f16.f16.f16.f16",
            [16, 8, 8],
            [F16, F16, F16, F16],
            q2,
        ),
        case(
            "m16n8k16.row.col.f32.bf16.bf16.f32",
            [16, 8, 16],
            [F32, Bf16, Bf16, F32],
            q2,
        ),
        case(
            "m16n8k8.row.col.f32.bf16.bf16.f32",
            [16, 8, 8],
            [F32, Bf16, Bf16, F32],
            q2,
        ),
        case(
            "m16n8k8.row.col.f32.tf32.tf32.f32",
            [16, 8, 8],
            [F32, Tf32, Tf32, F32],
            q1,
        ),
        case(
            "m16n8k4.row.col.f32.tf32.tf32.f32",
            [16, 8, 4],
            [F32, Tf32, Tf32, F32],
            q1,
        ),
        case(
            "m16n8k32.row.col.f32.e4m3.e4m3.f32",
            [16, 8, 32],
            [F32, E4m3, E4m3, F32],
            q4,
        ),
        case(
            "m16n8k32.row.col.f32.e5m2.e4m3.f32",
            [16, 8, 32],
            [F32, E5m2, E4m3, F32],
            q4,
        ),
        case(
            "m16n8k32.row.col.s32.s8.s8.s32",
            [16, 8, 32],
            [S32, S8, S8, S32],
            q4,
        ),
        case(
            "m16n8k32.row.col.satfinite.s32.u8.s8.s32",
            [16, 8, 32],
            [S32, U8, S8, S32],
            q4,
        ),
        case(
            "m16n8k16.row.col.s32.s8.u8.s32",
            [16, 8, 16],
            [S32, S8, U8, S32],
            q4,
        ),
        case(
            "m8n8k16.row.col.s32.u8.u8.s32",
            [8, 8, 16],
            [S32, U8, U8, S32],
            (|g, t, i| (g, t * 4 + i), |g, t, i| (t * 4 + i, g), c8),
        ),
        case(
            "m16n8k64.row.col.s32.s4.u4.s32",
            [16, 8, 64],
            [S32, S4, U4, S32],
            q8,
        ),
        case(
            "m16n8k32.row.col.s32.u4.s4.s32",
            [16, 8, 32],
            [S32, U4, S4, S32],
            q8,
        ),
        case(
            "m8n8k32.row.col.s32.s4.s4.s32",
            [8, 8, 32],
            [S32, S4, S4, S32],
            (|g, t, i| (g, t * 8 + i), |g, t, i| (t * 8 + i, g), c8),
        ),
        case(
            "m16n8k256.row.col.s32.b1.b1.s32.and.popc",
            [16, 8, 256],
            [S32, B1, B1, S32],
            q32,
        ),
        case(
            "m16n8k128.row.col.s32.b1.b1.s32.xor.popc",
            [16, 8, 128],
            [S32, B1, B1, S32],
            q32,
        ),
        case(
            "m8n8k128.row.col.s32.b1.b1.s32.xor.popc",
            [8, 8, 128],
            [S32, B1, B1, S32],
            (|g, t, i| (g, t * 32 + i), |g, t, i| (t * 32 + i, g), c8),
        ),
        case(
            "m8n8k4.row.col.f64.f64.f64.f64",
            [8, 8, 4],
            [F64, F64, F64, F64],
            (|g, t, _| (g, t), |g, t, _| (t, g), c8),
        ),
        case(
            "m16n8k4.row.col.f64.f64.f64.f64",
            [16, 8, 4],
            [F64, F64, F64, F64],
            d16,
        ),
        case(
            "m16n8k8.row.col.f64.f64.f64.f64",
            [16, 8, 8],
            [F64, F64, F64, F64],
            d16,
        ),
        case(
            "m16n8k16.row.col.f64.f64.f64.f64",
            [16, 8, 16],
            [F64, F64, F64, F64],
            d16,
        ),
    ]
}

fn register_type(ty: Ty) -> &'static str {
    match ty {
        Ty::F32 => "f32",
        Ty::F64 => "f64",
        _ => "b32",
    }
}

/// Loads or stores of a lane's registers.
fn transfer(op: &str, prefix: &str, ty: Ty, count: usize) -> String {
    let (kind, bytes) = (register_type(ty), bits_of(ty).max(32) / 8);
    let mut text = format!(
        "ld.param.u64 %rd0, [{prefix}]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd0, %r0, {}, %rd0;\n",
        count * bytes
    );
    for i in 0..count {
        let offset = i * bytes;
        text += &match op {
            "ld" => format!("ld.global.{kind} %{prefix}{i}, [%rd0+{offset}];\n"),
            _ => format!("st.global.{kind} [%rd0+{offset}], %{prefix}{i};\n"),
        };
    }
    text
}

fn list(prefix: &str, count: usize) -> String {
    let names: Vec<String> = (0..count).map(|i| format!("%{prefix}{i}")).collect();
    format!("{{{}}}", names.join(","))
}

fn mma_kernel(case: &Case) -> String {
    let ([m, n, k], [d, a, b, c]) = (case.shape, case.types);
    let counts = [
        registers_of(d, m * n),
        registers_of(a, m * k),
        registers_of(b, k * n),
        registers_of(c, m * n),
    ];
    let mut body = ".reg .b32 %r<4>; .reg .b64 %rd<4>;\n".to_owned();
    for (prefix, (ty, count)) in ["d", "a", "b", "c"]
        .iter()
        .zip([d, a, b, c].iter().zip(counts))
    {
        body += &format!(".reg .{} %{prefix}<{count}>;\n", register_type(*ty));
    }
    for (prefix, ty, count) in [
        ("a", a, counts[1]),
        ("b", b, counts[2]),
        ("c", c, counts[3]),
    ] {
        body += &transfer("ld", prefix, ty, count);
    }
    body += &format!(
        "mma.sync.aligned.{} {}, {}, {}, {};\n",
        case.name,
        list("d", counts[0]),
        list("a", counts[1]),
        list("b", counts[2]),
        list("c", counts[3])
    );
    body += &transfer("st", "d", d, counts[0]);
    header(&format!(
        ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{\n{body}ret;\n}}"
    ))
    .replace(".version 8.3", ".version 8.4")
}

#[test]
fn mma_of_every_shape_is_the_plain_product() {
    for case in cases() {
        let ([m, n, k], [d, a, b, c]) = (case.shape, case.types);
        let (va, vb, vc) = (
            random(a, m * k, 1),
            random(b, k * n, 2),
            random(c, m * n, 3),
        );
        let mut rig = Rig::new(&mma_kernel(&case));
        let out = rig.zeroes(2 * m * n);
        let params = Params::default()
            .u64(upload(&rig, a, &fragment(a, &va, k, case.a)))
            .u64(upload(&rig, b, &fragment(b, &vb, n, case.b)))
            .u64(upload(&rig, c, &fragment(c, &vc, n, case.c)))
            .u64(out);
        rig.run("k", 1, 32, &params);
        let registers = download(&rig, d, out, registers_of(d, m * n) * 32);
        let found = matrix_of(d, &registers, m * n, n, case.c);
        let xor = case.name.contains("xor");
        assert_eq!(
            found,
            product(case.shape, &va, &vb, &vc, xor),
            "{}",
            case.name
        );
    }
}

/// One register of f16 as mma's fragments have it, all lanes; the body starts on PTX line 6.
fn lanes_kernel(body: &str) -> String {
    header(&format!(
        ".visible .entry k(.param .u64 out) {{ .reg .b32 %r<40>; .reg .b64 %rd<4>; .reg .pred %p<4>;\n\
         .shared .align 128 .b8 tile[1024]; mov.u32 %r31, %tid.x;\n{body}\nret;\n}}"
    ))
}

/// Row and column by lane and element, as the ISA has them.
type Factor = fn(usize, usize) -> (usize, usize);

/// The four products of `mma.m8n8k4` of f16, each of two quads, in all layouts.
#[test]
fn products_of_quad_pairs() {
    let a_row: Factor = |lane, i| (lane % 4 + if lane < 16 { 0 } else { 4 }, i);
    let a_col: Factor = |lane, i| (i % 4 + if lane < 16 { 0 } else { 4 }, lane % 4);
    let b_row: Factor = |lane, i| (lane % 4, i + if lane < 16 { 0 } else { 4 });
    let b_col: Factor = |lane, i| (i, lane % 4 + if lane < 16 { 0 } else { 4 });
    for (la, place_a) in [("row", a_row), ("col", a_col)] {
        for (lb, place_b) in [("row", b_row), ("col", b_col)] {
            for (d, c) in [(Ty::F32, Ty::F32), (Ty::F16, Ty::F16), (Ty::F32, Ty::F16)] {
                quad_pairs([la, lb], [place_a, place_b], [d, c]);
            }
        }
    }
}

/// Registers of elements that a function of lane and number gives.
fn fill(ty: Ty, count: usize, value: impl Fn(usize, usize) -> i64) -> Vec<u64> {
    let (bits, per) = (bits_of(ty), 32 / bits_of(ty));
    let word = |at: usize| {
        let (lane, register) = (at / (count / per), at % (count / per));
        (0..per).fold(0, |word, i| {
            word | replicate(ty, value(lane, register * per + i)) << (i * bits)
        })
    };
    (0..32 * count / per).map(word).collect()
}

fn quad_pairs([la, lb]: [&str; 2], [place_a, place_b]: [Factor; 2], [d, c]: [Ty; 2]) {
    let (va, vb, vc) = (
        random(Ty::F16, 128, 31),
        random(Ty::F16, 128, 32),
        random(c, 256, 33),
    );
    let pair = |lane: usize| lane % 16 / 4;
    let in_a = fill(Ty::F16, 4, |lane, i| {
        let (row, k) = place_a(lane, i);
        va[pair(lane) * 32 + row * 4 + k]
    });
    let in_b = fill(Ty::F16, 4, |lane, i| {
        let (k, column) = place_b(lane, i);
        vb[pair(lane) * 32 + k * 8 + column]
    });
    let sum = |ty: Ty, lane: usize, i: usize| {
        let lower = if lane < 16 { 0 } else { 4 };
        let (row, column) = match ty {
            Ty::F16 => (lane % 4 + lower, i),
            _ => ((lane & 1) + (i & 2) + lower, (i & 4) + (lane & 2) + (i & 1)),
        };
        pair(lane) * 64 + row * 8 + column
    };
    let in_c = fill(c, 8, |lane, i| vc[sum(c, lane, i)]);
    let counts = [bits_of(d) / 4, 2, 2, bits_of(c) / 4];
    let mut body = ".reg .b32 %r<4>; .reg .b64 %rd<4>;\n".to_owned();
    let types = [("d", d), ("a", Ty::S32), ("b", Ty::S32), ("c", c)];
    for ((prefix, ty), count) in types.into_iter().zip(counts) {
        body += &format!(".reg .{} %{prefix}<{count}>;\n", register_type(ty));
    }
    // Two halves are moved as one word.
    let word = |ty| if ty == Ty::F16 { Ty::S32 } else { ty };
    for ((prefix, ty), count) in types.into_iter().zip(counts).skip(1) {
        body += &transfer("ld", prefix, word(ty), count);
    }
    let [d_name, c_name] = [d, c].map(|ty| format!("{ty:?}").to_lowercase());
    let label = format!("m8n8k4.{la}.{lb}.{d_name}.f16.f16.{c_name}");
    body += &format!(
        "mma.sync.aligned.{label} {}, {}, {}, {};\n",
        list("d", counts[0]),
        list("a", 2),
        list("b", 2),
        list("c", counts[3])
    );
    body += &transfer("st", "d", word(d), counts[0]);
    let mut rig = Rig::new(&header(&format!(
        ".visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{\n{body}ret;\n}}"
    )));
    let out = rig.zeroes(256);
    let params = Params::default()
        .u64(upload(&rig, Ty::S32, &in_a))
        .u64(upload(&rig, Ty::S32, &in_b))
        .u64(upload(&rig, Ty::S32, &in_c))
        .u64(out);
    rig.run("k", 1, 32, &params);
    let products: Vec<i64> = (0..4)
        .flat_map(|p| {
            let (a, b, c) = (
                &va[p * 32..][..32],
                &vb[p * 32..][..32],
                &vc[p * 64..][..64],
            );
            product([8, 8, 4], a, b, c, false)
        })
        .collect();
    let expected = fill(d, 8, |lane, i| products[sum(d, lane, i)]);
    assert_eq!(
        download(&rig, Ty::S32, out, expected.len()),
        expected,
        "{label}"
    );
}

#[test]
fn saturation_wraps_without_satfinite() {
    for (saturate, expected) in [
        ("", 0x8000_0000u32 + 32 * 127 * 127 - 1),
        (".satfinite", 0x7fff_ffff),
    ] {
        let body = format!(
            "mov.u32 %r0, 0x7f7f7f7f; mov.u32 %r1, 0x7fffffff;\n\
             mma.sync.aligned.m16n8k32.row.col{saturate}.s32.s8.s8.s32 {{%r2,%r3,%r4,%r5}}, {{%r0,%r0,%r0,%r0}}, {{%r0,%r0}}, {{%r1,%r1,%r1,%r1}};\n\
             ld.param.u64 %rd0, [out]; mad.wide.u32 %rd0, %r31, 4, %rd0; st.global.u32 [%rd0], %r5;"
        );
        let mut rig = Rig::new(&lanes_kernel(&body));
        let out = rig.zeroes(32);
        rig.run("k", 1, 32, &Params::default().u64(out));
        assert_eq!(rig.read_u32(out, 32), [expected; 32]);
    }
}

/// The kernel writes element `(r, c)` of tile `i` as `64i + 8r + c` (two in a word) and then runs
/// the body.
fn with_tiles(body: &str) -> String {
    lanes_kernel(&format!(
        "mul.lo.u32 %r30, %r31, 16; mov.u32 %r29, tile; add.u32 %r30, %r29, %r30;\n\
         // Lane l fills row l % 8 of tile l / 8: elements 8l..8l + 8.\n\
         shl.b32 %r28, %r31, 3; mad.lo.u32 %r20, %r28, 0x10001, 0x10000;\n\
         add.u32 %r21, %r20, 0x20002; add.u32 %r22, %r20, 0x40004; add.u32 %r23, %r20, 0x60006;\n\
         st.shared.v4.b32 [%r30], {{%r20, %r21, %r22, %r23}}; bar.warp.sync -1;\n\
         mov.u32 %r0, -1; mov.u32 %r1, -1; mov.u32 %r2, -1; mov.u32 %r3, -1;\n{body}\n\
         ld.param.u64 %rd0, [out]; mad.wide.u32 %rd0, %r31, 16, %rd0;\n\
         st.global.v4.b32 [%rd0], {{%r0, %r1, %r2, %r3}};"
    ))
}

/// Element pairs of a lane's registers after the body, lane by lane, four registers each.
fn tiles_after(body: &str) -> Vec<[u16; 2]> {
    let mut rig = Rig::new(&with_tiles(body));
    let out = rig.zeroes(128);
    rig.run("k", 1, 32, &Params::default().u64(out));
    let words = rig.read_u32(out, 128);
    words
        .iter()
        .map(|&w| [w as u16, (w >> 16) as u16])
        .collect()
}

fn expected_tiles(count: usize, transposed: bool) -> Vec<[u16; 2]> {
    let pair = |lane: usize, tile: usize| {
        if tile >= count {
            return [u16::MAX; 2];
        }
        let (r, c) = (lane / 4, lane % 4 * 2);
        let element = |r: usize, c: usize| (64 * tile + 8 * r + c) as u16;
        if transposed {
            [element(c, r), element(c + 1, r)]
        } else {
            [element(r, c), element(r, c + 1)]
        }
    };
    (0..128).map(|i| pair(i / 4, i % 4)).collect()
}

#[test]
fn ldmatrix_gives_each_lane_its_pair() {
    for (suffix, transposed) in [("", false), (".trans", true)] {
        for (count, vector) in [(1, "{%r0}"), (2, "{%r0,%r1}"), (4, "{%r0,%r1,%r2,%r3}")] {
            let body =
                format!("ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {vector}, [%r30];");
            assert_eq!(
                tiles_after(&body),
                expected_tiles(count, transposed),
                "{body}"
            );
        }
    }
    // A generic address, and results in the register that held it.
    let generic = "cvt.u64.u32 %rd1, %r30; cvta.shared.u64 %rd1, %rd1;\n\
                   ldmatrix.sync.aligned.m8n8.x4.b16 {%r0,%r1,%r2,%r3}, [%rd1];";
    assert_eq!(tiles_after(generic), expected_tiles(4, false));
    let same =
        "ldmatrix.sync.aligned.m8n8.x2.shared::cta.b16 {%r30,%r1}, [%r30+128]; mov.u32 %r0, %r30;";
    let shifted: Vec<[u16; 2]> = expected_tiles(4, false)
        .chunks_exact(4)
        .flat_map(|lane| [lane[1], lane[2], [u16::MAX; 2], [u16::MAX; 2]])
        .collect();
    assert_eq!(tiles_after(same), shifted);
}

#[test]
fn stmatrix_undoes_ldmatrix() {
    for (store, load, transposed) in [
        ("", "", false),
        (".trans", ".trans", false),
        (".trans", "", true),
    ] {
        let body = format!(
            "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r0,%r1,%r2,%r3}}, [%r30]; bar.warp.sync -1;\n\
             stmatrix.sync.aligned.m8n8.x4{store}.shared.b16 [%r30+512], {{%r0,%r1,%r2,%r3}}; bar.warp.sync -1;\n\
             ldmatrix.sync.aligned.m8n8.x4{load}.shared.b16 {{%r0,%r1,%r2,%r3}}, [%r30+512];"
        );
        assert_eq!(tiles_after(&body), expected_tiles(4, transposed), "{body}");
    }
    let one = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0,%r1,%r2,%r3}, [%r30]; bar.warp.sync -1;\n\
               stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r30], {%r3}; bar.warp.sync -1;\n\
               ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r0,%r1,%r2,%r3}, [%r30];";
    let mut expected = expected_tiles(4, false);
    (0..32).for_each(|lane| expected[4 * lane] = expected[4 * lane + 3]);
    assert_eq!(tiles_after(one), expected);
}

#[test]
fn movmatrix_transposes() {
    let body = "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0,%r1}, [%r30]; movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r1;\n\
                movmatrix.sync.aligned.m8n8.trans.b16 %r0, %r0;";
    assert_eq!(tiles_after(body), expected_tiles(2, true));
}

const WMMA: &str = r#"
    #include <mma.h>
    using namespace nvcuda::wmma;
    template <class L> __device__ constexpr bool by_row() { return false; }
    template <> __device__ constexpr bool by_row<row_major>() { return true; }
    template <int M, int N, int K, class A, class S, class C, class LA, class LB>
    __device__ void go(const void* a, const void* b, const C* c, C* d, bool by_column) {
      fragment<matrix_a, M, N, K, A, LA> fa; fragment<matrix_b, M, N, K, A, LB> fb;
      fragment<accumulator, M, N, K, C> fc;
      load_matrix_sync(fa, (const S*)a, by_row<LA>() ? K : M);
      load_matrix_sync(fb, (const S*)b, by_row<LB>() ? N : K);
      load_matrix_sync(fc, c, N, mem_row_major);
      mma_sync(fc, fa, fb, fc);
      for (int i = 0; i < fc.num_elements; i++) fc.x[i] = fc.x[i] + fc.x[i];
      store_matrix_sync(d, fc, by_column ? M : N, by_column ? mem_col_major : mem_row_major);
    }
"#;

/// Kernels through `<mma.h>`: every combination of layouts and types, one warp each.
#[test]
fn wmma_of_every_shape_is_the_plain_product() {
    let ptx = nvcc("wmma", &(WMMA.to_owned() + &wmma_kernels()));
    for (name, shape, a, c, [row_a, row_b, by_column]) in wmma_cases() {
        let [m, n, k] = shape;
        let (va, vb, vc) = (
            random(a, m * k, 4),
            random(a, k * n, 5),
            random(c, m * n, 6),
        );
        let mut rig = Rig::new(&ptx);
        let out = rig.zeroes(2 * m * n);
        let flip = |matrix: &[i64], rows: usize, columns: usize| -> Vec<i64> {
            (0..rows * columns)
                .map(|i| matrix[i % rows * columns + i / rows])
                .collect()
        };
        let (ma, mb) = (
            if row_a { va.clone() } else { flip(&va, m, k) },
            if row_b { vb.clone() } else { flip(&vb, k, n) },
        );
        let params = Params::default()
            .u64(upload(&rig, Ty::F32, &packed(a, &ma)))
            .u64(upload(&rig, Ty::F32, &packed(a, &mb)))
            .u64(upload(&rig, Ty::F32, &packed(c, &vc)))
            .u64(out);
        rig.run(&name, 1, 32, &params);
        let sums: Vec<i64> = product(shape, &va, &vb, &vc, false)
            .iter()
            .map(|x| 2 * x)
            .collect();
        let words = rig.read_u32(out, m * n * bits_of(c) / 32);
        let expected = packed(c, &if by_column { flip(&sums, m, n) } else { sums });
        assert_eq!(
            words.into_iter().map(u64::from).collect::<Vec<_>>(),
            expected,
            "{name}"
        );
    }
}

type WmmaCase = (String, [usize; 3], Ty, Ty, [bool; 3]);

/// Fragments' types in C++: element, storage, accumulator.
const WMMA_TYPES: [(&str, Ty, &str, &str, Ty, &str); 8] = [
    ("hf", Ty::F16, "__half", "__half", Ty::F32, "float"),
    ("hh", Ty::F16, "__half", "__half", Ty::F16, "__half"),
    (
        "bf",
        Ty::Bf16,
        "__nv_bfloat16",
        "__nv_bfloat16",
        Ty::F32,
        "float",
    ),
    ("sc", Ty::S8, "signed char", "signed char", Ty::S32, "int"),
    (
        "uc",
        Ty::U8,
        "unsigned char",
        "unsigned char",
        Ty::S32,
        "int",
    ),
    ("tf", Ty::Tf32, "precision::tf32", "float", Ty::F32, "float"),
    ("db", Ty::F64, "double", "double", Ty::F64, "double"),
    (
        "s4",
        Ty::S4,
        "experimental::precision::s4",
        "void",
        Ty::S32,
        "int",
    ),
];

fn wmma_list() -> Vec<(WmmaCase, usize)> {
    let mut list = Vec::new();
    for (index, &(name, a, _, _, c, _)) in WMMA_TYPES.iter().enumerate() {
        let shapes: &[[usize; 3]] = match name {
            "tf" => &[[16, 16, 8]],
            "db" => &[[8, 8, 4]],
            "s4" => &[[8, 8, 32]],
            _ => &[[16, 16, 16], [32, 8, 16], [8, 32, 16]],
        };
        for &[m, n, k] in shapes {
            for layouts in 0..4 {
                let (row_a, row_b) = (layouts & 1 == 0, layouts & 2 == 0);
                if name == "s4" && (!row_a || row_b) {
                    continue;
                }
                let kernel = format!("w_{name}_{m}_{n}_{layouts}_");
                let flags = [row_a, row_b, layouts == 3];
                list.push(((kernel, [m, n, k], a, c, flags), index));
            }
        }
    }
    list
}

fn wmma_cases() -> Vec<WmmaCase> {
    wmma_list().into_iter().map(|(case, _)| case).collect()
}

fn wmma_kernels() -> String {
    let mut text = String::new();
    for ((kernel, [m, n, k], _, _, [row_a, row_b, by_column]), index) in wmma_list() {
        let (_, _, element, storage, _, accumulator) = WMMA_TYPES[index];
        let layout = |row: bool| if row { "row_major" } else { "col_major" };
        let (la, lb) = (layout(row_a), layout(row_b));
        text += &format!(
            "extern \"C\" __global__ void {kernel}(const void* a, const void* b, const {accumulator}* c, {accumulator}* d) {{\n\
             go<{m},{n},{k},{element},{storage},{accumulator},{la},{lb}>(a, b, c, d, {by_column}); }}\n"
        );
    }
    text
}

#[test]
fn wmma_of_single_bits() {
    let ptx = nvcc(
        "wmma_bits",
        r#"#include <mma.h>
           using namespace nvcuda::wmma; namespace x = nvcuda::wmma::experimental;
           template <x::bmmaBitOp OP> __device__ void go(const void* a, const void* b, int* d) {
             fragment<matrix_a, 8, 8, 128, x::precision::b1, row_major> fa;
             fragment<matrix_b, 8, 8, 128, x::precision::b1, col_major> fb;
             fragment<accumulator, 8, 8, 128, int> fc;
             load_matrix_sync(fa, a, 128); load_matrix_sync(fb, b, 128); fill_fragment(fc, 5);
             bmma_sync(fc, fa, fb, fc, OP, x::bmmaAccumulateOpPOPC);
             store_matrix_sync(d, fc, 8, mem_row_major);
           }
           extern "C" __global__ void by_xor(const void* a, const void* b, int* d) { go<x::bmmaBitOpXOR>(a, b, d); }
           extern "C" __global__ void by_and(const void* a, const void* b, int* d) { go<x::bmmaBitOpAND>(a, b, d); }"#,
    );
    let (a, b) = (random(Ty::B1, 8 * 128, 7), random(Ty::B1, 8 * 128, 8));
    let by_row: Vec<i64> = (0..1024).map(|i| b[i % 8 * 128 + i / 8]).collect();
    for (kernel, xor) in [("by_xor", true), ("by_and", false)] {
        let mut rig = Rig::new(&ptx);
        let out = rig.zeroes(64);
        let params = Params::default()
            .u64(upload(&rig, Ty::F32, &packed(Ty::B1, &a)))
            .u64(upload(&rig, Ty::F32, &packed(Ty::B1, &b)))
            .u64(out);
        rig.run(kernel, 1, 32, &params);
        let expected = product([8, 8, 128], &a, &by_row, &[5; 64], xor);
        let found: Vec<i64> = rig.read_u32(out, 64).into_iter().map(i64::from).collect();
        assert_eq!(found, expected, "{kernel}");
    }
}

#[test]
fn a_tiled_product_with_tensor_cores_under_any_schedule() {
    let ptx = nvcc(
        "wmma_tiled",
        r#"#include <mma.h>
           using namespace nvcuda::wmma;
           __global__ void gemm(const __half* a, const __half* b, float* c, int n) {
             __shared__ __align__(32) __half sa[64][16], sb[16][64];
             int warp = threadIdx.x / 32, row = blockIdx.x / (n / 64) * 64, col = blockIdx.x % (n / 64) * 64;
             fragment<accumulator, 16, 16, 16, float> acc[4];
             for (auto& f : acc) fill_fragment(f, 0.f);
             for (int k = 0; k < n; k += 16) {
               for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
                 sa[i / 16][i % 16] = a[(row + i / 16) * n + k + i % 16];
                 sb[i / 64][i % 64] = b[(k + i / 64) * n + col + i % 64];
               }
               __syncthreads();
               fragment<matrix_a, 16, 16, 16, __half, row_major> fa;
               load_matrix_sync(fa, &sa[warp * 16][0], 16);
               for (int j = 0; j < 4; j++) {
                 fragment<matrix_b, 16, 16, 16, __half, row_major> fb;
                 load_matrix_sync(fb, &sb[0][j * 16], 64);
                 mma_sync(acc[j], fa, fb, acc[j]);
               }
               __syncthreads();
             }
             for (int j = 0; j < 4; j++) store_matrix_sync(&c[(row + warp * 16) * n + col + j * 16], acc[j], n, mem_row_major);
           }"#,
    );
    let n = 128;
    let (a, b) = (random(Ty::F16, n * n, 9), random(Ty::F16, n * n, 10));
    let expected = product([n, n, n], &a, &b, &vec![0; n * n], false);
    for seed in [None, Some(1), Some(2)] {
        let config = warpbpf_softgpu::Config {
            seed,
            ..common::config()
        };
        let mut rig = Rig::with(config, &ptx);
        let out = rig.zeroes(n * n);
        let params = Params::default()
            .u64(upload(&rig, Ty::F32, &packed(Ty::F16, &a)))
            .u64(upload(&rig, Ty::F32, &packed(Ty::F16, &b)))
            .u64(out)
            .u32(n as u32);
        rig.run("gemm", 4, 128, &params);
        let found: Vec<i64> = rig
            .read_f32(out, n * n)
            .into_iter()
            .map(|x| x as i64)
            .collect();
        assert_eq!(found, expected, "seed {seed:?}");
    }
}

/// The ISA leaves the fragments of `wmma` open, but programs look into them: this is how an H200
/// has them.
#[test]
fn fragments_of_wmma_are_those_of_the_hardware() {
    let ptx = nvcc(
        "wmma_fragments",
        r#"#include <mma.h>
           using namespace nvcuda::wmma;
           template <int M, int N, int K> __device__ void go(int* out) {
             __shared__ __half s[512]; __shared__ float c[512];
             for (int i = threadIdx.x; i < 512; i += 32) { s[i] = (__half)(float)i; c[i] = i; }
             __syncwarp();
             fragment<matrix_a, M, N, K, __half, row_major> fa; load_matrix_sync(fa, s, K);
             fragment<matrix_b, M, N, K, __half, row_major> fb; load_matrix_sync(fb, s, N);
             fragment<accumulator, M, N, K, float> fc; load_matrix_sync(fc, c, N, mem_row_major);
             for (int i = 0; i < 16; i++) out[threadIdx.x * 40 + i] = (int)(float)fa.x[i];
             for (int i = 0; i < 16; i++) out[threadIdx.x * 40 + 16 + i] = (int)(float)fb.x[i];
             for (int i = 0; i < 8; i++) out[threadIdx.x * 40 + 32 + i] = (int)fc.x[i];
           }
           extern "C" __global__ void square(int* out) { go<16, 16, 16>(out); }
           extern "C" __global__ void tall(int* out) { go<32, 8, 16>(out); }
           extern "C" __global__ void wide(int* out) { go<8, 32, 16>(out); }"#,
    );
    // Rows and columns of a 16×16, a 32×16 and a 16×8 multiplicand and of their sums.
    let left = |g, t, i: usize| {
        let (row, column) = a_quarters(2, g, t, i % 8);
        (row + 16 * (i / 8), column)
    };
    let right = |g, t, i: usize| {
        let (row, column) = b_halves(2, g, t, i % 4);
        (row, column + 8 * (i / 4))
    };
    let number = |(row, column): (usize, usize), width: usize| (row * width + column) as u32;
    let flip = |(row, column): (usize, usize)| (column, row);
    for kernel in ["square", "tall", "wide"] {
        let mut rig = Rig::new(&ptx);
        let out = rig.zeroes(1280);
        rig.run(kernel, 1, 32, &Params::default().u64(out));
        let expected: Vec<u32> = (0..1280)
            .map(|at| {
                let (g, t, i) = (at / 40 / 4, at / 40 % 4, at % 40);
                let sum = |i: usize| {
                    let (row, column) = c16(g, t, i % 4);
                    (row, column, i / 4)
                };
                match (kernel, i) {
                    ("square", ..16) => number(left(g, t, i % 8), 16),
                    ("square", 16..32) => number(right(g, t, i % 8), 16),
                    ("tall", ..16) => number(left(g, t, i), 16),
                    ("tall", 16..32) => number(right(g, t, i % 4), 8),
                    ("wide", ..16) => number(flip(right(g, t, i % 4)), 16),
                    ("wide", 16..32) => number(flip(left(g, t, i - 16)), 32),
                    _ => {
                        let (row, column, tile) = sum(i - 32);
                        match kernel {
                            "square" => number((row, column + 8 * tile), 16),
                            "tall" => number((row + 16 * tile, column), 8),
                            _ => number((column, row + 16 * tile), 32),
                        }
                    }
                }
            })
            .collect();
        assert_eq!(rig.read_u32(out, 1280), expected, "{kernel}");
    }
}
