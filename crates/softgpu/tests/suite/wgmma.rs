//! `wgmma`: operands in shared memory by descriptors of every kind, and in registers, compared with
//! plain products.

use crate::common::{
    self,
    matrix::{
        Ty, bits_of, download, fragment, matrix_of, product, random, registers_of, replicate,
        upload,
    },
};
use crate::common::{Params, Rig};

/// How an operand lies in shared memory.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// Bytes of a line: 16 without swizzle, else 32, 64 or 128.
    width: usize,
    /// Lines along `k` and units along rows (or columns) rather than the other way round.
    transposed: bool,
    leading: usize,
    stride: usize,
    /// Bytes from the start of the pattern to the matrix: a multiple of 32 along the line.
    skip: usize,
    /// Where the pattern starts, in lines of 128 bytes.
    base: usize,
}

impl Layout {
    fn of(width: usize, transposed: bool) -> Layout {
        let (leading, stride) = match (width, transposed) {
            // Core matrices one after the other along `k`, then along the rows.
            (16, _) => (128, 256),
            // The leading offset is not looked at.
            (_, false) => (16, 8 * width),
            (_, true) => (16 * width, 8 * width),
        };
        Layout {
            width,
            transposed,
            leading,
            stride,
            skip: 0,
            base: 0,
        }
    }

    /// The byte of an element, counted from where the pattern starts.
    fn place(self, mn: usize, k: usize, bits: usize) -> usize {
        let (line, along) = if self.transposed {
            (k, mn * bits / 8)
        } else {
            (mn, k * bits / 8)
        };
        let (line, rows) = (line % 8, line / 8);
        if self.width == 16 {
            let (units, lines) = if self.transposed {
                (self.stride, self.leading)
            } else {
                (self.leading, self.stride)
            };
            return along / 16 * units + rows * lines + line * 16 + along % 16;
        }
        let along = along + self.skip;
        let (inside, next) = (along % self.width, along / self.width);
        assert!(self.transposed || next == 0, "it lies in one line");
        let unit = inside / 16;
        let swizzled = unit ^ (line * self.width / 128);
        next * self.leading + rows * self.stride + line * self.width + swizzled * 16 + inside % 16
    }

    fn descriptor(self) -> u64 {
        let mode = match self.width {
            16 => 0,
            128 => 1,
            64 => 2,
            _ => 3u64,
        };
        ((self.leading / 16) << 16 | (self.stride / 16) << 32 | self.base << 49) as u64
            | mode << 62
            | ((self.skip + 128 * self.base) as u64 / 16)
    }

    /// The operand's region of shared memory.
    fn image(self, ty: Ty, matrix: &[i64], rows: usize, k: usize) -> Vec<u32> {
        let bits = bits_of(ty);
        let mut bytes = vec![0u8; REGION];
        for mn in 0..rows {
            for inner in 0..k {
                let at = 128 * self.base + self.place(mn, inner, bits);
                let value = replicate(ty, matrix[mn * k + inner]);
                if bits < 8 {
                    bytes[at] |= (value as u8) << (inner * bits % 8);
                } else {
                    let size = bits / 8;
                    bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
                }
            }
        }
        let words = bytes.as_chunks::<4>().0;
        words.iter().map(|w| u32::from_le_bytes(*w)).collect()
    }
}

/// Bytes of shared memory for each operand.
const REGION: usize = 24 << 10;

struct Case {
    /// n, k
    shape: [usize; 2],
    /// d, a, b
    types: [Ty; 3],
    /// `.satfinite` or the like.
    suffix: &'static str,
    /// `None`: in registers.
    a: Option<Layout>,
    b: Layout,
    keep: bool,
    scales: [i64; 2],
}

fn ptx_name(ty: Ty) -> String {
    format!("{ty:?}").to_lowercase()
}

fn register_type(ty: Ty) -> &'static str {
    if ty == Ty::F32 { "f32" } else { "b32" }
}

/// Warp `i` of the group holds rows `16i..16i + 16`; here for one warp.
fn sum_place(g: usize, t: usize, i: usize) -> (usize, usize) {
    (8 * (i / 2 % 2) + g, 8 * (i / 4) + 2 * t + i % 2)
}

