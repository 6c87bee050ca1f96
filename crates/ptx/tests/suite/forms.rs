//! Every form of a memory or barrier instruction, as an assembler takes it: what we say of it, and
//! that ptxas knows it.

use std::fmt::Write as _;

use crate::tools::ptxas;
use warpbpf_ptx::access::{Access, Bytes, access, access_typed, row_lanes};
use warpbpf_ptx::ast::{Instruction, Operand, StatementKind};
use warpbpf_ptx::sync::{BarrierSite, barrier};
use warpbpf_ptx::{index, parse_body};

/// A kernel with registers and variables of every kind, around `body`.
fn kernel(target: &str, body: &str) -> String {
    format!(
        ".version 9.0\n.target {target}\n.address_size 64\n.global .align 32 .b8 gl[256];\n.const .align 32 .b8 cn[256];\n\
         .global .texref tx;\n.global .surfref sf;\n\
         .func (.param .b32 fr) f(.param .align 16 .b8 fp[32])\n{{\n.reg .b32 %r;\nld.param::func.b32 %r, [fp+4];\n\
         st.param::func.b32 [fr], %r;\nret;\n}}\n\
         .visible .entry k(.param .align 64 .b8 kp[128])\n{{\n.reg .b16 %h<20>;\n.reg .b32 %r<50>;\n.reg .b64 %rd<50>;\n\
         .reg .f32 %f<50>;\n.reg .f64 %fd<20>;\n.reg .b128 %q<4>;\n.reg .pred %p<4>;\n.reg .b8 %b<20>;\n\
         .shared .align 128 .b8 sh[4096];\n.local .align 32 .b8 lc[256];\n{body}\nret;\n}}\n"
    )
}

