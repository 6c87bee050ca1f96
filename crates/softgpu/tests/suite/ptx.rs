//! One semantic at a time, in PTX written by hand, with exact results.

use crate::common::{Params, Rig, config, header};
use warpbpf_softgpu::{Config, Launch};

/// Runs `body` with one warp; it leaves lane values in `%r0` and `%r1`, which are returned as two
/// rows.
fn warp(body: &str) -> [Vec<u32>; 2] {
    warp_of(32, None, body)
}

fn warp_of(threads: u32, seed: Option<u64>, body: &str) -> [Vec<u32>; 2] {
    let text = header(&format!(
        ".visible .entry k(.param .u64 out) {{
            .reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .f32 %f<8>; .reg .b64 %rd<16>; .reg .f64 %d<8>;
            mov.u32 %r31, %laneid;
            {body}
            ld.param.u64 %rd15, [out];
            mov.u32 %r30, %tid.x;
            mad.wide.u32 %rd15, %r30, 8, %rd15;
            st.global.v2.u32 [%rd15], {{%r0, %r1}};
            ret;
        }}"
    ));
    let mut rig = Rig::with(Config { seed, ..config() }, &text);
    let out = rig.zeroes(threads as usize * 2);
    rig.run("k", 1, threads, &Params::default().u64(out));
    let all = rig.read_u32(out, threads as usize * 2);
    [
        all.iter().step_by(2).copied().collect(),
        all.iter().skip(1).step_by(2).copied().collect(),
    ]
}