fn kernel(case: &Case) -> String {
    let ([n, k], [d, a, b]) = (case.shape, case.types);
    let sums = registers_of(d, 16 * n);
    let list = |prefix: &str, count: usize| {
        let names: Vec<String> = (0..count).map(|i| format!("%{prefix}{i}")).collect();
        format!("{{{}}}", names.join(","))
    };
    let kind = register_type(d);
    let mut body = format!(
        ".reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .pred %p<4>; .reg .{kind} %d<{sums}>; .reg .b32 %a<4>;\n\
         .shared .align 1024 .b8 tile[{}];\n\
         mov.u32 %r0, %tid.x; mov.u32 %r1, tile;\n\
         ld.param.u64 %rd0, [image]; mov.u32 %r2, %r0;\n\
         COPY: mad.wide.u32 %rd1, %r2, 4, %rd0; ld.global.b32 %r3, [%rd1]; mad.lo.u32 %r4, %r2, 4, %r1;\n\
         st.shared.b32 [%r4], %r3; add.u32 %r2, %r2, 128; setp.lt.u32 %p0, %r2, {}; @%p0 bra COPY;\n\
         fence.proxy.async; bar.sync 0;\n\
         ld.param.u64 %rd1, [left]; mad.wide.u32 %rd1, %r0, 16, %rd1;\n",
        2 * REGION,
        2 * REGION / 4,
    );
    for i in 0..4 {
        body += &format!("ld.global.b32 %a{i}, [%rd1+{}];\n", 4 * i);
    }
    body += &format!(
        "ld.param.u64 %rd2, [sums]; mad.wide.u32 %rd2, %r0, {}, %rd2;\n",
        4 * sums
    );
    for i in 0..sums {
        body += &format!("ld.global.{kind} %d{i}, [%rd2+{}];\n", 4 * i);
    }
    let left = if case.a.is_some() {
        "%rd5".to_owned()
    } else {
        list("a", 4)
    };
    let mut immediates = String::new();
    let half = bits_of(a) == 16;
    if !matches!(d, Ty::S32) {
        immediates += &format!(", {}, {}", case.scales[0], case.scales[1]);
    }
    if half {
        if let Some(a) = case.a {
            immediates += &format!(", {}", u8::from(a.transposed));
        }
        immediates += &format!(", {}", u8::from(case.b.transposed));
    }
    let (before, after) = if case.suffix == ".and.popc" {
        ("", case.suffix)
    } else {
        (case.suffix, "")
    };
    body += &format!(
        "ld.param.u64 %rd5, [da]; ld.param.u64 %rd6, [db]; shr.u32 %r5, %r1, 4; cvt.u64.u32 %rd7, %r5;\n\
         add.u64 %rd5, %rd5, %rd7; add.u64 %rd6, %rd6, %rd7; setp.eq.u32 %p1, 1, {};\n\
         wgmma.fence.sync.aligned;\n\
         wgmma.mma_async.sync.aligned.m64n{n}k{k}{before}.{}.{}.{}{after} {}, {left}, %rd6, %p1{immediates};\n\
         wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n",
        u8::from(case.keep),
        ptx_name(d),
        ptx_name(a),
        ptx_name(b),
        list("d", sums),
    );
    for i in 0..sums {
        body += &format!("st.global.{kind} [%rd2+{}], %d{i};\n", 4 * i);
    }
    format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n\
         .visible .entry k(.param .u64 image, .param .u64 left, .param .u64 sums, .param .u64 da, .param .u64 db) {{\n{body}ret;\n}}"
    )
}