fn with_instruction<T>(text: &str, look: impl FnOnce(&Instruction<'_>) -> T) -> T {
    let module = kernel("sm_90", &format!("//probe\n{text}"));
    let module = index(&module).unwrap_or_else(|error| panic!("{text}: {error}"));
    let body = parse_body(&module, module.function("k").unwrap())
        .unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut rows = body.iter().filter_map(|statement| match &statement.kind {
        StatementKind::Instruction(instruction) => Some(instruction),
        _ => None,
    });
    look(rows.next().unwrap())
}

/// `kind space cache bytes @address [>target space] [v values] [r result] [e element]`
fn shown(access: Option<Access>) -> String {
    let Some(a) = access else {
        return "none".to_owned();
    };
    let mut text = format!("{} {} {}", a.kind.word(), a.space.word(), a.cache.word());
    match a.bytes {
        Bytes::Fixed(bytes) => write!(text, " {bytes}").unwrap(),
        Bytes::Operand(at) => write!(text, " operand{at}").unwrap(),
        Bytes::Box(map, shape) => write!(text, " {shape:?}@{map}").unwrap(),
        Bytes::Unknown => text.push_str(" ?"),
    }
    write!(text, " @{}", a.address).unwrap();
    if let Some((at, space)) = a.target {
        write!(text, " >{at} {}", space.word()).unwrap();
    }
    if !a.values.is_empty() {
        write!(text, " v{:?}", a.values).unwrap();
    }
    if let Some(at) = a.result {
        write!(text, " r{at}").unwrap();
    }
    if a.element != 0 {
        write!(text, " e{}", a.element).unwrap();
    }
    text
}

fn shown_barrier(site: Option<BarrierSite>) -> String {
    let Some(site) = site else {
        return "none".to_owned();
    };
    let mut text = site.kind.word().to_owned();
    if let Some(at) = site.id {
        write!(text, " id{at}").unwrap();
    }
    if let Some(at) = site.threads {
        write!(text, " threads{at}").unwrap();
    }
    if let Some((at, space)) = site.address {
        write!(text, " @{at} {}", space.word()).unwrap();
    }
    text
}

/// Targets whose ptxas takes the rows behind them; `-` for forms that this ptxas is too old for.
type Table = &'static [(&'static str, &'static [(&'static str, &'static str)])];

const ACCESSES: Table = &[
    (
        "sm_90a",
        &[
            // ld
            ("ld.param.u64 %rd1, [kp];", "load param default 8 @1 r0 e8"),
            (
                "ld.param::entry.v2.b32 {%r1, %r2}, [kp+8];",
                "load param default 8 @1 r0 e4",
            ),
            ("ld.u32 %r1, [%rd1];", "load generic default 4 @1 r0 e4"),
            ("ld.b64 %rd1, [%rd2+-8];", "load generic default 8 @1 r0 e8"),
            (
                "ld.global.u8 %r1, [%rd1];",
                "load global default 1 @1 r0 e1",
            ),
            ("ld.global.u8 %r1, gl[1];", "load global default 1 @1 r0 e1"),
            (
                "st.global.u8 gl[2], %r1;",
                "store global default 1 @0 v[1] e1",
            ),
            (
                "@%p1 ld.global.f32 %f1, [gl+4];",
                "load global default 4 @1 r0 e4",
            ),
            (
                "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];",
                "load global default 16 @1 r0 e4",
            ),
            (
                "ld.global.v2.f64 {%fd1, %fd2}, [%rd1];",
                "load global default 16 @1 r0 e8",
            ),
            (
                "ld.global.nc.v2.u16 {%h1, %h2}, [%rd1];",
                "load global nc 4 @1 r0 e2",
            ),
            (
                "ld.global.ca.nc.f32 %f1, [%rd1];",
                "load global nc 4 @1 r0 e4",
            ),
            (
                "ld.global.nc.L1::no_allocate.L2::256B.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];",
                "load global nc 16 @1 r0 e4",
            ),
            (
                "ld.global.L1::evict_last.L2::cache_hint.L2::128B.b32 %r1, [%rd1], %rd2;",
                "load global default 4 @1 r0 e4",
            ),
            (
                "ld.global.b128 %q1, [%rd1];",
                "load global default 16 @1 r0 e16",
            ),
            ("ld.global.ca.b32 %r1, [%rd1];", "load global ca 4 @1 r0 e4"),
            ("ld.global.cg.b32 %r1, [%rd1];", "load global cg 4 @1 r0 e4"),
            ("ld.global.cs.b32 %r1, [%rd1];", "load global cs 4 @1 r0 e4"),
            ("ld.global.lu.b32 %r1, [%rd1];", "load global lu 4 @1 r0 e4"),
            ("ld.global.cv.b32 %r1, [%rd1];", "load global cv 4 @1 r0 e4"),
            (
                "ld.weak.global.b32 %r1, [%rd1];",
                "load global default 4 @1 r0 e4",
            ),
            (
                "ld.volatile.global.b32 %r1, [%rd1];",
                "load global volatile 4 @1 r0 e4",
            ),
            (
                "ld.volatile.shared.s8 %r1, [sh+1];",
                "load shared volatile 1 @1 r0 e1",
            ),
            (
                "ld.relaxed.gpu.global.b32 %r1, [%rd1];",
                "load global relaxed 4 @1 r0 e4",
            ),
            (
                "ld.acquire.sys.b64 %rd1, [%rd2];",
                "load generic acquire 8 @1 r0 e8",
            ),
            (
                "ld.acquire.cluster.shared::cluster.b32 %r1, [%r2];",
                "load cluster acquire 4 @1 r0 e4",
            ),
            (
                "ld.mmio.relaxed.sys.global.b32 %r1, [%rd1];",
                "load global mmio 4 @1 r0 e4",
            ),
            (
                "ld.global.b32 %r1, [%rd1].unified;",
                "load global default 4 @1 r0 e4",
            ),
            (
                "ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [sh];",
                "load shared default 16 @1 r0 e4",
            ),
            (
                "ld.shared::cta.b32 %r1, [sh];",
                "load shared default 4 @1 r0 e4",
            ),
            (
                "ld.shared::cluster.b32 %r1, [%r2];",
                "load cluster default 4 @1 r0 e4",
            ),
            (
                "ld.local.v4.b8 {%h1, %h2, %h3, %h4}, [lc];",
                "load local default 4 @1 r0 e1",
            ),
            (
                "ld.const.f64 %fd1, [cn+8];",
                "load const default 8 @1 r0 e8",
            ),
            (
                "ldu.global.v2.f32 {%f1, %f2}, [%rd1];",
                "load global default 8 @1 r0 e4",
            ),
            ("ldu.b32 %r1, [%rd1];", "load generic default 4 @1 r0 e4"),
            ("ld.local.b32 %r1, [16];", "load local default 4 @1 r0 e4"),
            // st
            ("st.u8 [%rd1], %r1;", "store generic default 1 @0 v[1] e1"),
            (
                "st.global.v4.f32 [%rd1+32], {%f1, %f2, %f3, %f4};",
                "store global default 16 @0 v[1] e4",
            ),
            (
                "@!%p1 st.global.b64 [%rd1], 7;",
                "store global default 8 @0 v[1] e8",
            ),
            (
                "st.global.b128 [%rd1], %q1;",
                "store global default 16 @0 v[1] e16",
            ),
            (
                "st.shared.b16 [sh], %h1;",
                "store shared default 2 @0 v[1] e2",
            ),
            (
                "st.shared::cluster.b32 [%r1], %r2;",
                "store cluster default 4 @0 v[1] e4",
            ),
            (
                "st.local.v2.b64 [lc], {%rd1, %rd2};",
                "store local default 16 @0 v[1] e8",
            ),
            (
                "st.global.wb.b32 [%rd1], %r1;",
                "store global wb 4 @0 v[1] e4",
            ),
            (
                "st.global.cg.b32 [%rd1], %r1;",
                "store global cg 4 @0 v[1] e4",
            ),
            (
                "st.global.cs.b32 [%rd1], %r1;",
                "store global cs 4 @0 v[1] e4",
            ),
            (
                "st.global.wt.b32 [%rd1], %r1;",
                "store global wt 4 @0 v[1] e4",
            ),
            (
                "st.global.L1::no_allocate.L2::cache_hint.v2.b32 [%rd1], {%r1, %r2}, %rd2;",
                "store global default 8 @0 v[1] e4",
            ),
            (
                "st.volatile.global.b32 [%rd1], %r1;",
                "store global volatile 4 @0 v[1] e4",
            ),
            (
                "st.relaxed.sys.global.b32 [%rd1], %r1;",
                "store global relaxed 4 @0 v[1] e4",
            ),
            (
                "st.release.gpu.b32 [%rd1], %r1;",
                "store generic release 4 @0 v[1] e4",
            ),
            (
                "st.mmio.relaxed.sys.global.b32 [%rd1], %r1;",
                "store global mmio 4 @0 v[1] e4",
            ),
            (
                "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r1], {%r2, %r3, %r4, %r5}, [%r6];",
                "store cluster default 16 @0 v[1] e4",
            ),
            (
                "st.async.shared::cluster.mbarrier::complete_tx::bytes.u64 [%r1], %rd1, [%r2];",
                "store cluster default 8 @0 v[1] e8",
            ),
            // atom
            (
                "atom.add.u32 %r1, [%rd1], %r2;",
                "atomic generic default 4 @1 v[2] r0 e4",
            ),
            (
                "atom.global.add.f32 %f1, [%rd1+4], %f2;",
                "atomic global default 4 @1 v[2] r0 e4",
            ),
            (
                "atom.global.add.f64 %fd1, [%rd1], %fd2;",
                "atomic global default 8 @1 v[2] r0 e8",
            ),
            (
                "atom.shared.cas.b32 %r1, [sh], %r2, %r3;",
                "atomic shared default 4 @1 v[2, 3] r0 e4",
            ),
            (
                "atom.global.cas.b16 %h1, [%rd1], %h2, %h3;",
                "atomic global default 2 @1 v[2, 3] r0 e2",
            ),
            (
                "atom.global.cas.b128 %q1, [%rd1], %q2, %q3;",
                "atomic global default 16 @1 v[2, 3] r0 e16",
            ),
            (
                "atom.global.exch.b128 %q1, [%rd1], %q2;",
                "atomic global default 16 @1 v[2] r0 e16",
            ),
            (
                "atom.acq_rel.gpu.global.exch.b64 %rd1, [%rd2], %rd3;",
                "atomic global acq_rel 8 @1 v[2] r0 e8",
            ),
            (
                "atom.relaxed.sys.global.min.s64 %rd1, [%rd2], %rd3;",
                "atomic global relaxed 8 @1 v[2] r0 e8",
            ),
            (
                "atom.acquire.cta.shared::cta.inc.u32 %r1, [sh], 15;",
                "atomic shared acquire 4 @1 v[2] r0 e4",
            ),
            (
                "atom.release.cluster.shared::cluster.or.b32 %r1, [%r2], %r3;",
                "atomic cluster release 4 @1 v[2] r0 e4",
            ),
            (
                "atom.global.add.noftz.f16x2 %r1, [%rd1], %r2;",
                "atomic global default 4 @1 v[2] r0 e4",
            ),
            (
                "atom.global.add.noftz.bf16 %h1, [%rd1], %h2;",
                "atomic global default 2 @1 v[2] r0 e2",
            ),
            (
                "atom.global.add.L2::cache_hint.u32 %r1, [%rd1], %r2, %rd2;",
                "atomic global default 4 @1 v[2] r0 e4",
            ),
            (
                "atom.global.add.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1], {%f5, %f6, %f7, %f8};",
                "atomic global default 16 @1 v[2] r0 e4",
            ),
            (
                "atom.global.add.noftz.v2.f16x2 {%r1, %r2}, [%rd1], {%r3, %r4};",
                "atomic global default 8 @1 v[2] r0 e4",
            ),
            (
                "atom.global.max.noftz.v8.bf16 {%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8}, [%rd1], {%h1, %h2, %h3, %h4, %h5, %h6, %h7, %h8};",
                "atomic global default 16 @1 v[2] r0 e2",
            ),
            (
                "atom.global.cas.b32 _, [%rd1], %r2, %r3;",
                "atomic global default 4 @1 v[2, 3] r0 e4",
            ),
            // red
            (
                "red.global.add.u64 [%rd1], %rd2;",
                "reduction global default 8 @0 v[1] e8",
            ),
            (
                "red.shared.max.s32 [sh+8], -1;",
                "reduction shared default 4 @0 v[1] e4",
            ),
            (
                "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.inc.u32 [%r1], %r2, [%r3];",
                "reduction cluster relaxed 4 @0 v[1] e4",
            ),
            (
                "red.release.gpu.global.add.s32 [%rd1], %r1;",
                "reduction global release 4 @0 v[1] e4",
            ),
            (
                "red.global.add.L2::cache_hint.v2.f32 [%rd1], {%f1, %f2}, %rd2;",
                "reduction global default 8 @0 v[1] e4",
            ),
            (
                "red.global.add.noftz.v4.bf16x2 [%rd1], {%r1, %r2, %r3, %r4};",
                "reduction global default 16 @0 v[1] e4",
            ),
            // multimem
            (
                "multimem.ld_reduce.weak.global.add.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1];",
                "load global default 16 @1 r0 e4",
            ),
            (
                "multimem.ld_reduce.acquire.sys.global.add.acc::f32.v2.f16x2 {%r1, %r2}, [%rd1];",
                "load global acquire 8 @1 r0 e4",
            ),
            (
                "multimem.st.relaxed.gpu.global.v4.f32 [%rd1], {%f1, %f2, %f3, %f4};",
                "store global relaxed 16 @0 v[1] e4",
            ),
            (
                "multimem.red.release.gpu.global.add.u32 [%rd1], %r1;",
                "reduction global release 4 @0 v[1] e4",
            ),
            // cp.async
            (
                "cp.async.ca.shared.global [sh], [%rd1], 4;",
                "async_copy global ca 4 @1 >0 shared",
            ),
            (
                "cp.async.ca.shared.global.L2::128B [%r1], [%rd1], 8, 4;",
                "async_copy global ca 4 @1 >0 shared",
            ),
            (
                "cp.async.cg.shared::cta.global [%r1], [%rd1+64], 16, %r2;",
                "async_copy global cg operand3 @1 >0 shared",
            ),
            (
                "cp.async.cg.shared.global [%r1], [%rd1], 16, %p1;",
                "async_copy global cg 16 @1 >0 shared",
            ),
            (
                "cp.async.cg.shared.global.L2::cache_hint [%r1], [%rd1], 16, %rd2;",
                "async_copy global cg 16 @1 >0 shared",
            ),
            (
                "cp.async.cg.shared.global.L2::cache_hint [%r1], [%rd1], 16, %r2, %rd2;",
                "async_copy global cg operand3 @1 >0 shared",
            ),
            // bulk
            (
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r2, [%r3];",
                "bulk_copy global default operand2 @1 >0 cluster",
            ),
            (
                "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1], 256, [%r3];",
                "bulk_copy global default 256 @1 >0 shared",
            ),
            (
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%r1], [%rd1], %r2, [%r3], %h1, %rd2;",
                "bulk_copy global default operand2 @1 >0 cluster",
            ),
            (
                "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1], [%r4], %r2, [%r3];",
                "bulk_copy shared default operand2 @1 >0 cluster",
            ),
            (
                "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;",
                "bulk_copy shared default operand2 @1 >0 global",
            ),
            (
                "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%rd1], [%r1], 1024, %rd2;",
                "bulk_copy shared default 1024 @1 >0 global",
            ),
            (
                "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r1], [%r2], %r3, [%r4];",
                "bulk_copy shared default operand2 @1 >0 cluster e4",
            ),
            (
                "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.noftz.f16 [%rd1], [%r2], %r3;",
                "bulk_copy shared default operand2 @1 >0 global e2",
            ),
            (
                "cp.async.bulk.prefetch.L2.global [%rd1], %r1;",
                "prefetch global default operand1 @0",
            ),
            (
                "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%rd1], 64, %rd2;",
                "prefetch global default 64 @0",
            ),
            // tensors
            (
                "cp.async.bulk.tensor.1d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2}], [%r3];",
                "tensor_copy global default Tile(1)@1 @1 >0 cluster",
            ),
            (
                "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3}], [%r4];",
                "tensor_copy global default Tile(2)@1 @1 >0 shared",
            ),
            (
                "cp.async.bulk.tensor.3d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r2, %r3, %r4}], [%r5], {%h1};",
                "tensor_copy global default Im2col@1 @1 >0 cluster",
            ),
            (
                "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%r1], [%rd1, {%r2, %r3, %r4, %r5, %r6}], [%r7], %h1, %rd2;",
                "tensor_copy global default Tile(5)@1 @1 >0 cluster",
            ),
            (
                "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r2, %r3}], [%r1];",
                "tensor_copy shared default Tile(2)@0 @1 >0 global",
            ),
            (
                "cp.async.bulk.tensor.4d.global.shared::cta.im2col_no_offs.bulk_group [%rd1, {%r2, %r3, %r4, %r5}], [%r1];",
                "tensor_copy shared default Im2col@0 @1 >0 global",
            ),
            (
                "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd1, {%r2, %r3}], [%r1];",
                "tensor_copy shared default Tile(2)@0 @1 >0 global",
            ),
            (
                "cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r2, %r3}];",
                "prefetch global default Tile(2)@0 @0",
            ),
            (
                "tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%r1], %rd1;",
                "other shared default ? @0 v[1] e8",
            ),
            (
                "tensormap.replace.tile.global_dim.global.b1024.b32 [%rd1], 1, %r1;",
                "other global default ? @0 v[2] e4",
            ),
            (
                "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd1], [%r1], 128;",
                "other shared release 128 @1 >0 global",
            ),
            // prefetches
            ("prefetch.global.L1 [%rd1];", "prefetch global default ? @0"),
            ("prefetch.L2 [%rd1];", "prefetch generic default ? @0"),
            ("prefetch.local.L2 [%rd1];", "prefetch local default ? @0"),
            (
                "prefetch.global.L2::evict_last [%rd1];",
                "prefetch global default ? @0",
            ),
            (
                "prefetch.tensormap [%rd1];",
                "prefetch generic default ? @0",
            ),
            (
                "prefetch.param.tensormap [kp];",
                "prefetch param default ? @0",
            ),
            ("prefetchu.L1 [%rd1];", "prefetch generic default ? @0"),
            (
                "applypriority.global.L2::evict_normal [%rd1], 128;",
                "prefetch global default 128 @0",
            ),
            (
                "discard.global.L2 [%rd1], 128;",
                "other global default 128 @0",
            ),
            // matrices
            (
                "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];",
                "matrix_load shared default 16 @1 r0 e4",
            ),
            (
                "ldmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 {%r1, %r2, %r3, %r4}, [sh+64];",
                "matrix_load shared default 16 @1 r0 e4",
            ),
            (
                "ldmatrix.sync.aligned.m8n8.x2.b16 {%r1, %r2}, [%rd1];",
                "matrix_load generic default 16 @1 r0 e4",
            ),
            (
                "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r1], {%r2, %r3};",
                "matrix_store shared default 16 @0 v[1] e4",
            ),
            (
                "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r1], {%r2, %r3, %r4, %r5};",
                "matrix_store shared default 16 @0 v[1] e4",
            ),
            (
                "wmma.load.a.sync.aligned.row.m16n16k16.global.f16 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1], %r9;",
                "wmma_load global default 16 @1 r0 e4",
            ),
            (
                "wmma.load.b.sync.aligned.col.m8n32k16.shared.s8 {%r1, %r2, %r3, %r4}, [sh];",
                "wmma_load shared default 16 @1 r0 e4",
            ),
            (
                "wmma.load.b.sync.aligned.col.m16n16k8.tf32 {%r1, %r2, %r3, %r4}, [%rd1];",
                "wmma_load generic default 16 @1 r0 e4",
            ),
            (
                "wmma.load.a.sync.aligned.row.m8n8k4.f64 {%fd1}, [%rd1];",
                "wmma_load generic default 8 @1 r0 e8",
            ),
            (
                "wmma.load.c.sync.aligned.row.m8n8k4.f64 {%fd1, %fd2}, [%rd1];",
                "wmma_load generic default 16 @1 r0 e8",
            ),
            (
                "wmma.load.a.sync.aligned.row.m8n8k32.u4 {%r1}, [%rd1];",
                "wmma_load generic default 4 @1 r0 e4",
            ),
            (
                "wmma.load.b.sync.aligned.col.m8n8k128.b1 {%r1}, [%rd1];",
                "wmma_load generic default 4 @1 r0 e4",
            ),
            (
                "wmma.store.d.sync.aligned.row.m16n16k16.global.f32 [%rd1], {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, %r1;",
                "wmma_store global default 32 @0 v[1] e4",
            ),
            // textures and surfaces
            (
                "tex.1d.v4.f32.s32 {%r1, %r2, %r3, %r4}, [tx, {%r5}];",
                "texture texture default ? @1 r0 e4",
            ),
            (
                "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6}];",
                "texture texture default ? @1 r0 e4",
            ),
            (
                "tex.level.2d.v2.f16x2.f32 {%r1, %r2}, [%rd1, {%f5, %f6}], %f7;",
                "texture texture default ? @1 r0 e4",
            ),
            (
                "tex.grad.2d.v4.s32.f32 {%r1, %r2, %r3, %r4}, [%rd1, {%f1, %f2}], {%f3, %f4}, {%f5, %f6};",
                "texture texture default ? @1 r0 e4",
            ),
            (
                "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}|%p1, [%rd1, {%f5, %f6}];",
                "texture texture default ? @1 r0 e4",
            ),
            (
                "tld4.r.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6}];",
                "texture texture default ? @1 r0 e4",
            ),
            (
                "suld.b.1d.b8.trap {%h1}, [sf, {%r1}];",
                "surface_load texture default 1 @1 r0 e1",
            ),
            (
                "suld.b.2d.cg.v4.b32.zero {%r1, %r2, %r3, %r4}, [%rd1, {%r5, %r6}];",
                "surface_load texture cg 16 @1 r0 e4",
            ),
            (
                "sust.b.3d.cs.v2.b64.clamp [%rd1, {%r1, %r2, %r3, %r4}], {%rd2, %rd3};",
                "surface_store texture cs 16 @0 v[1] e8",
            ),
            (
                "sust.p.1d.v4.b32.trap [sf, {%r1}], {%r2, %r3, %r4, %r5};",
                "surface_store texture default ? @0 v[1] e4",
            ),
            (
                "sured.b.add.2d.u32.trap [%rd1, {%r1, %r2}], %r3;",
                "surface_store texture default 4 @0 v[1] e4",
            ),
            (
                "sured.p.min.1d.b32.trap [%rd1, {%r1}], %r3;",
                "surface_store texture default ? @0 v[1] e4",
            ),
            // no memory
            ("txq.width.b32 %r1, [tx];", "none"),
            ("suq.width.b32 %r1, [sf];", "none"),
            ("isspacep.shared %p1, %rd1;", "none"),
            ("cvta.to.global.u64 %rd1, %rd2;", "none"),
            ("mapa.shared::cluster.u32 %r1, %r2, %r3;", "none"),
            ("getctarank.shared::cluster.u32 %r1, %r2;", "none"),
            ("mov.u64 %rd1, gl;", "none"),
            ("mov.u64 %rd1, gl[1];", "none"),
            ("add.s32 %r1, %r2, %r3;", "none"),
            ("mbarrier.init.shared.b64 [sh], 1;", "none"),
            ("mbarrier.arrive.shared.b64 %rd1, [sh];", "none"),
            (
                "createpolicy.range.global.L2::evict_last.b64 %rd1, [%rd2], 64, 128;",
                "none",
            ),
            (
                "fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;",
                "none",
            ),
            ("cp.async.commit_group;", "none"),
            ("cp.async.wait_group 1;", "none"),
            ("cp.async.bulk.wait_group.read 0;", "none"),
            ("cp.async.mbarrier.arrive.noinc.shared.b64 [sh];", "none"),
            (
                "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1, %f2, %f3, %f4}, %rd1, %rd2, 1, 1, 1, 0, 0;",
                "none",
            ),
        ],
    ),
    (
        "sm_100a",
        &[
            (
                "ld.global.v8.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}, [%rd1];",
                "load global default 32 @1 r0 e4",
            ),
            (
                "ld.global.nc.L2::evict_last.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [%rd5];",
                "load global nc 32 @1 r0 e8",
            ),
            (
                "st.global.v8.b32 [%rd1], {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8};",
                "store global default 32 @0 v[1] e4",
            ),
            (
                "st.bulk.weak.shared::cta [%rd1], %rd2, 0;",
                "store shared default operand1 @0 v[2] e8",
            ),
            (
                "st.async.release.gpu.global.b32 [%rd1], %r1;",
                "store global release 4 @0 v[1] e4",
            ),
            (
                "red.async.release.gpu.global.add.u32 [%rd1], %r1;",
                "reduction global release 4 @0 v[1] e4",
            ),
            (
                "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.cp_mask [%rd1], [%r1], 32, %rd2, %h1;",
                "bulk_copy shared default 32 @1 >0 global",
            ),
            (
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile::gather4.mbarrier::complete_tx::bytes.cta_group::1 [%r1], [%rd1, {%r2, %r3, %r4, %r5, %r6}], [%r7];",
                "tensor_copy global default Rows@1 @1 >0 cluster",
            ),
            (
                "cp.async.bulk.prefetch.tensor.4d.L2.global.im2col::w [%rd1, {%r2, %r3, %r4, %r5}], {%h1, %h2};",
                "prefetch global default ? @0",
            ),
            (
                "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {%r1, %r2, %r3, %r4}, [%r5];",
                "matrix_load shared default 16 @1 r0 e4",
            ),
            (
                "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b4x16_p64 {%r1}, [%r5];",
                "matrix_load shared default 16 @1 r0 e4",
            ),
            (
                "stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [%r1], {%r2};",
                "matrix_store shared default 16 @0 v[1] e4",
            ),
            (
                "multimem.ld_reduce.weak.global.add.acc::f16.v4.e4m3x4 {%r1, %r2, %r3, %r4}, [%rd1];",
                "load global default 16 @1 r0 e4",
            ),
            (
                "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];",
                "other shared default 16 @0 e16",
            ),
            (
                "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %p1, %q1;",
                "none",
            ),
            (
                "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;",
                "other shared default 4 @0 e4",
            ),
            (
                "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;",
                "none",
            ),
            (
                "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2}, [%r3];",
                "other generic default ? @1 e4",
            ),
            (
                "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r3], {%r1};",
                "other generic default ? @0 e4",
            ),
            (
                "tcgen05.cp.cta_group::1.128x256b [%r1], %rd1;",
                "other generic default ? @0",
            ),
            (
                "tcgen05.shift.cta_group::1.down [%r1];",
                "other generic default ? @0",
            ),
            (
                "tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;",
                "other generic default ? @0",
            ),
            (
                "tcgen05.mma.cta_group::1.kind::f16 [%r1], [%r3], %rd2, %r2, %p1;",
                "other generic default ? @0",
            ),
            (
                "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];",
                "none",
            ),
            ("tcgen05.wait::ld.sync.aligned;", "none"),
        ],
    ),
    (
        "-",
        &[
            (
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.ignore_oob [%r1], [%rd1], %r2, 4, 8, [%r3];",
                "bulk_copy global default operand2 @1 >0 cluster",
            ),
            (
                "multimem.cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;",
                "bulk_copy shared default operand2 @1 >0 global",
            ),
            (
                "multimem.cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], %r2;",
                "bulk_copy shared default operand2 @1 >0 global e4",
            ),
            (
                "ld.quantum.global.b32 %r1, [%rd1];",
                "load global default 4 @1 r0 e4",
            ),
            (
                "teleport.global.b32 %r1, %r2, [%rd1];",
                "other global default ? @2 e4",
            ),
            ("teleport.b32 %r1, %r2;", "none"),
            (
                "ld.param::func.v2.b32 {%r1, %r2}, [fp];",
                "load param default 8 @1 r0 e4",
            ),
            (
                "st.param::func.b32 [fr], %r1;",
                "store param default 4 @0 v[1] e4",
            ),
            (
                "ld.global.b128x2 {%q1, %q2}, [%rd1];",
                "load global default ? @1 r0",
            ),
            (
                "ld.global.b32 %r1, [%rd1+gl];",
                "load global default 4 @1 r0 e4",
            ),
            (
                "ld.global.u128x9 %r1, [%rd1];",
                "load global default ? @1 r0",
            ),
            ("ld.global.b32 [%rd1];", "other global default ? @0 e4"),
            ("st.global.b32 [%rd1];", "store global default 4 @0 e4"),
            ("st.global.b32;", "none"),
            ("ld.global.b32 %r1, %r2;", "none"),
            ("cp.async.ca.shared.global [sh];", "other shared ca ? @0"),
            ("cp.future.global [%rd1];", "other global default ? @0"),
            ("tensormap.replace [%rd1];", "other generic default ? @0"),
            (
                "wmma.load.a.sync.aligned.row.m99.f16 {%r1}, [%rd1];",
                "wmma_load generic default ? @1 r0 e4",
            ),
            (
                "wmma.load.z.sync.aligned.row.m8n8k4.f64 {%fd1}, [%rd1];",
                "wmma_load generic default ? @1 r0 e8",
            ),
            (
                "prefetch.global.L1 [%rd1], 5000000000;",
                "prefetch global default ? @0",
            ),
            (
                "discard.global.L2 [%rd1], 5000000000;",
                "other global default ? @0",
            ),
        ],
    ),
];

