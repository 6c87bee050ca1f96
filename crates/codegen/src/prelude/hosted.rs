//! A hash on the host: a lane asks for the operation and looks for the answer, for a bounded time
//! (`HostedLayout`).
//!
//! Taking a slot and waiting for its answer are one loop, in which each lane does what is next for
//! it. In two loops the lanes of a warp could be made to wait, between them, for those that have no
//! slot yet, while they hold slots.

use warpbpf_abi::layout::HostedLayout as H;
use warpbpf_abi::maps::ETIMEDOUT;

use super::nap::nap;
use super::shape::Shape;
use super::text::Text;
use crate::ir::HashOp;

/// Nanoseconds that a lane sleeps when the slot it looked at is taken.
const PAUSE: u32 = 200;

/// Everything behind the hash of the key, up to `$wbpf_done`. The hash only says where the search
/// for a slot begins.
pub fn body(f: &mut Text, op: HashOp, l: &H, shape: &Shape, ptx: (u32, u32)) {
    f.code(&format!(
        ".reg .b64 %wbpf_host, %wbpf_limit, %wbpf_since, %wbpf_now, %wbpf_claim, %wbpf_ticket, %wbpf_at;
        .reg .pred %wbpf_mine;
        ld.global.u64 %wbpf_host, [%wbpf_base+{host}];
        ld.global.u64 %wbpf_limit, [%wbpf_base+{limit}];
        mov.u64 %wbpf_since, %globaltimer;
        ld.relaxed.gpu.global.u64 %wbpf_s, [%wbpf_base+{stalled}];
        setp.eq.s64 %wbpf_p0, %wbpf_s, 0;
        @%wbpf_p0 bra $wbpf_begin;
        ld.relaxed.sys.global.u64 %wbpf_t0, [%wbpf_host+{alive}];
        add.s64 %wbpf_t0, %wbpf_t0, 1;
        setp.eq.s64 %wbpf_p0, %wbpf_s, %wbpf_t0;
        @%wbpf_p0 bra $wbpf_late;
        mov.b64 %wbpf_t0, 0;
        st.relaxed.gpu.global.u64 [%wbpf_base+{stalled}], %wbpf_t0;
        $wbpf_begin:
        mov.u32 %wbpf_w0, %smid;
        mul.lo.u32 %wbpf_w0, %wbpf_w0, 131;
        mov.u32 %wbpf_w1, %warpid;
        mad.lo.u32 %wbpf_w0, %wbpf_w1, 32, %wbpf_w0;
        mov.u32 %wbpf_w1, %laneid;
        add.u32 %wbpf_w0, %wbpf_w0, %wbpf_w1;
        and.b32 %wbpf_w0, %wbpf_w0, {mask};
        mov.b32 %wbpf_w1, {rounds};
        setp.ne.u32 %wbpf_mine, %wbpf_w1, %wbpf_w1;
        $wbpf_round:
        .pragma \"nounroll\";
        mul.wide.u32 %wbpf_at, %wbpf_w0, 8;
        @%wbpf_mine bra $wbpf_look;
        add.s64 %wbpf_claim, %wbpf_base, %wbpf_at;
        ld.relaxed.gpu.global.u64 %wbpf_s, [%wbpf_claim+{claims}];
        shr.u64 %wbpf_ticket, %wbpf_s, 2;
        cvt.u32.u64 %wbpf_w2, %wbpf_s;
        and.b32 %wbpf_w2, %wbpf_w2, 3;
        setp.eq.u32 %wbpf_p0, %wbpf_w2, {free};
        @%wbpf_p0 bra $wbpf_take;
        setp.ne.u32 %wbpf_p0, %wbpf_w2, {abandoned};
        @%wbpf_p0 bra $wbpf_other;
        add.s64 %wbpf_t0, %wbpf_host, %wbpf_at;
        ld.acquire.sys.global.u64 %wbpf_t1, [%wbpf_t0+{answers}];
        shr.u64 %wbpf_t1, %wbpf_t1, 32;
        add.s64 %wbpf_ticket, %wbpf_ticket, 1;
        and.b64 %wbpf_t0, %wbpf_ticket, 0xffffffff;
        setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_t1;
        @%wbpf_p0 bra $wbpf_other;
        $wbpf_take:
        shl.b64 %wbpf_t0, %wbpf_ticket, 2;
        or.b64 %wbpf_t0, %wbpf_t0, {taken};
        atom.acquire.gpu.global.cas.b64 %wbpf_t1, [%wbpf_claim+{claims}], %wbpf_s, %wbpf_t0;
        setp.ne.s64 %wbpf_p0, %wbpf_t1, %wbpf_s;
        @%wbpf_p0 bra $wbpf_other;",
        host = H::HOST,
        limit = H::LIMIT,
        stalled = H::STALLED,
        alive = H::ALIVE,
        mask = H::SLOTS - 1,
        rounds = H::ROUNDS,
        claims = H::CLAIMS,
        free = H::FREE,
        abandoned = H::ABANDONED,
        answers = H::ANSWERS,
        taken = H::TAKEN,
    ));
    ask(f, op, l, shape);
    let pause = nap(PAUSE, ptx);
    f.code(&format!(
        "bra $wbpf_next;
        $wbpf_other:
        add.s32 %wbpf_w0, %wbpf_w0, 1;
        and.b32 %wbpf_w0, %wbpf_w0, {mask};
        {pause}
        bra $wbpf_next;
        $wbpf_look:
        add.s64 %wbpf_t0, %wbpf_host, %wbpf_at;
        ld.acquire.sys.global.u64 %wbpf_s, [%wbpf_t0+{answers}];
        shr.u64 %wbpf_t0, %wbpf_s, 32;
        and.b64 %wbpf_t1, %wbpf_ticket, 0xffffffff;
        setp.eq.s64 %wbpf_p0, %wbpf_t0, %wbpf_t1;
        @%wbpf_p0 bra $wbpf_answered;
        $wbpf_next:
        add.s32 %wbpf_w1, %wbpf_w1, -1;
        setp.eq.s32 %wbpf_p0, %wbpf_w1, 0;
        @%wbpf_p0 bra $wbpf_leave;
        mov.u64 %wbpf_now, %globaltimer;
        sub.s64 %wbpf_now, %wbpf_now, %wbpf_since;
        setp.lt.s64 %wbpf_p0, %wbpf_now, %wbpf_limit;
        @%wbpf_p0 bra $wbpf_round;
        $wbpf_leave:
        ld.relaxed.sys.global.u64 %wbpf_t0, [%wbpf_host+{alive}];
        add.s64 %wbpf_t0, %wbpf_t0, 1;
        st.relaxed.gpu.global.u64 [%wbpf_base+{stalled}], %wbpf_t0;
        @!%wbpf_mine bra $wbpf_late;
        add.s64 %wbpf_t0, %wbpf_ticket, -1;
        shl.b64 %wbpf_t0, %wbpf_t0, 2;
        or.b64 %wbpf_t0, %wbpf_t0, {abandoned};
        st.release.gpu.global.u64 [%wbpf_claim+{claims}], %wbpf_t0;
        $wbpf_late:
        red.relaxed.gpu.global.add.u64 [%wbpf_host+{late}], 1;
        mov.b64 %wbpf_res, {res};
        bra $wbpf_done;
        $wbpf_answered:
        shl.b64 %wbpf_t0, %wbpf_ticket, 2;
        st.release.gpu.global.u64 [%wbpf_claim+{claims}], %wbpf_t0;
        shl.b64 %wbpf_res, %wbpf_s, 32;
        shr.s64 %wbpf_res, %wbpf_res, 32;",
        mask = H::SLOTS - 1,
        answers = H::ANSWERS,
        alive = H::ALIVE,
        stalled = H::STALLED,
        abandoned = H::ABANDONED,
        claims = H::CLAIMS,
        late = H::TIMED_OUT,
        res = if op == HashOp::Lookup { 0 } else { ETIMEDOUT },
    ));
    if op == HashOp::Lookup {
        // Errors are beyond the entries, too, as numbers without a sign.
        f.code(&format!(
            "setp.lt.u64 %wbpf_p0, %wbpf_res, {};
            mad.lo.s64 %wbpf_res, %wbpf_res, {}, %wbpf_host;
            add.s64 %wbpf_res, %wbpf_res, {};
            @%wbpf_p0 bra $wbpf_done;
            mov.b64 %wbpf_res, 0;",
            l.entries(),
            l.entry_stride(),
            l.entries_at() + H::ENTRY_KEY + l.key_stride(),
        ));
    }
}