fn check(case: &Case) {
    let ([n, k], [d, a, b]) = (case.shape, case.types);
    let (va, vb, vc) = (
        random(a, 64 * k, 11),
        random(b, n * k, 12),
        random(d, 64 * n, 13),
    );
    let mut rig = Rig::new(&kernel(case));
    let mut image = case.a.map_or(vec![0; REGION / 4], |a_layout| {
        a_layout.image(a, &va, 64, k)
    });
    image.extend(case.b.image(b, &vb, n, k));
    // A warp's fragments of `a` are those of `mma`: registers of rows g, g + 8, then the other half
    // of `k`.
    let per = 32 / bits_of(a);
    let place: common::matrix::Formula = match per {
        1 => |g, t, i| a_place(1, g, t, i),
        2 => |g, t, i| a_place(2, g, t, i),
        4 => |g, t, i| a_place(4, g, t, i),
        _ => |g, t, i| a_place(32, g, t, i),
    };
    let left: Vec<u64> = (0..4)
        .flat_map(|w| fragment(a, &va[16 * w * k..16 * (w + 1) * k], k, place))
        .collect();
    let sums: Vec<u64> = (0..4)
        .flat_map(|w| fragment(d, &vc[16 * w * n..16 * (w + 1) * n], n, sum_place))
        .collect();
    let out = upload(&rig, d, &sums);
    let params = Params::default()
        .u64(rig.u32s(&image))
        .u64(upload(&rig, a, &left))
        .u64(out)
        .u64(case.a.map_or(0, Layout::descriptor))
        .u64(case.b.descriptor() + REGION as u64 / 16);
    rig.run("k", 1, 128, &params);
    let registers = download(&rig, d, out, registers_of(d, 64 * n) * 32);
    let found: Vec<i64> = registers
        .chunks_exact(registers.len() / 4)
        .flat_map(|warp| matrix_of(d, warp, 16 * n, n, sum_place))
        .collect();
    let by_row: Vec<i64> = (0..k * n).map(|i| vb[i % n * k + i / n]).collect();
    let sign = case.scales[0] * case.scales[1];
    let signed: Vec<i64> = va.iter().map(|x| x * sign).collect();
    let zero = vec![0; 64 * n];
    let expected = product(
        [64, n, k],
        &signed,
        &by_row,
        if case.keep { &vc } else { &zero },
        false,
    );
    assert!(
        found == expected,
        "{:?} {:?} {} a {:?} b {:?}",
        case.shape,
        case.types,
        case.suffix,
        case.a,
        case.b
    );
}

fn a_place(width: usize, g: usize, t: usize, i: usize) -> (usize, usize) {
    let (register, i) = (i / width, i % width);
    (
        g + 8 * (register % 2),
        4 * width * (register / 2) + t * width + i,
    )
}

fn half_case(n: usize, a: Option<Layout>, b: Layout) -> Case {
    Case {
        shape: [n, 16],
        types: [Ty::F32, Ty::F16, Ty::F16],
        suffix: "",
        a,
        b,
        keep: true,
        scales: [1, 1],
    }
}

const WIDTHS: [usize; 4] = [16, 32, 64, 128];

#[test]
fn every_swizzle_and_transposition() {
    for width in WIDTHS {
        for n in [8, 24, 64, 128] {
            check(&half_case(
                n,
                Some(Layout::of(width, false)),
                Layout::of(width, false),
            ));
        }
        for (a, b) in [(true, false), (false, true), (true, true)] {
            check(&half_case(
                64,
                Some(Layout::of(width, a)),
                Layout::of(width, b),
            ));
            check(&half_case(
                128,
                Some(Layout::of(width, a)),
                Layout::of(width, b),
            ));
        }
        check(&half_case(96, None, Layout::of(width, false)));
        check(&half_case(128, None, Layout::of(width, true)));
    }
    // One operand of each kind, and the widest product.
    check(&half_case(
        64,
        Some(Layout::of(128, false)),
        Layout::of(32, true),
    ));
    check(&half_case(
        256,
        Some(Layout::of(64, true)),
        Layout::of(32, false),
    ));
}

#[test]
fn offsets_of_ones_own() {
    // Rows first, then `k`: the offsets the other way round.
    let a = Layout {
        leading: 1024,
        stride: 128,
        ..Layout::of(16, false)
    };
    let b = Layout {
        leading: 2048,
        stride: 128,
        ..Layout::of(16, true)
    };
    check(&half_case(64, Some(a), b));
    // Further along the lines of a swizzled operand.
    for skip in [32, 64, 96] {
        let further = Layout {
            skip,
            ..Layout::of(128, false)
        };
        check(&half_case(64, Some(further), further));
    }
    let further = Layout {
        skip: 32,
        ..Layout::of(64, false)
    };
    check(&half_case(64, Some(further), Layout::of(128, true)));
    // Spread patterns.
    let spread = Layout {
        leading: 4096,
        stride: 2048,
        ..Layout::of(128, true)
    };
    check(&half_case(
        128,
        Some(Layout {
            stride: 2048,
            ..Layout::of(128, false)
        }),
        spread,
    ));
}