const BARRIERS: Table = &[
    (
        "sm_90a",
        &[
            ("bar.sync 0;", "sync id0"),
            ("bar.sync %r1, 64;", "sync id0 threads1"),
            ("bar.cta.sync 1;", "sync id0"),
            ("bar.red.popc.u32 %r1, 0, %p1;", "sync id1"),
            ("bar.red.and.pred %p1, 2, 64, !%p2;", "sync id1 threads2"),
            ("bar.arrive 1, 128;", "arrive id0 threads1"),
            ("bar.cta.arrive %r1, %r2;", "arrive id0 threads1"),
            ("barrier.sync 0;", "sync id0"),
            ("barrier.sync.aligned 3, 96;", "sync id0 threads1"),
            ("barrier.cta.sync.aligned 0;", "sync id0"),
            ("barrier.red.or.pred %p1, 0, %p2;", "sync id1"),
            (
                "barrier.cta.red.popc.aligned.u32 %r1, 0, 64, %p2;",
                "sync id1 threads2",
            ),
            ("barrier.arrive 0, %r1;", "arrive id0 threads1"),
            ("barrier.cta.arrive.aligned 0, 32;", "arrive id0 threads1"),
            ("bar.warp.sync 0xffffffff;", "warp"),
            ("bar.warp.sync %r1;", "warp"),
            ("barrier.cluster.arrive;", "cluster_arrive"),
            ("barrier.cluster.arrive.release.aligned;", "cluster_arrive"),
            ("barrier.cluster.wait.acquire.aligned;", "cluster_wait"),
            (
                "mbarrier.arrive.b64 %rd1, [%rd2];",
                "mbarrier_arrive @1 generic",
            ),
            (
                "mbarrier.arrive.shared.b64 %rd1, [sh], 2;",
                "mbarrier_arrive @1 shared",
            ),
            (
                "mbarrier.arrive.release.cta.shared::cta.b64 %rd1, [%r1];",
                "mbarrier_arrive @1 shared",
            ),
            (
                "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r1];",
                "mbarrier_arrive @1 cluster",
            ),
            (
                "mbarrier.arrive.expect_tx.shared.b64 %rd1, [%r1], %r2;",
                "mbarrier_arrive @1 shared",
            ),
            (
                "mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], 1;",
                "mbarrier_arrive @1 shared",
            ),
            (
                "mbarrier.arrive_drop.shared.b64 %rd1, [%r1];",
                "mbarrier_arrive @1 shared",
            ),
            (
                "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r1], 512;",
                "mbarrier_arrive @0 shared",
            ),
            (
                "mbarrier.complete_tx.relaxed.cluster.shared::cluster.b64 [%r1], 4;",
                "mbarrier_arrive @0 cluster",
            ),
            (
                "mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1;",
                "mbarrier_wait @1 shared",
            ),
            (
                "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], %r2;",
                "mbarrier_wait @1 shared",
            ),
            (
                "mbarrier.try_wait.acquire.cluster.shared::cta.b64 %p1, [sh+8], %rd1, %r3;",
                "mbarrier_wait @1 shared",
            ),
            (
                "mbarrier.try_wait.parity.b64 %p1, [%rd1], 0;",
                "mbarrier_wait @1 generic",
            ),
            ("mbarrier.init.shared.b64 [sh], 1;", "none"),
            ("mbarrier.inval.shared.b64 [sh];", "none"),
            ("mbarrier.pending_count.b64 %r1, %rd1;", "none"),
            (
                "cp.async.mbarrier.arrive.shared.b64 [%r1];",
                "mbarrier_arrive @0 shared",
            ),
            ("cp.async.commit_group;", "none"),
            ("cp.async.wait_group 2;", "group_wait"),
            ("cp.async.wait_all;", "group_wait"),
            ("cp.async.bulk.commit_group;", "none"),
            ("cp.async.bulk.wait_group 0;", "group_wait"),
            ("cp.async.bulk.wait_group.read 1;", "group_wait"),
            ("wgmma.fence.sync.aligned;", "none"),
            ("wgmma.commit_group.sync.aligned;", "none"),
            ("wgmma.wait_group.sync.aligned 0;", "group_wait"),
            ("fence.acq_rel.cluster;", "none"),
            ("membar.gl;", "none"),
            ("activemask.b32 %r1;", "none"),
            ("griddepcontrol.wait;", "none"),
            ("st.shared.b32 [sh], 0;", "none"),
        ],
    ),
    (
        "sm_100a",
        &[
            (
                "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r1];",
                "mbarrier_arrive @0 cluster",
            ),
            (
                "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%r1], %h1;",
                "mbarrier_arrive @0 cluster",
            ),
            ("tcgen05.wait::ld.sync.aligned;", "group_wait"),
            ("tcgen05.wait::st.sync.aligned;", "group_wait"),
            ("tcgen05.fence::before_thread_sync;", "none"),
        ],
    ),
    (
        "-",
        &[
            ("barrier.sync;", "sync"),
            ("mbarrier.arrive.b64 %rd1;", "mbarrier_arrive"),
            ("bar.future 0;", "none"),
            (
                "mbarrier.test_wait.b64 %p1, [%rd1+gl], %rd2;",
                "mbarrier_wait @1 generic",
            ),
        ],
    ),
];

