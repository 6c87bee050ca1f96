//! The functions by which fragments read the application's memory, as PTX text:
//! `abi::layout::fence` says how readers and the host agree on what lives.
//!
//! Every loop has a bound. Lanes that are together are counted in by one of them, and out by one of
//! those that are together then: atomics on one address are what a read costs most.

use warpbpf_abi::access::Space;
use warpbpf_abi::layout::fence;

use crate::fragment::Target;
use crate::ir::FenceOp;

/// From these on a kernel can ask where its shared memory ends (PTX ISA, "%aggr_smem_size"). It
/// begins with what the system keeps for itself, so that its end lies behind `%total_smem_size`,
/// which counts what the kernel declares.
const AGGREGATE_PTX: (u32, u32) = (8, 1);
const AGGREGATE_SM: u32 = 90;

fn knows_end(target: Target) -> bool {
    target.ptx >= AGGREGATE_PTX && target.sm >= AGGREGATE_SM
}

/// Name of the function behind an operation, if it is one. What the text depends on is in the name.
pub fn fence_name(op: FenceOp, target: Target) -> Option<&'static str> {
    match op {
        FenceOp::Enter => Some("wbpf_fence_enter"),
        FenceOp::Find if knows_end(target) => Some("wbpf_fence_find"),
        FenceOp::Find => Some("wbpf_fence_find_plain"),
        FenceOp::Room if knows_end(target) => Some("wbpf_fence_room"),
        FenceOp::Room => Some("wbpf_fence_room_plain"),
        FenceOp::Word { .. } => Some("wbpf_fence_word"),
        FenceOp::Leave => Some("wbpf_fence_leave"),
        FenceOp::Copy { .. } | FenceOp::Prefetch => None,
    }
}

/// Text of that function. All parameters and the result are `.b64`; [`FenceOp`] says which.
pub fn fence_function(op: FenceOp, target: Target) -> String {
    let (params, body) = match op {
        FenceOp::Enter => (1, enter()),
        FenceOp::Find => (4, find(target, Answer::Address)),
        FenceOp::Room => (4, find(target, Answer::Bytes)),
        FenceOp::Word { .. } => (2, word()),
        FenceOp::Leave => (1, leave().to_owned()),
        FenceOp::Copy { .. } | FenceOp::Prefetch => return String::new(),
    };
    let params: Vec<String> = (0..params)
        .map(|i| format!(".param .b64 wbpf_a{i}"))
        .collect();
    let name = fence_name(op, target).unwrap_or_default();
    let mut text = format!(
        ".func (.param .b64 wbpf_r) {name}({})\n{{\n",
        params.join(", ")
    );
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

/// The first of the lanes that are together counts all of them in. Its fence stands between being
/// counted and looking at the table, so that of a reader and a host that withdraws a range one sees
/// what the other did; the others come behind it.
fn enter() -> String {
    format!(
        ".reg .pred %wbpf_p<1>;
        .reg .b32 %wbpf_w<4>;
        .reg .b64 %wbpf_fence, %wbpf_res;
        ld.param.b64 %wbpf_fence, [wbpf_a0];
        mov.b64 %wbpf_res, 0;
        setp.eq.s64 %wbpf_p0, %wbpf_fence, 0;
        @%wbpf_p0 bra $wbpf_done;
        ld.relaxed.sys.global.u64 %wbpf_res, [%wbpf_fence+{epoch}];
        cvt.u32.u64 %wbpf_w1, %wbpf_res;
        and.b32 %wbpf_w1, %wbpf_w1, 1;
        mov.u32 %wbpf_w0, %smid;
        and.b32 %wbpf_w0, %wbpf_w0, {mask};
        mad.lo.s32 %wbpf_w0, %wbpf_w1, {counters}, %wbpf_w0;
        activemask.b32 %wbpf_w1;
        brev.b32 %wbpf_w2, %wbpf_w1;
        clz.b32 %wbpf_w2, %wbpf_w2;
        shfl.sync.idx.b32 %wbpf_w0, %wbpf_w0, %wbpf_w2, 31, %wbpf_w1;
        mad.wide.u32 %wbpf_res, %wbpf_w0, {stride}, %wbpf_fence;
        add.s64 %wbpf_res, %wbpf_res, {readers};
        mov.u32 %wbpf_w3, %lanemask_lt;
        and.b32 %wbpf_w3, %wbpf_w3, %wbpf_w1;
        setp.ne.s32 %wbpf_p0, %wbpf_w3, 0;
        @%wbpf_p0 bra $wbpf_counted;
        popc.b32 %wbpf_w3, %wbpf_w1;
        red.relaxed.sys.global.add.u32 [%wbpf_res], %wbpf_w3;
        fence.sc.sys;
        $wbpf_counted:
        bar.warp.sync %wbpf_w1;
        $wbpf_done:",
        epoch = fence::EPOCH,
        mask = fence::COUNTERS - 1,
        counters = fence::COUNTERS,
        stride = fence::COUNTER_STRIDE,
        readers = fence::READERS,
    )
}

/// The lanes that are together now need not be those that came in together. Their reads are done
/// when one counts them out.
fn leave() -> &'static str {
    ".reg .pred %wbpf_p<1>;
    .reg .b32 %wbpf_w<4>;
    .reg .b64 %wbpf_at, %wbpf_res;
    ld.param.b64 %wbpf_at, [wbpf_a0];
    mov.b64 %wbpf_res, 0;
    setp.eq.s64 %wbpf_p0, %wbpf_at, 0;
    @%wbpf_p0 bra $wbpf_done;
    activemask.b32 %wbpf_w1;
    match.any.sync.b64 %wbpf_w0, %wbpf_at, %wbpf_w1;
    mov.u32 %wbpf_w3, %lanemask_lt;
    and.b32 %wbpf_w3, %wbpf_w3, %wbpf_w0;
    bar.warp.sync %wbpf_w1;
    setp.ne.s32 %wbpf_p0, %wbpf_w3, 0;
    @%wbpf_p0 bra $wbpf_done;
    popc.b32 %wbpf_w3, %wbpf_w0;
    neg.s32 %wbpf_w3, %wbpf_w3;
    fence.acq_rel.sys;
    red.relaxed.sys.global.add.u32 [%wbpf_at], %wbpf_w3;
    $wbpf_done:"
}