fn row(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn shuffles_with_segments_and_predicates() {
    let [value, inside] =
        warp("shfl.sync.up.b32 %r0|%p1, %r31, 3, 0, -1; selp.u32 %r1, 1, 0, %p1;");
    assert_eq!(value, row(|i| if i < 3 { i } else { i - 3 }));
    assert_eq!(inside, row(|i| u32::from(i >= 3)));
    // Width 8: c = (32 - 8) << 8 | 7.
    let [value, inside] =
        warp("shfl.sync.down.b32 %r0|%p1, %r31, 2, 0x1807, -1; selp.u32 %r1, 1, 0, %p1;");
    assert_eq!(value, row(|i| if i % 8 < 6 { i + 2 } else { i }));
    assert_eq!(inside, row(|i| u32::from(i % 8 < 6)));
    let [value, _] = warp("shfl.sync.bfly.b32 %r0, %r31, 5, 31, -1; mov.u32 %r1, 0;");
    assert_eq!(value, row(|i| i ^ 5));
    let [value, _] = warp("shfl.sync.idx.b32 %r0, %r31, 6, 0x181f, -1; mov.u32 %r1, 0;");
    assert_eq!(value, row(|i| (i & 24) + 6));
}

#[test]
fn votes_matches_and_reductions() {
    let [ballot, any] = warp(
        "setp.lt.u32 %p1, %r31, 5; vote.sync.ballot.b32 %r0, !%p1, -1;
         vote.sync.any.pred %p2, %p1, -1; vote.sync.all.pred %p3, %p1, -1; vote.sync.uni.pred %p4, %p1, -1;
         selp.u32 %r1, 1, 0, %p2; @%p3 add.u32 %r1, %r1, 2; @%p4 add.u32 %r1, %r1, 4;",
    );
    assert_eq!(ballot, row(|_| !31));
    assert_eq!(any, row(|_| 1));
    let [group, all] = warp(
        "shr.u32 %r2, %r31, 3; match.any.sync.b32 %r0, %r2, -1;
         mov.u64 %rd1, 7; match.all.sync.b64 %r1|%p1, %rd1, -1; @!%p1 mov.u32 %r1, 99;",
    );
    assert_eq!(group, row(|i| 0xff << (i / 8 * 8)));
    assert_eq!(all, row(|_| u32::MAX));
    let [sum, least] = warp(
        "redux.sync.add.u32 %r0, %r31, -1; sub.s32 %r2, 3, %r31; redux.sync.min.s32 %r1, %r2, -1;",
    );
    assert_eq!(sum, row(|_| 496));
    assert_eq!(least, row(|_| -28i32 as u32));
    let [leader, elected] = warp(
        "setp.gt.u32 %p1, %r31, 9; mov.u32 %r0, 0; mov.u32 %r1, 0;
         @%p1 elect.sync %r0|%p2, 0xfffffc00; @%p1 selp.u32 %r1, 1, 0, %p2;",
    );
    assert_eq!(leader, row(|i| if i > 9 { 10 } else { 0 }));
    assert_eq!(elected, row(|i| u32::from(i == 10)));
}

#[test]
fn diverged_lanes_meet_at_synchronous_instructions() {
    // Halves come to one shuffle by different ways and different lengths; under any schedule.
    let body = "setp.lt.u32 %p1, %r31, 16; mov.u32 %r2, 100; @%p1 bra MEET;
                mov.u32 %r3, 0;
                LOOP: add.u32 %r3, %r3, 1; setp.lt.u32 %p2, %r3, %r31; @%p2 bra LOOP;
                mov.u32 %r2, 200;
                MEET: add.u32 %r2, %r2, %r31;
                shfl.sync.bfly.b32 %r0, %r2, 16, 31, -1;
                activemask.b32 %r1;";
    for seed in [None, Some(1), Some(2), Some(3), Some(4)] {
        let [value, mask] = warp_of(32, seed, body);
        assert_eq!(
            value,
            row(|i| if i < 16 { 200 + i + 16 } else { 100 + i - 16 }),
            "seed {seed:?}"
        );
        if seed.is_none() {
            assert_eq!(mask, row(|_| u32::MAX), "lanes reconverge");
        }
    }
}

#[test]
fn warp_barrier_from_different_places() {
    let body = "setp.lt.u32 %p1, %r31, 16; mov.u32 %r0, 0; mov.u32 %r1, 0; @%p1 bra LOW;
                bar.warp.sync -1; mov.u32 %r0, 2; bra DONE;
                LOW: bar.warp.sync -1; mov.u32 %r0, 1;
                DONE: bar.warp.sync 0xffffffff;";
    for seed in [None, Some(9)] {
        assert_eq!(
            warp_of(32, seed, body)[0],
            row(|i| if i < 16 { 1 } else { 2 })
        );
    }
}

#[test]
fn partial_warps_and_lanes_that_exited() {
    let [sum, lanes] = warp_of(
        20,
        None,
        "setp.ge.u32 %p1, %r31, 16; @!%p1 bra ON; mov.u32 %r0, 7; mov.u32 %r1, 9; bra ON;
         ON: redux.sync.add.u32 %r0, %r31, -1; activemask.b32 %r1;",
    );
    assert_eq!((sum, lanes), (vec![190; 20], vec![0xf_ffff; 20]));
    let text = header(
        ".visible .entry k(.param .u64 out) { .reg .pred p; .reg .b32 r<4>; .reg .b64 d<2>;
            mov.u32 r0, %tid.x; setp.gt.u32 p, r0, 40; @p exit;
            bar.sync 0; redux.sync.add.u32 r1, 1, -1;
            ld.param.u64 d0, [out]; mad.wide.u32 d0, r0, 4, d0; st.global.u32 [d0], r1; ret; }",
    );
    let mut rig = Rig::new(&text);
    let out = rig.zeroes(64);
    rig.run("k", 1, 64, &Params::default().u64(out));
    let expected: Vec<u32> = (0..64)
        .map(|i| {
            if i < 32 {
                32
            } else if i <= 40 {
                9
            } else {
                0
            }
        })
        .collect();
    assert_eq!(rig.read_u32(out, 64), expected);
}