/// Writes the request into the slot that was taken. All of it is there when the host sees the
/// ticket.
fn ask(f: &mut Text, op: HashOp, l: &H, shape: &Shape) {
    let code = match op {
        HashOp::Lookup => H::LOOKUP,
        HashOp::Update => H::UPDATE,
        HashOp::Delete => H::DELETE,
    };
    f.code(&format!(
        "mad.wide.u32 %wbpf_t0, %wbpf_w0, {}, %wbpf_host;
        mov.b64 %wbpf_t1, {code};
        st.relaxed.sys.global.u64 [%wbpf_t0+{}], %wbpf_t1;",
        l.slot_stride(),
        H::FIRST_SLOT + H::OP,
    ));
    for i in 0..shape.keys() {
        f.code(&format!(
            "st.relaxed.sys.global.u64 [%wbpf_t0+{}], %wbpf_k{i};",
            H::FIRST_SLOT + H::KEY + i * 8
        ));
    }
    if op == HashOp::Update {
        f.code(&format!(
            "st.relaxed.sys.global.u64 [%wbpf_t0+{}], %wbpf_flags;",
            H::FIRST_SLOT + H::FLAGS
        ));
        let first = Shape::first_key(op) + shape.keys();
        for i in 0..shape.values() {
            f.code(&format!(
                "ld.param.b64 %wbpf_t1, [wbpf_a{}];
                st.relaxed.sys.global.u64 [%wbpf_t0+{}], %wbpf_t1;",
                first + i,
                H::FIRST_SLOT + H::KEY + l.key_stride() + i * 8
            ));
        }
    }
    f.code(&format!(
        "add.s64 %wbpf_ticket, %wbpf_ticket, 1;
        add.s64 %wbpf_t0, %wbpf_host, %wbpf_at;
        st.release.sys.global.u64 [%wbpf_t0+{}], %wbpf_ticket;
        setp.eq.u32 %wbpf_mine, %wbpf_w0, %wbpf_w0;",
        H::REQUESTS
    ));
}