#[test]
fn patterns_that_start_elsewhere() {
    for base in [1, 4, 7] {
        let moved = Layout {
            base,
            ..Layout::of(128, false)
        };
        check(&half_case(64, Some(moved), moved));
    }
}

#[test]
fn every_type() {
    use Ty::{B1, Bf16, E4m3, E5m2, F16, F32, S8, S32, Tf32, U8};
    let cases = [
        ([32, 16], [F16, F16, F16], ""),
        ([32, 16], [F32, Bf16, Bf16], ""),
        ([40, 8], [F32, Tf32, Tf32], ""),
        ([64, 32], [F32, E4m3, E4m3], ""),
        ([64, 32], [F32, E5m2, E4m3], ""),
        ([16, 32], [F16, E4m3, E5m2], ""),
        ([32, 32], [S32, S8, S8], ""),
        ([32, 32], [S32, U8, S8], ".satfinite"),
        ([64, 32], [S32, S8, U8], ""),
        ([64, 256], [S32, B1, B1], ".and.popc"),
    ];
    for (shape, types, suffix) in cases {
        for (a, width) in [(Some(64), 128), (None, 16), (Some(16), 32)] {
            check(&Case {
                shape,
                types,
                suffix,
                a: a.map(|width| Layout::of(width, false)),
                b: Layout::of(width, false),
                keep: true,
                scales: [1, 1],
            });
        }
    }
}

#[test]
fn scales() {
    for scales in [[1, -1], [-1, 1], [-1, -1]] {
        for keep in [true, false] {
            check(&Case {
                keep,
                scales,
                ..half_case(16, Some(Layout::of(128, false)), Layout::of(64, true))
            });
        }
    }
    check(&Case {
        types: [Ty::F16, Ty::F16, Ty::F16],
        keep: false,
        scales: [-1, 1],
        ..half_case(16, None, Layout::of(16, false))
    });
    check(&Case {
        shape: [8, 32],
        types: [Ty::S32, Ty::S8, Ty::S8],
        keep: false,
        ..half_case(8, None, Layout::of(32, false))
    });
}

#[test]
fn several_warpgroups_under_any_schedule() {
    let case = half_case(16, Some(Layout::of(128, false)), Layout::of(128, false));
    let (va, vb) = (random(Ty::F16, 64 * 16, 1), random(Ty::F16, 16 * 16, 2));
    let mut image = Layout::of(128, false).image(Ty::F16, &va, 64, 16);
    image.extend(Layout::of(128, false).image(Ty::F16, &vb, 16, 16));
    let by_row: Vec<i64> = (0..256).map(|i| vb[i % 16 * 16 + i / 16]).collect();
    let expected = product([64, 16, 16], &va, &by_row, &[0; 1024], false);
    for seed in [None, Some(3), Some(4)] {
        let config = warpbpf_softgpu::Config {
            seed,
            ..common::config()
        };
        let mut rig = Rig::with(config, &kernel(&case));
        let out = rig.zeroes(8 * 256);
        let params = Params::default()
            .u64(rig.u32s(&image))
            .u64(rig.zeroes(8 * 128))
            .u64(out)
            .u64(Layout::of(128, false).descriptor())
            .u64(Layout::of(128, false).descriptor() + REGION as u64 / 16);
        rig.run("k", 1, 256, &params);
        let registers = download(&rig, Ty::F32, out, 8 * 256);
        for group in registers.chunks_exact(4 * 256) {
            let warps = group.chunks_exact(256);
            let found: Vec<i64> = warps
                .flat_map(|w| matrix_of(Ty::F32, w, 256, 16, sum_place))
                .collect();
            assert_eq!(found, expected, "seed {seed:?}");
        }
    }
}