#[test]
fn integer_and_bit_operations_reach_eval() {
    let [a, b] = warp(
        "mad.lo.s32 %r0, %r31, -3, 7; shf.r.wrap.b32 %r1, %r31, 1, 1;
         prmt.b32 %r2, %r31, 0x04030201, 0x7654; lop3.b32 %r2, %r2, %r31, 0xff, 0x96; add.u32 %r0, %r0, %r2;",
    );
    let lop = |i: u32| 0x0403_0201 ^ i ^ 0xff;
    assert_eq!(
        a,
        row(|i| i
            .wrapping_mul(-3i32 as u32)
            .wrapping_add(7)
            .wrapping_add(lop(i)))
    );
    assert_eq!(b, row(|i| 1 << 31 | i >> 1));
    // A 64-bit sum in halves by way of the carry flag.
    let [low, high] = warp("add.cc.u32 %r0, %r31, 0xfffffff0; addc.u32 %r1, 5, 0;");
    assert_eq!(low, row(|i| i.wrapping_add(0xffff_fff0)));
    assert_eq!(high, row(|i| 5 + u32::from(i >= 16)));
    // Sign extension by loads and conversions into wider registers.
    let [a, b] = warp(
        "{ .local .align 4 .b8 buf[8]; .reg .b16 t; sub.u32 %r2, 5, %r31; st.local.u8 [buf+1], %r2;
           ld.local.s8 %r0, [buf+1]; ld.local.s8 t, [buf+1]; cvt.s32.s16 %r1, t; }",
    );
    assert_eq!(a, row(|i| 5u32.wrapping_sub(i)));
    assert_eq!(b, row(|i| 5u32.wrapping_sub(i)));
}

#[test]
fn vectors_are_packed_and_unpacked() {
    let [a, b] = warp(
        "mov.b64 %rd1, {%r31, 17}; mov.b64 {%r2, %r0}, %rd1; mov.b32 {%h1, %h2}, %r31; mov.b32 %r1, {%h2, %h1};
         add.u32 %r0, %r0, %r2;",
    );
    assert_eq!(a, row(|i| i + 17));
    assert_eq!(b, row(|i| i << 16));
}

#[test]
fn branch_tables_and_scoped_labels() {
    let [a, b] = warp(
        "and.b32 %r2, %r31, 3; mov.u32 %r1, 0;
         TS: .branchtargets A, B, C, D;
         brx.idx %r2, TS;
         A: mov.u32 %r0, 10; bra END;
         B: mov.u32 %r0, 20; bra END;
         C: mov.u32 %r0, 30; bra END;
         D: mov.u32 %r0, 40;
         END:
         { .reg .pred q; L: add.u32 %r1, %r1, 1; setp.lt.u32 q, %r1, 3; @q bra L; }
         { .reg .pred q; L: add.u32 %r1, %r1, 10; setp.lt.u32 q, %r1, 40; @q bra L; }",
    );
    assert_eq!(a, row(|i| (i & 3) * 10 + 10));
    assert_eq!(b, row(|_| 43));
}

#[test]
fn special_registers() {
    let text = header(
        ".visible .entry k(.param .u64 out) { .reg .b32 r<16>; .reg .b64 d<4>;
            mov.u32 r0, %ctaid.y; mov.u32 r1, %nctaid.y; mov.u32 r2, %tid.y; mov.u32 r3, %ntid.x; mov.u32 r4, %tid.x;
            mad.lo.u32 r5, r2, r3, r4; mov.u32 r6, %warpid; mov.u32 r7, %nwarpid; mov.u32 r8, %lanemask_lt;
            popc.b32 r8, r8; mov.u32 r9, %smid; mov.u32 r10, %nsmid; mov.u64 d1, %gridid; cvt.u32.u64 r11, d1;
            ld.param.u64 d0, [out];
            mad.lo.u32 r5, r0, 48, r5; mul.lo.u32 r5, r5, 32; cvt.u64.u32 d2, r5; add.u64 d0, d0, d2;
            st.global.v4.u32 [d0], {r1, r6, r7, r8}; st.global.v4.u32 [d0+16], {r9, r10, r11, WARP_SZ}; ret; }",
    );
    let rig = Rig::new(&text);
    let out = rig.zeroes(3 * 48 * 8);
    let kernel = rig.module.kernel("k").expect("k");
    let launch = Launch {
        kernel: &kernel,
        grid: [1, 3, 1],
        block: [12, 4, 1],
        cluster: [1, 1, 1],
        dynamic_shared: 0,
        params: &out.to_le_bytes(),
        grid_id: 42,
        stdout: None,
    };
    rig.gpu.launch(launch).expect("runs");
    for (i, found) in rig
        .read_u32(out, 3 * 48 * 8)
        .as_chunks::<8>()
        .0
        .iter()
        .enumerate()
    {
        let thread = i as u32 % 48;
        assert_eq!(
            *found,
            [3, thread / 32, 2, thread % 32, i as u32 / 48, 4, 42, 32]
        );
    }
}

