//! Bulk copies: what a wrong one says, and what is refused by name. What right ones do is tested by
//! programs of the soft CUDA libraries, whose results an H200 confirmed.

use crate::common::{Params, Rig, header};
use warpbpf_softgpu::{
    TENSOR_MAP_BYTES, TensorBox, TensorElement, TensorMap, TensorSwizzle, Trap, TrapKind,
};

/// A kernel with a tensor map, an address and room in shared memory, whose first thread executes
/// `body`.
fn kernel(body: &str) -> String {
    header(&format!(
        ".visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) {{
            .reg .b64 %rd<8>; .reg .b32 %r<8>; .reg .pred %p<3>; .reg .b16 %h<3>;
            .shared .align 128 .b8 box[4096]; .shared .align 8 .b64 bar;
            mov.b64 %rd1, map; cvta.param.u64 %rd1, %rd1; ld.param.u64 %rd2, [out];
            mov.u32 %r1, box; mov.u32 %r2, bar; mov.u32 %r3, %tid.x; setp.ne.u32 %p1, %r3, 0;
            mbarrier.init.shared::cta.b64 [%r2], 1;
            @%p1 bra END;
            {body}
        END: ret; }}"
    ))
}

fn map(rank: u32) -> TensorMap {
    TensorMap {
        address: 0,
        element: TensorElement::U32,
        rank,
        size: [16, 4, 1, 1, 1],
        pitch: [64, 256, 256, 256],
        moved: TensorBox::Tile {
            size: [8, 2, 1, 1, 1],
        },
        strides: [1; 5],
        swizzle: TensorSwizzle::None,
        nan: false,
    }
}

fn params(map: &[u8; TENSOR_MAP_BYTES], out: u64) -> Params {
    let mut bytes = map.to_vec();
    bytes.extend_from_slice(&out.to_le_bytes());
    Params(bytes)
}

/// The trap of a kernel whose tensor lies in 256 bytes.
fn trap_with(body: &str, change: impl FnOnce(&mut TensorMap)) -> Trap {
    let mut rig = Rig::new(&kernel(body));
    let mut map = map(2);
    map.address = rig.u32s(&[7; 64]);
    change(&mut map);
    let out = rig.u32s(&[0; 64]);
    rig.trap("k", 1, 32, &params(&map.encode(), out))
}

const LOAD: &str = "mov.u32 %r5, 0; mov.u32 %r6, 0;
    cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r5, %r6}], [%r2];";

fn says(body: &str, change: impl FnOnce(&mut TensorMap), kind: &TrapKind, message: &str) {
    let trap = trap_with(body, change);
    assert_eq!((&trap.kind, trap.message.as_str()), (kind, message));
}

#[test]
fn a_tensor_map_must_be_one_and_fit_the_instruction() {
    let bad = TrapKind::InvalidDescriptor;
    let mut rig = Rig::new(&kernel(LOAD));
    let trap = rig.trap("k", 1, 32, &params(&[0; 128], 0));
    assert_eq!(
        (trap.kind, trap.message.as_str()),
        (bad.clone(), "there is no tensor map at 0x300000000000000")
    );
    says(
        LOAD,
        |map| map.rank = 3,
        &bad,
        "a tensor copy with 2 coordinates by a tensor map of 3 dimensions",
    );
    says(
        LOAD,
        |map| {
            map.moved = TensorBox::Im2col {
                lower: [0; 3],
                upper: [0; 3],
                channels: 8,
                pixels: 2,
            };
        },
        &bad,
        "a tensor copy in tile mode by a tensor map for im2col mode",
    );
    says(
        LOAD,
        |map| {
            map.moved = TensorBox::Tile {
                size: [256, 256, 1, 1, 1],
            };
        },
        &bad,
        "a tensor copy of a box that is larger than shared memory",
    );
    says(
        &LOAD.replace("mov.u32 %r5, 0", "mov.u32 %r5, 3"),
        |_| {},
        &bad,
        "a tensor copy from element 3 of the first dimension: that is byte 12, which is not a multiple of 16",
    );
}

const STORE: &str = "mov.u32 %r5, 0; mov.u32 %r6, 0;
    cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd1, {%r5, %r6}], [%r1];";

#[test]
fn stores_begin_inside_and_reductions_have_types() {
    let bad = TrapKind::InvalidDescriptor;
    says(
        &STORE.replace("%r6, 0", "%r6, -1"),
        |_| {},
        &bad,
        "a tensor copy to coordinate -1: only loads may begin before the tensor does",
    );
    let reduce = |op: &str| {
        STORE.replace(
            "cp.async.bulk.tensor.2d.global.shared::cta",
            &format!("cp.reduce.async.bulk.tensor.2d.global.shared::cta.{op}"),
        )
    };
    for (op, element, text) in [
        ("or", TensorElement::F32, "Or of elements of type FLOAT32"),
        ("add", TensorElement::S64, "Add of elements of type INT64"),
        (
            "inc",
            TensorElement::S32,
            "Increment of elements of type INT32",
        ),
        ("min", TensorElement::U16, "Min of elements of type UINT16"),
    ] {
        let message = format!("a tensor reduction by {text}, which has none");
        says(&reduce(op), |map| map.element = element, &bad, &message);
    }
}