/// What a search tells.
#[derive(Clone, Copy)]
enum Answer {
    /// The address, if all bytes live.
    Address,
    /// How many of them do.
    Bytes,
}

/// Addresses of shared memory are checked against what the block has; all others against the table.
/// An address of the local window is in no table.
fn find(target: Target, answer: Answer) -> String {
    // `%wbpf_t0` is how many bytes live from the address on.
    let [in_shared, in_table] = match answer {
        Answer::Address => {
            let all = "setp.gt.u64 %wbpf_p0, %wbpf_size, %wbpf_t0;
                @%wbpf_p0 bra $wbpf_done;";
            [
                format!("{all}\ncvta.shared.u64 %wbpf_res, %wbpf_at;"),
                format!("{all}\nmov.b64 %wbpf_res, %wbpf_at;"),
            ]
        }
        Answer::Bytes => ["min.u64 %wbpf_res, %wbpf_size, %wbpf_t0;"; 2].map(str::to_owned),
    };
    // Where the end is not known, the last bytes are refused.
    let end_of_shared = if knows_end(target) {
        "%aggr_smem_size"
    } else {
        "%total_smem_size"
    };
    format!(
        ".reg .pred %wbpf_p<1>;
        .reg .b32 %wbpf_w<4>;
        .reg .b64 %wbpf_fence, %wbpf_at, %wbpf_size, %wbpf_space, %wbpf_table, %wbpf_t<2>, %wbpf_res;
        ld.param.b64 %wbpf_fence, [wbpf_a0];
        ld.param.b64 %wbpf_at, [wbpf_a1];
        ld.param.b64 %wbpf_size, [wbpf_a2];
        ld.param.b64 %wbpf_space, [wbpf_a3];
        mov.b64 %wbpf_res, 0;
        setp.eq.s64 %wbpf_p0, %wbpf_fence, 0;
        @%wbpf_p0 bra $wbpf_done;
        setp.eq.s64 %wbpf_p0, %wbpf_space, {global};
        @%wbpf_p0 bra $wbpf_table;
        setp.eq.s64 %wbpf_p0, %wbpf_space, {shared};
        @%wbpf_p0 bra $wbpf_shared;
        setp.ne.s64 %wbpf_p0, %wbpf_space, {generic};
        @%wbpf_p0 bra $wbpf_done;
        isspacep.shared %wbpf_p0, %wbpf_at;
        @!%wbpf_p0 bra $wbpf_table;
        cvta.to.shared.u64 %wbpf_at, %wbpf_at;
        $wbpf_shared:
        mov.u32 %wbpf_w0, {end_of_shared};
        cvt.u64.u32 %wbpf_t0, %wbpf_w0;
        setp.ge.u64 %wbpf_p0, %wbpf_at, %wbpf_t0;
        @%wbpf_p0 bra $wbpf_done;
        sub.s64 %wbpf_t0, %wbpf_t0, %wbpf_at;
        {in_shared}
        bra $wbpf_done;
        $wbpf_table:
        ld.relaxed.sys.global.u64 %wbpf_t0, [%wbpf_fence+{current}];
        shr.u64 %wbpf_t1, %wbpf_t0, 1;
        and.b64 %wbpf_t0, %wbpf_t0, 1;
        min.u64 %wbpf_t1, %wbpf_t1, {capacity};
        cvt.u32.u64 %wbpf_w0, %wbpf_t1;
        mad.lo.s64 %wbpf_table, %wbpf_t0, {table}, %wbpf_fence;
        setp.eq.s32 %wbpf_p0, %wbpf_w0, 0;
        @%wbpf_p0 bra $wbpf_done;
        mov.b32 %wbpf_w1, 0;
        bfind.u32 %wbpf_w3, %wbpf_w0;
        mov.b32 %wbpf_w2, 1;
        shl.b32 %wbpf_w2, %wbpf_w2, %wbpf_w3;
        $wbpf_step:
        add.s32 %wbpf_w3, %wbpf_w1, %wbpf_w2;
        setp.gt.u32 %wbpf_p0, %wbpf_w3, %wbpf_w0;
        @%wbpf_p0 bra $wbpf_next;
        mad.wide.u32 %wbpf_t0, %wbpf_w3, {range}, %wbpf_table;
        ld.relaxed.sys.global.u64 %wbpf_t0, [%wbpf_t0+{start}];
        setp.gt.u64 %wbpf_p0, %wbpf_t0, %wbpf_at;
        @%wbpf_p0 bra $wbpf_next;
        mov.b32 %wbpf_w1, %wbpf_w3;
        $wbpf_next:
        shr.u32 %wbpf_w2, %wbpf_w2, 1;
        setp.ne.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_step;
        setp.eq.s32 %wbpf_p0, %wbpf_w1, 0;
        @%wbpf_p0 bra $wbpf_done;
        mad.wide.u32 %wbpf_t0, %wbpf_w1, {range}, %wbpf_table;
        ld.relaxed.sys.global.u64 %wbpf_t0, [%wbpf_t0+{end}];
        setp.ge.u64 %wbpf_p0, %wbpf_at, %wbpf_t0;
        @%wbpf_p0 bra $wbpf_done;
        sub.s64 %wbpf_t0, %wbpf_t0, %wbpf_at;
        {in_table}
        $wbpf_done:",
        generic = Space::Generic as u32,
        global = Space::Global as u32,
        shared = Space::Shared as u32,
        current = fence::CURRENT,
        capacity = fence::CAPACITY,
        table = fence::TABLE,
        range = fence::RANGE,
        // Ranges are counted from 1.
        start = fence::TABLES - fence::RANGE,
        end = fence::TABLES - fence::RANGE + 8,
    )
}