#[test]
fn windows_and_generic_addresses() {
    let [kinds, values] = warp(
        "{ .shared .align 4 .b32 s[32]; .local .align 4 .b32 l[2]; .reg .b32 t;
           mov.u64 %rd1, s; cvta.shared.u64 %rd2, %rd1; mov.u64 %rd3, l; cvta.local.u64 %rd4, %rd3;
           mad.wide.u32 %rd2, %r31, 4, %rd2; st.u32 [%rd2], %r31; st.u32 [%rd4+4], 500;
           isspacep.shared %p1, %rd2; isspacep.local %p2, %rd4; isspacep.global %p3, %rd4; isspacep.shared %p4, %rd4;
           selp.u32 %r0, 1, 0, %p1; @%p2 add.u32 %r0, %r0, 2; @%p3 add.u32 %r0, %r0, 4; @%p4 add.u32 %r0, %r0, 8;
           bar.warp.sync -1;
           xor.b32 t, %r31, 1; shl.b32 t, t, 2; mov.u32 %r5, s; add.u32 t, t, %r5; ld.shared.u32 %r1, [t];
           cvta.to.local.u64 %rd5, %rd4; ld.local.u32 t, [%rd5+4]; add.u32 %r1, %r1, t; }",
    );
    assert_eq!(kinds, row(|_| 3));
    assert_eq!(values, row(|i| (i ^ 1) + 500));
}

#[test]
fn atomics_of_every_operation() {
    let text = header(
        ".visible .entry k(.param .u64 p) { .reg .b32 r<8>; .reg .b64 d<8>; .reg .f32 f; .reg .f64 g; .reg .b16 h;
            ld.param.u64 d0, [p]; mov.u32 r0, %tid.x; cvt.u64.u32 d1, r0;
            red.relaxed.gpu.global.add.u32 [d0], 2;
            red.global.min.s32 [d0+4], r0; red.global.max.u32 [d0+8], r0;
            red.global.and.b32 [d0+12], 0xfe; red.global.or.b32 [d0+16], r0; red.global.xor.b32 [d0+20], r0;
            atom.global.inc.u32 r1, [d0+24], 9; atom.global.dec.u32 r1, [d0+28], 9;
            red.global.add.u64 [d0+32], d1; atom.global.add.noftz.f16x2 r2, [d0+40], 0x3c004000;
            red.global.add.f32 [d0+44], 0f3F000000; red.global.add.f64 [d0+48], 0d3FF8000000000000;
            atom.acq_rel.sys.global.cas.b32 r3, [d0+56], 5, 6; atom.global.exch.b32 r4, [d0+60], 77;
            atom.global.cas.b16 h, [d0+64], 1, 2;
            red.global.add.v2.f32 [d0+72], {0f3F800000, 0f40000000};
            ret; }",
    );
    for seed in [None, Some(11)] {
        let mut rig = Rig::with(Config { seed, ..config() }, &text);
        let p = rig.u32s(&[
            0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 1, 1, 0, 0, 0,
        ]);
        rig.run("k", 2, 32, &Params::default().u64(p));
        let got = rig.read_u32(p, 20);
        assert_eq!(got[..8], [128, 0, 31, 0xfe, 31, 0, 4, 6]);
        assert_eq!(rig.read_u64(p + 32, 1), [992]);
        assert_eq!(
            got[10],
            u32::from(half::f16::from_f32(64.0).to_bits()) << 16
                | u32::from(half::f16::from_f32(128.0).to_bits())
        );
        assert_eq!(rig.read_f32(p + 44, 1), [32.0]);
        assert_eq!(rig.read_f64(p + 48, 1), [96.0]);
        assert_eq!(got[14..17], [6, 77, 2]);
        assert_eq!(rig.read_f32(p + 72, 2), [64.0, 128.0]);
    }
}