#[test]
fn alignment_and_bounds() {
    says(
        &format!("add.u32 %r1, %r1, 64; {LOAD}"),
        |_| {},
        &TrapKind::Misaligned {
            address: 1024 + 64,
            bytes: 128,
        },
        "misaligned tensor copy at shared address 0x440",
    );
    says(
        &format!("add.u64 %rd1, %rd1, 32; {LOAD}"),
        |_| {},
        &TrapKind::Misaligned {
            address: 0x300_0000_0000_0020,
            bytes: 64,
        },
        "misaligned tensor map at 0x300000000000020",
    );
    // The tensor map promises more than there is.
    let trap = trap_with(LOAD, |map| map.address += 224);
    assert!(
        trap.message.contains("16-byte load at global address")
            && trap.message.contains("is out of bounds"),
        "{trap}"
    );
    let trap = trap_with(
        "cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], 24;",
        |_| {},
    );
    assert_eq!(
        trap.message,
        "a bulk copy of 24 bytes: the size must be a multiple of 16"
    );
    let trap = trap_with(
        "cp.async.bulk.global.shared::cta.bulk_group [%rd2+8], [%r1], 16;",
        |_| {},
    );
    assert!(
        trap.message.starts_with("misaligned 16-byte store"),
        "{trap}"
    );
    let trap = trap_with(
        "mov.u16 %h1, 5;
         cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd2], 16, [%r2], %h1;",
        |_| {},
    );
    assert_eq!(
        (trap.kind, trap.message.as_str()),
        (
            TrapKind::InvalidSync,
            "a bulk copy to the blocks 0x0005 of a cluster of 1 blocks"
        )
    );
}

#[test]
fn other_forms_are_refused_by_name() {
    for (body, reason) in [
        (
            "cp.async.bulk.tensor.2d.shared::cta.global.tile::gather4.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r5, %r6, %r5, %r5, %r5}], [%r2];",
            "modifier `.tile::gather4`",
        ),
        (
            "cp.async.bulk.tensor.3d.shared::cluster.global.im2col::w.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r5, %r6, %r5}], [%r2], {%h1, %h2};",
            "modifier `.im2col::w`",
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2 [%r1], [%rd1, {%r5, %r6}], [%r2];",
            "modifier `.cta_group::2`",
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%rd2], [%r1], 16, %h1;",
            "modifier `.cp_mask`",
        ),
        (
            "cp.reduce.async.bulk.global.shared::cta.bulk_group.add [%rd2], [%r1], 16;",
            "operation or type",
        ),
    ] {
        let trap = trap_with(body, |_| {});
        assert_eq!(trap.kind, TrapKind::Unsupported);
        assert!(trap.message.ends_with(&format!(": {reason}")), "{trap}");
    }
}

#[test]
fn to_the_own_block() {
    let body = "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r2], 80;
        mov.u32 %r5, 4; mov.u32 %r6, 1;
        cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint
            [%r1], [%rd1, {%r5, %r6}], [%r2], %rd3;
        cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r1+64], [%rd2+16], 16, [%r2];
        mbarrier.arrive.shared::cta.b64 _, [%r2];
        mbarrier.test_wait.parity.shared::cta.b64 %p2, [%r2], 0; selp.u32 %r7, 1, 0, %p2;
        st.global.u32 [%rd2], %r7;
        ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r1+32]; st.global.v4.u32 [%rd2+32], {%r3, %r4, %r5, %r6};
        ld.shared.v4.u32 {%r3, %r4, %r5, %r6}, [%r1+64]; st.global.v4.u32 [%rd2+48], {%r3, %r4, %r5, %r6};";
    let mut rig = Rig::new(&kernel(body));
    let mut map = map(2);
    map.address = rig.u32s(&(0..64).collect::<Vec<_>>());
    let out = rig.u32s(&[0, 0, 0, 0, 91, 92, 93, 94, 0, 0, 0, 0, 0, 0, 0, 0]);
    rig.run("k", 1, 32, &params(&map.encode(), out));
    assert_eq!(rig.read_u32(out, 1), [1], "all bytes arrived");
    // The box's second row begins at element 4 of row 2.
    assert_eq!(rig.read_u32(out + 32, 8), [36, 37, 38, 39, 91, 92, 93, 94]);
}

#[test]
fn prefetches_and_groups_do_nothing() {
    let body = "cp.async.bulk.prefetch.L2.global [%rd2], 16;
        cp.async.bulk.prefetch.tensor.2d.L2.global.tile [%rd1, {%r5, %r6}];
        prefetch.tensormap [%rd1]; fence.proxy.tensormap::generic.acquire.gpu [%rd1], 128;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 1; cp.async.bulk.wait_group 0;
        st.global.u32 [%rd2], 5;";
    let mut rig = Rig::new(&kernel(body));
    let out = rig.u32s(&[0]);
    rig.run("k", 1, 1, &params(&[0; 128], out));
    assert_eq!(rig.read_u32(out, 1), [5]);
}