/// Words of 4 and 8 bytes are read at once where they are aligned. `volatile`, so that the compiler
/// reads just here, and what another thread writes meanwhile is old or new.
fn word() -> String {
    ".reg .pred %wbpf_p<1>;
    .reg .b32 %wbpf_w<3>;
    .reg .b64 %wbpf_at, %wbpf_size, %wbpf_t<1>, %wbpf_res;
    ld.param.b64 %wbpf_at, [wbpf_a0];
    ld.param.b64 %wbpf_size, [wbpf_a1];
    mov.b64 %wbpf_res, 0;
    setp.eq.s64 %wbpf_p0, %wbpf_at, 0;
    @%wbpf_p0 bra $wbpf_done;
    and.b64 %wbpf_t0, %wbpf_at, 3;
    setp.ne.s64 %wbpf_p0, %wbpf_t0, 0;
    @%wbpf_p0 bra $wbpf_bytes;
    setp.eq.s64 %wbpf_p0, %wbpf_size, 4;
    @%wbpf_p0 bra $wbpf_four;
    setp.ne.s64 %wbpf_p0, %wbpf_size, 8;
    @%wbpf_p0 bra $wbpf_bytes;
    and.b64 %wbpf_t0, %wbpf_at, 4;
    setp.ne.s64 %wbpf_p0, %wbpf_t0, 0;
    @%wbpf_p0 bra $wbpf_halves;
    ld.volatile.u64 %wbpf_res, [%wbpf_at];
    bra $wbpf_done;
    $wbpf_halves:
    ld.volatile.u32 %wbpf_w0, [%wbpf_at];
    ld.volatile.u32 %wbpf_w1, [%wbpf_at+4];
    mov.b64 %wbpf_res, {%wbpf_w0, %wbpf_w1};
    bra $wbpf_done;
    $wbpf_four:
    ld.volatile.u32 %wbpf_w0, [%wbpf_at];
    cvt.u64.u32 %wbpf_res, %wbpf_w0;
    bra $wbpf_done;
    $wbpf_bytes:
    cvt.u32.u64 %wbpf_w2, %wbpf_size;
    $wbpf_more:
    add.s32 %wbpf_w2, %wbpf_w2, -1;
    cvt.u64.u32 %wbpf_t0, %wbpf_w2;
    add.s64 %wbpf_t0, %wbpf_at, %wbpf_t0;
    ld.volatile.u8 %wbpf_w0, [%wbpf_t0];
    cvt.u64.u32 %wbpf_t0, %wbpf_w0;
    shl.b64 %wbpf_res, %wbpf_res, 8;
    or.b64 %wbpf_res, %wbpf_res, %wbpf_t0;
    setp.ne.s32 %wbpf_p0, %wbpf_w2, 0;
    @%wbpf_p0 bra $wbpf_more;
    $wbpf_done:"
        .to_owned()
}