/// Pairs of words change together, under 64-bit atomics on a half as well, in global and in shared
/// memory.
#[test]
fn atomics_of_128_bits() {
    let text = header(
        ".visible .entry k(.param .u64 p) { .reg .pred p; .reg .b32 r; .reg .b64 d<8>; .reg .b128 q<4>;
            .shared .align 16 .b8 s[48];
            ld.param.u64 d0, [p];
            red.relaxed.gpu.global.add.u64 [d0+8], 1000000;
            ld.global.v2.u64 {d1, d2}, [d0];
            AGAIN: mov.b128 q0, {d1, d2};
            add.s64 d3, d1, 1; add.s64 d4, d2, 3; mov.b128 q1, {d3, d4};
            atom.relaxed.gpu.global.cas.b128 q2, [d0], q0, q1;
            mov.b128 {d3, d4}, q2;
            setp.ne.s64 p, d3, d1; mov.b64 d1, d3; @p mov.b64 d2, d4; @p bra AGAIN;
            setp.ne.s64 p, d4, d2; mov.b64 d2, d4; @p bra AGAIN;
            mov.u32 r, %tid.x; setp.ne.u32 p, r, 0; @p ret;
            mov.b64 d1, 5; mov.b64 d2, 7; mov.b128 q0, {d1, d2};
            st.shared.b128 [s+16], q0;
            mov.b128 q1, {d2, d1};
            atom.shared.cas.b128 q2, [s+16], q1, q0;
            atom.shared.exch.b128 q3, [s+16], q1;
            mov.b128 {d3, d4}, q2; st.global.v2.u64 [d0+16], {d3, d4};
            mov.b128 {d3, d4}, q3; st.global.v2.u64 [d0+32], {d3, d4};
            ld.shared.v2.u64 {d3, d4}, [s+16]; st.global.v2.u64 [d0+48], {d3, d4};
            atom.global.exch.b128 q3, [d0+64], q0;
            ret; }",
    );
    for seed in [None, Some(11)] {
        let mut rig = Rig::with(Config { seed, ..config() }, &text);
        let p = rig.zeroes(20);
        rig.run("k", 4, 64, &Params::default().u64(p));
        assert_eq!(
            rig.read_u64(p, 10),
            [256, 256 * 1_000_003, 5, 7, 5, 7, 7, 5, 5, 7]
        );
    }
}

#[test]
fn block_barriers_with_counts_and_reductions() {
    // Producer warps arrive at barrier 1, consumer warps wait there; then a reduction over the
    // block.
    let text = header(
        ".visible .entry k(.param .u64 out) { .reg .pred p<4>; .reg .b32 r<12>; .reg .b64 d<2>;
            .shared .align 4 .b32 box[64];
            mov.u32 r0, %tid.x; setp.lt.u32 p1, r0, 64; shl.b32 r1, r0, 2; mov.u32 r2, box; add.u32 r3, r1, r2;
            @!p1 bra CONSUME;
            add.u32 r4, r0, 1000; st.shared.u32 [r3], r4; bar.arrive 1, 128; mov.u32 r5, 0; bra ALL;
            CONSUME: bar.sync 1, 128; ld.shared.u32 r5, [r3+-256];
            ALL: setp.eq.u32 p2, r5, 0;
            bar.red.popc.u32 r6, 0, p2; bar.red.or.pred p3, 0, !p2; selp.u32 r7, 1000, 0, p3; add.u32 r6, r6, r7;
            ld.param.u64 d0, [out]; mad.wide.u32 d0, r0, 8, d0; st.global.v2.u32 [d0], {r5, r6}; ret; }",
    );
    for seed in [None, Some(21), Some(22)] {
        let mut rig = Rig::with(Config { seed, ..config() }, &text);
        let out = rig.zeroes(256);
        rig.run("k", 1, 128, &Params::default().u64(out));
        let expected: Vec<u32> = (0..128)
            .flat_map(|i| [if i < 64 { 0 } else { i - 64 + 1000 }, 64 + 1000])
            .collect();
        assert_eq!(rig.read_u32(out, 256), expected, "seed {seed:?}");
    }
}

