//! What is done to a stack's one word, by all lanes that are together as one: see [`QueueLayout`]
//! on runs.
//!
//! Under load nearly everybody loses a CAS on that word, and a warp of lanes that each try for
//! themselves loses 32 times. One try for all of them, and pauses that grow while it fails, let
//! many times more through. Lanes of a group meet only at instructions that name exactly the lanes
//! that were active when it was formed, and all of them come there: what they branch on is the same
//! for all, but for a walk of at most as many steps as there are lanes.

use warpbpf_abi::layout::QueueLayout;

use crate::prelude::can_nap;

/// First pause behind a CAS that failed, and the longest: they double. Nanoseconds.
const PAUSE: u32 = 32;
const LONGEST: u32 = 2048;

/// Of the lanes that are here now with the same map: `%wbpf_g0` becomes the mask, `%wbpf_g1` their
/// number, `%wbpf_g2` how many are below this one, `%wbpf_g3` the first of them, and `%wbpf_p2`
/// whether that is this one.
const TOGETHER: &str = "activemask.b32 %wbpf_g0;
    match.any.sync.b64 %wbpf_g0, %wbpf_base, %wbpf_g0;
    popc.b32 %wbpf_g1, %wbpf_g0;
    mov.u32 %wbpf_g2, %lanemask_lt;
    and.b32 %wbpf_g2, %wbpf_g2, %wbpf_g0;
    popc.b32 %wbpf_g2, %wbpf_g2;
    setp.eq.s32 %wbpf_p2, %wbpf_g2, 0;
    brev.b32 %wbpf_g3, %wbpf_g0;
    clz.b32 %wbpf_g3, %wbpf_g3;";

/// A register as the first lane has it.
fn told(register: &str) -> String {
    format!("shfl.sync.idx.b32 {register}, {register}, %wbpf_g3, 31, %wbpf_g0;")
}

/// The first lane swaps `TOP` from `%wbpf_e` for the next version with `%wbpf_q`. To `done` if it
/// did; else `%wbpf_e` is what is there now, and after a pause it goes on at `$wbpf_turn`, or at
/// `failed` when there were too many turns. Those are the first lane's: lanes that gather again
/// meet others that have made fewer, and all of a group must go the same way.
fn swap(done: &str, failed: &str, ptx: (u32, u32)) -> String {
    let pause = if can_nap(ptx) {
        format!(
            "nanosleep.u32 %wbpf_g9;
            shl.b32 %wbpf_g9, %wbpf_g9, 1;
            min.u32 %wbpf_g9, %wbpf_g9, {LONGEST};"
        )
    } else {
        String::new()
    };
    format!(
        "shr.u64 %wbpf_u, %wbpf_e, 32;
        add.s64 %wbpf_u, %wbpf_u, 1;
        shl.b64 %wbpf_u, %wbpf_u, 32;
        or.b64 %wbpf_u, %wbpf_u, %wbpf_q;
        mov.b64 %wbpf_t, %wbpf_e;
        @%wbpf_p2 atom.acq_rel.gpu.global.cas.b64 %wbpf_t, [%wbpf_base+{top}], %wbpf_e, %wbpf_u;
        setp.eq.s64 %wbpf_p0, %wbpf_t, %wbpf_e;
        selp.b32 %wbpf_g8, 1, 0, %wbpf_p0;
        {told}
        setp.ne.s32 %wbpf_p0, %wbpf_g8, 0;
        @%wbpf_p0 bra {done};
        mov.b64 %wbpf_e, %wbpf_t;
        add.s32 %wbpf_n, %wbpf_n, -1;
        mov.b32 %wbpf_g8, %wbpf_n;
        {told}
        setp.le.s32 %wbpf_p0, %wbpf_g8, 0;
        @%wbpf_p0 bra {failed};
        {pause}
        bra $wbpf_turn;",
        top = QueueLayout::VALUES,
        told = told("%wbpf_g8"),
    )
}

/// `%wbpf_at` becomes the address of the link of node `%wbpf_i` - 1, less that of the first.
fn link() -> String {
    format!(
        "add.s64 %wbpf_t, %wbpf_i, -1;
        mad.lo.s64 %wbpf_at, %wbpf_t, {}, %wbpf_base;",
        QueueLayout::LINK_BYTES
    )
}