/// All wrong rows at once: a table is mended in one go.
fn check(table: Table, shown: impl Fn(&Instruction<'_>) -> String) {
    let mut wrong = String::new();
    for (_, rows) in table {
        for (text, expected) in *rows {
            let found = with_instruction(text, &shown);
            if found != *expected {
                writeln!(wrong, "(\"{text}\", \"{found}\"),").unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "these rows are not as expected:\n{wrong}");
}

#[test]
fn accesses() {
    check(ACCESSES, |instruction| shown(access(instruction)));
}

#[test]
fn barriers() {
    check(BARRIERS, |instruction| shown_barrier(barrier(instruction)));
}

/// One run for a whole table; if it fails ptxas names the lines.
#[test]
fn ptxas_knows_every_form() {
    for (name, table) in [("accesses", ACCESSES), ("barriers", BARRIERS)] {
        for (target, rows) in table.iter().filter(|(target, _)| *target != "-") {
            let body = rows
                .iter()
                .fold(String::new(), |body, (text, _)| body + text + "\n");
            let run = ptxas::ptxas(&format!("{name}-{target}"), target, &kernel(target, &body));
            assert!(run.is_ok(), "{}", run.unwrap_err());
        }
    }
}

#[test]
fn a_register_type_decides_what_the_fourth_operand_of_cp_async_is() {
    let bytes = |text: &str, ty: Option<&'static str>| {
        with_instruction(text, |i| {
            access_typed(i, &|name| {
                if name == "x" || name == "p1" {
                    ty
                } else {
                    None
                }
            })
            .unwrap()
            .bytes
        })
    };
    let x = "cp.async.ca.shared.global [%r1], [%rd1], 8, x;";
    assert_eq!(bytes(x, None), Bytes::Operand(3));
    assert_eq!(bytes(x, Some("pred")), Bytes::Fixed(8));
    assert_eq!(bytes(x, Some("b32")), Bytes::Operand(3));
    let named = "cp.async.ca.shared.global [%r1], [%rd1], 8, p1;";
    assert_eq!(bytes(named, None), Bytes::Fixed(8));
    assert_eq!(bytes(named, Some("u32")), Bytes::Operand(3));
    let not = "cp.async.ca.shared.global [%r1], [%rd1], 8, !x;";
    assert_eq!(bytes(not, None), Bytes::Fixed(8));
}

#[test]
fn lanes_that_give_a_row() {
    let lanes = |text: &str| with_instruction(text, row_lanes);
    assert_eq!(
        lanes("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r1}, [%r2];"),
        Some(8)
    );
    assert_eq!(
        lanes("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r3}, [%r2];"),
        Some(16)
    );
    assert_eq!(
        lanes("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r1], {%r2, %r3, %r4, %r5};"),
        Some(32)
    );
    assert_eq!(
        lanes("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r1, %r2}, [%r5];"),
        Some(16)
    );
    assert_eq!(
        lanes("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8 {%r1, %r2, %r3, %r4}, [%r5];"),
        Some(32)
    );
    assert_eq!(
        lanes("tcgen05.ld.sync.aligned.32x32b.x2.b32 {%r1, %r2}, [%r3];"),
        None
    );
    assert_eq!(
        lanes("ldmatrix.sync.aligned.m8n8.x9.shared.b16 {%r1}, [%r2];"),
        None
    );
}

#[test]
fn what_follows_an_address_is_in_its_bytes() {
    let text =
        ".version 8.3\n.target sm_90\n.entry k() { ld.global.b32 %r1, [%rd1+4] .unified , %rd2; }";
    let module = index(text).unwrap();
    let body = parse_body(&module, &module.functions[0]).unwrap();
    let StatementKind::Instruction(load) = &body[0].kind else {
        panic!("{body:?}");
    };
    let written: Vec<_> = load
        .operand_spans
        .iter()
        .map(|span| &text[span.clone()])
        .collect();
    assert_eq!(written, ["%r1", "[%rd1+4] .unified", "%rd2"]);
    let address = Operand::Address {
        base: Some("%rd1"),
        offset: 4,
        rest: vec![],
    };
    assert_eq!(load.operands[1], address);
}