#[test]
fn spins_between_lanes_of_a_warp_finish() {
    // Every lane takes one lock in a loop that only ends when the holder, of the same warp, lets
    // go.
    let lock = header(
        ".global .u32 lock; .global .u32 sum;
         .visible .entry k() { .reg .pred p; .reg .b32 r<4>;
            AGAIN: atom.global.cas.b32 r0, [lock], 0, 1; setp.ne.u32 p, r0, 0; @p bra AGAIN;
            ld.global.u32 r1, [sum]; add.u32 r1, r1, 1; st.global.u32 [sum], r1; membar.gl;
            atom.global.exch.b32 r2, [lock], 0; ret; }",
    );
    for (threads, seed) in [(1, None), (2, None), (1, Some(5))] {
        let mut rig = Rig::with(
            Config {
                threads,
                seed,
                ..config()
            },
            &lock,
        );
        rig.run("k", 3, 64, &Params::default());
        let (sum, _) = rig.module.global("sum").expect("sum");
        assert_eq!(
            rig.read_u32(sum, 1),
            [192],
            "{threads} threads, seed {seed:?}"
        );
    }
    // Lane 0 waits for lane 31, which is behind it in the text.
    let [value, _] = warp(
        "{ .shared .align 4 .b32 flag; st.shared.u32 [flag], 0; bar.warp.sync -1; mov.u32 %r1, 0;
           setp.eq.u32 %p1, %r31, 31; @%p1 bra SET;
           WAIT: ld.volatile.shared.u32 %r0, [flag]; setp.eq.u32 %p2, %r0, 0; @%p2 bra WAIT; bra OUT;
           SET: mov.u32 %r0, 4; st.volatile.shared.u32 [flag], 4;
           OUT: }",
    );
    assert_eq!(value, row(|_| 4));
}

#[test]
fn spins_between_blocks_finish() {
    // Block b waits for block b + 1, so none but the last can finish first.
    let text = header(
        ".visible .entry k(.param .u64 flags) { .reg .pred p<3>; .reg .b32 r<4>; .reg .b64 d<3>;
            ld.param.u64 d0, [flags]; mov.u32 r0, %ctaid.x; mad.wide.u32 d1, r0, 4, d0;
            mov.u32 r1, %nctaid.x; add.u32 r2, r0, 1; setp.eq.u32 p0, r1, r2; @p0 bra MINE;
            WAIT: ld.acquire.gpu.global.u32 r3, [d1+4]; setp.eq.u32 p1, r3, 0; @p1 nanosleep.u32 20; @p1 bra WAIT;
            MINE: st.release.gpu.global.u32 [d1], 1; ret; }",
    );
    for (threads, seed) in [(1, None), (2, None), (1, Some(4))] {
        let mut rig = Rig::with(
            Config {
                threads,
                seed,
                ..config()
            },
            &text,
        );
        let flags = rig.zeroes(65);
        rig.run("k", 64, 32, &Params::default().u64(flags));
        assert_eq!(
            rig.read_u32(flags, 65),
            [vec![1; 64], vec![0]].concat(),
            "{threads} threads, seed {seed:?}"
        );
    }
}