/// Puts node `%wbpf_i` - 1 on top, with those of all lanes that are here; goes to `$wbpf_unpushed`
/// after too many turns.
pub fn put(l: &QueueLayout, ptx: (u32, u32)) -> String {
    // `%wbpf_g4` is the node of the next lane, `%wbpf_p1` that there is none, `%wbpf_g5` how many
    // of the run are left, and `%wbpf_g6` what was on top.
    format!(
        ".reg .b32 %wbpf_g<10>;
        {TOGETHER}
        mov.u32 %wbpf_g5, %lanemask_gt;
        and.b32 %wbpf_g5, %wbpf_g5, %wbpf_g0;
        setp.eq.s32 %wbpf_p1, %wbpf_g5, 0;
        brev.b32 %wbpf_g5, %wbpf_g5;
        clz.b32 %wbpf_g5, %wbpf_g5;
        and.b32 %wbpf_g5, %wbpf_g5, 31;
        cvt.u32.u64 %wbpf_g4, %wbpf_i;
        shfl.sync.idx.b32 %wbpf_g4, %wbpf_g4, %wbpf_g5, 31, %wbpf_g0;
        sub.s32 %wbpf_g5, %wbpf_g1, %wbpf_g2;
        {link}
        mov.b64 %wbpf_q, %wbpf_i;
        mov.b32 %wbpf_n, {turns};
        mov.b32 %wbpf_g9, {PAUSE};
        ld.relaxed.gpu.global.u64 %wbpf_e, [%wbpf_base+{top}];
        $wbpf_turn:
        cvt.u32.u64 %wbpf_g6, %wbpf_e;
        {told}
        selp.b32 %wbpf_g7, %wbpf_g6, %wbpf_g4, %wbpf_p1;
        st.relaxed.gpu.global.u32 [%wbpf_at+{below}], %wbpf_g7;
        st.relaxed.gpu.global.u32 [%wbpf_at+{below_run}], %wbpf_g6;
        st.relaxed.gpu.global.u32 [%wbpf_at+{left}], %wbpf_g5;
        bar.warp.sync %wbpf_g0;
        {swap}
        $wbpf_pushed:",
        link = link(),
        turns = QueueLayout::TURNS,
        top = QueueLayout::VALUES,
        told = told("%wbpf_g6"),
        below = l.link(0) + QueueLayout::BELOW,
        below_run = l.link(0) + QueueLayout::BELOW_RUN,
        left = l.link(0) + QueueLayout::LEFT,
        swap = swap("$wbpf_pushed", "$wbpf_unpushed", ptx),
    )
}

/// Takes the top for this lane, with as many as there are lanes here if they are a run: `%wbpf_i`
/// becomes its number plus one. Goes to `$wbpf_empty` if there is none, to `$wbpf_busy` after too
/// many turns.
pub fn take(l: &QueueLayout, ptx: (u32, u32)) -> String {
    // `%wbpf_g4` is the node on top, `%wbpf_g5` the one below, `%wbpf_g6` that below its run,
    // `%wbpf_g7` how many are taken.
    format!(
        ".reg .b32 %wbpf_g<10>;
        mov.b32 %wbpf_n, {turns};
        mov.b32 %wbpf_g9, {PAUSE};
        $wbpf_gather:
        {TOGETHER}
        ld.acquire.gpu.global.u64 %wbpf_e, [%wbpf_base+{top}];
        $wbpf_turn:
        cvt.u32.u64 %wbpf_g4, %wbpf_e;
        {told_top}
        setp.eq.s32 %wbpf_p0, %wbpf_g4, 0;
        @%wbpf_p0 bra $wbpf_empty;
        cvt.u64.u32 %wbpf_i, %wbpf_g4;
        {link}
        mov.b32 %wbpf_g5, 0;
        mov.b32 %wbpf_g6, 0;
        mov.b32 %wbpf_g7, 0;
        @%wbpf_p2 ld.relaxed.gpu.global.u32 %wbpf_g5, [%wbpf_at+{below}];
        @%wbpf_p2 ld.relaxed.gpu.global.u32 %wbpf_g6, [%wbpf_at+{below_run}];
        @%wbpf_p2 ld.relaxed.gpu.global.u32 %wbpf_g7, [%wbpf_at+{left}];
        setp.le.u32 %wbpf_p1, %wbpf_g7, %wbpf_g1;
        selp.b32 %wbpf_g5, %wbpf_g6, %wbpf_g5, %wbpf_p1;
        selp.b32 %wbpf_g7, %wbpf_g7, 1, %wbpf_p1;
        {told_taken}
        cvt.u64.u32 %wbpf_q, %wbpf_g5;
        {swap}
        $wbpf_got:
        bar.warp.sync %wbpf_g0;
        setp.lt.u32 %wbpf_p1, %wbpf_g2, %wbpf_g7;
        selp.b32 %wbpf_g5, %wbpf_g2, 0, %wbpf_p1;
        $wbpf_walk:
        setp.eq.s32 %wbpf_p0, %wbpf_g5, 0;
        @%wbpf_p0 bra $wbpf_walked;
        {link}
        ld.relaxed.gpu.global.u32 %wbpf_g4, [%wbpf_at+{below}];
        cvt.u64.u32 %wbpf_i, %wbpf_g4;
        add.s32 %wbpf_g5, %wbpf_g5, -1;
        bra $wbpf_walk;
        $wbpf_walked:
        bar.warp.sync %wbpf_g0;
        @%wbpf_p1 bra $wbpf_mine;
        add.s32 %wbpf_n, %wbpf_n, -1;
        setp.le.s32 %wbpf_p0, %wbpf_n, 0;
        @%wbpf_p0 bra $wbpf_busy;
        bra $wbpf_gather;
        $wbpf_mine:",
        turns = QueueLayout::TURNS,
        top = QueueLayout::VALUES,
        told_top = told("%wbpf_g4"),
        told_taken = told("%wbpf_g7"),
        link = link(),
        below = l.link(0) + QueueLayout::BELOW,
        below_run = l.link(0) + QueueLayout::BELOW_RUN,
        left = l.link(0) + QueueLayout::LEFT,
        swap = swap("$wbpf_got", "$wbpf_busy", ptx),
    )
}