#[test]
fn calls_with_register_parameters_and_indirect_targets() {
    let text = header(
        ".func (.reg .b32 d) add1(.reg .b32 a) { add.u32 d, a, 1; ret; }
         .func (.param .b32 d) twice(.param .b32 a) { .reg .b32 r; ld.param.b32 r, [a]; shl.b32 r, r, 1; st.param.b32 [d], r; ret; }
         .func (.param .b32 d) minus(.param .b32 a) { .reg .b32 r; ld.param.b32 r, [a]; neg.s32 r, r; st.param.b32 [d], r; ret; }
         .func leave() { exit; }
         .global .u64 both[2] = {twice, minus};
         .visible .entry k(.param .u64 out) { .reg .pred p; .reg .b32 r<8>; .reg .b64 d<4>; .param .b32 x; .param .b32 y;
            mov.u32 r0, %tid.x; call (r1), add1, (r0);
            and.b32 r2, r0, 1; mul.wide.u32 d0, r2, 8; mov.u64 d1, both; add.u64 d1, d1, d0; ld.global.u64 d2, [d1];
            st.param.b32 [x], r1;
            proto: .callprototype (.param .b32 _) _ (.param .b32 _);
            call (y), d2, (x), proto; ld.param.b32 r3, [y];
            ld.param.u64 d3, [out]; mad.wide.u32 d3, r0, 4, d3; st.global.u32 [d3], r3;
            setp.gt.u32 p, r0, 9; @p call leave; st.global.u32 [d3], 7; ret; }",
    );
    for seed in [None, Some(2)] {
        let mut rig = Rig::with(Config { seed, ..config() }, &text);
        let out = rig.zeroes(32);
        rig.run("k", 1, 32, &Params::default().u64(out));
        let expected = row(|i| match i {
            0..=9 => 7,
            _ if i & 1 == 0 => (i + 1) * 2,
            _ => (i + 1).wrapping_neg(),
        });
        assert_eq!(rig.read_u32(out, 32), expected, "seed {seed:?}");
    }
}

#[test]
fn mbarriers_count_arrivals_and_bytes() {
    let [passed, early] = warp(
        "{ .shared .align 8 .b64 bar; .reg .b64 state;
           setp.eq.u32 %p1, %r31, 0; @%p1 mbarrier.init.shared.b64 [bar], 32; bar.warp.sync -1;
           @%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 16; bar.warp.sync -1;
           mbarrier.arrive.shared.b64 state, [bar]; bar.warp.sync -1;
           mbarrier.test_wait.shared.b64 %p2, [bar], state; selp.u32 %r1, 1, 0, %p2; bar.warp.sync -1;
           @%p1 mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [bar], 16; bar.warp.sync -1;
           W: mbarrier.try_wait.parity.shared.b64 %p3, [bar], 0; @!%p3 bra W;
           selp.u32 %r0, 1, 0, %p3; }",
    );
    assert_eq!((early, passed), (row(|_| 0), row(|_| 1)));
}

#[test]
fn threads_that_never_existed_count_at_counted_barriers() {
    let text = header(
        ".visible .entry k(.param .u64 out) { .reg .pred p<4>; .reg .b32 r<4>; .reg .b64 d<2>;
            mov.u32 r0, %tid.x; and.b32 r1, r0, 1; setp.eq.u32 p0, r1, 0; setp.lt.u32 p1, r0, 100;
            @p0 bar.red.and.pred p2, 3, 64, p1; @!p0 bar.red.and.pred p2, 3, 64, p1;
            selp.u32 r2, 1, 0, p2;
            ld.param.u64 d0, [out]; mad.wide.u32 d0, r0, 4, d0; st.global.u32 [d0], r2; ret; }",
    );
    for seed in [None, Some(1), Some(2)] {
        let mut rig = Rig::with(Config { seed, ..config() }, &text);
        let out = rig.zeroes(48);
        rig.run("k", 1, 48, &Params::default().u64(out));
        assert_eq!(rig.read_u32(out, 48), [1; 48], "seed {seed:?}");
    }
}

/// A warp may be split anywhere, so one part of it waits for a phase of the cluster's barrier that
/// another part has left.
#[test]
fn cluster_barriers_of_split_warps() {
    let ptx = header(
        ".visible .entry k(.param .u64 out) .reqnctapercluster 2, 1, 1
{
    .reg .b32 %r<8>; .reg .b64 %d<4>; .reg .pred %p;
    ld.param.u64 %d0, [out];
    mov.u32 %r0, 0;
again:
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    add.u32 %r0, %r0, 1;
    setp.lt.u32 %p, %r0, 5;
    @%p bra again;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %tid.x;
    mad.lo.u32 %r3, %r1, 64, %r2;
    mul.wide.u32 %d1, %r3, 4;
    add.u64 %d0, %d0, %d1;
    st.global.u32 [%d0], %r0;
    ret;
}
",
    );
    for seed in 0..24 {
        let mut rig = Rig::with(
            Config {
                seed: Some(seed),
                ..config()
            },
            &ptx,
        );
        rig.cluster = [2, 1, 1];
        let out = rig.zeroes(256);
        rig.run("k", 4, 64, &Params::default().u64(out));
        assert_eq!(rig.read_u32(out, 256), [5; 256], "seed {seed}");
    }
}

#[test]
fn the_system_has_the_start_of_shared_memory() {
    // The kernel has 64 bytes of its own and 128 dynamic ones; all of what is reserved is written.
    let text = header(
        ".extern .shared .align 16 .b8 more[];
         .visible .entry k(.param .u64 out) {
            .reg .pred p; .reg .b32 r<10>; .reg .b64 a, b; .shared .align 4 .b32 own[16];
            ld.param.u64 a, [out];
            st.shared.u32 [own], 7; st.shared.u32 [own+60], 8; st.shared.u32 [more], 9;
            mov.u32 r0, %reserved_smem_offset_begin; mov.u32 r1, %reserved_smem_offset_end; mov.u32 r2, r0;
            NEXT: st.shared.u32 [r2], -1; add.u32 r2, r2, 4; setp.lt.u32 p, r2, r1; @p bra NEXT;
            ld.shared.u32 r2, [own]; ld.shared.u32 r3, [own+60]; ld.shared.u32 r4, [more];
            st.global.v4.u32 [a], {r0, r1, r2, r3}; st.global.u32 [a+16], r4;
            mov.u32 r0, %reserved_smem_offset_0; mov.u32 r1, %reserved_smem_offset_1; mov.u32 r2, %reserved_smem_offset_cap;
            mov.u32 r3, %total_smem_size; mov.u32 r4, %aggr_smem_size; mov.u32 r5, own; mov.u32 r6, more;
            mov.u32 r7, %dynamic_smem_size;
            st.global.v2.u32 [a+24], {r0, r1}; st.global.v4.u32 [a+32], {r2, r3, r4, r5}; st.global.v2.u32 [a+48], {r6, r7};
            cvta.shared.u64 b, 0; isspacep.shared p, b; selp.u32 r0, 1, 0, p; st.global.u32 [a+56], r0;
            ret; }",
    );
    let mut rig = Rig::new(&text);
    rig.dynamic_shared = 128;
    let out = rig.zeroes(16);
    rig.run("k", 1, 1, &Params::default().u64(out));
    let found = rig.read_u32(out, 16);
    assert_eq!(found[..5], [0, 1024, 7, 8, 9]);
    let (first, second) = (found[6], found[7]);
    assert!(first < 1024 && second + 288 <= 1024, "{first} {second}");
    assert_eq!(found[8..15], [1024, 192, 1216, 1024, 1088, 128, 1]);
    let info = rig
        .module
        .kernel_info("k")
        .expect("there")
        .expect("decodes");
    assert_eq!(info.static_shared, 64);
}
