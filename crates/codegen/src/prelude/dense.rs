//! HASH in dense slots on the device: see [`HashLayout::dense_word`].

use warpbpf_abi::layout::HashLayout;
use warpbpf_abi::maps::{BPF_NOEXIST, EEXIST};

use super::hash::{CLAIM_PAUSE, delete_ends, refusals, start_update};
use super::nap::nap;
use super::room::{Maps, find_room, refund, settle};
use super::text::Text;
use crate::fragment::Target;
use crate::ir::HashOp;

/// First PTX version with 128-bit atomics, and the first target (PTX ISA "Parallel Synchronization
/// and Communication Instructions: atom").
const WIDE_ATOMICS: ((u32, u32), u32) = ((8, 3), 90);

/// The module can have 128-bit atomics.
fn has_wide_atomics(target: Target) -> bool {
    target.ptx >= WIDE_ATOMICS.0 && target.sm >= WIDE_ATOMICS.1
}

/// Everything behind the hash of the key, up to `$wbpf_done`.
pub fn body(f: &mut Text, op: HashOp, l: &HashLayout, maps: Maps, target: Target) {
    if op == HashOp::Update {
        start_update(f, l);
    }
    probe(f, op, l);
    match op {
        HashOp::Lookup => f.code(&format!(
            "$wbpf_absent:
            mov.b64 %wbpf_res, 0;
            bra $wbpf_done;
            $wbpf_found:
            add.s64 %wbpf_res, %wbpf_slot, {};",
            HashLayout::DENSE_VALUE
        )),
        HashOp::Delete => delete_ends(f, l, maps, HashLayout::GONE),
        HashOp::Update => update_ends(f, l, maps, target),
    }
}

/// Goes from slot to slot. To `$wbpf_found` if the key is there; to `$wbpf_absent` at the slot that
/// is the key's, or would be: empty, or the key's own. Falls through when all probes are used. The
/// slot's address is in `%wbpf_slot`, its word in `%wbpf_s`, and in `%wbpf_want` what the word is
/// where the key is there.
///
/// There is one way out of the loop, where lanes meet again that made more steps and fewer: what
/// comes behind, they do together.
fn probe(f: &mut Text, op: HashOp, l: &HashLayout) {
    // A program reads the value behind a lookup, which must not be one from before the word; others
    // touch it with atomics and stores only.
    let order = match op {
        HashOp::Lookup => "acquire",
        HashOp::Update | HashOp::Delete => "relaxed",
    };
    f.code(&format!(
        ".reg .b64 %wbpf_want, %wbpf_x;
        shr.u64 %wbpf_want, %wbpf_h, {bits};
        shl.b64 %wbpf_want, %wbpf_want, {rest};
        or.b64 %wbpf_want, %wbpf_want, {owned};
        cvt.u32.u64 %wbpf_w0, %wbpf_h;
        and.b32 %wbpf_w0, %wbpf_w0, {mask};
        mov.b32 %wbpf_w1, {probes};",
        bits = l.slot_bits(),
        rest = HashLayout::REST,
        owned = HashLayout::OWNED,
        mask = l.slots() - 1,
        probes = HashLayout::PROBES,
    ));
    if op == HashOp::Update {
        f.code("$wbpf_read:");
    }
    address(f);
    f.code(&format!(
        "$wbpf_probe:
        .pragma \"nounroll\";
        ld.{order}.gpu.global.u64 %wbpf_s, [%wbpf_slot];
        setp.eq.s64 %wbpf_p0, %wbpf_s, 0;
        xor.b64 %wbpf_t0, %wbpf_s, %wbpf_want;
        setp.le.u64 %wbpf_p1, %wbpf_t0, {state};
        or.pred %wbpf_p0, %wbpf_p0, %wbpf_p1;
        @%wbpf_p0 bra $wbpf_probed;
        add.s64 %wbpf_want, %wbpf_want, {farther};
        add.s32 %wbpf_w0, %wbpf_w0, 1;
        and.b32 %wbpf_w0, %wbpf_w0, {mask};",
        state = HashLayout::STATE,
        farther = 1 << HashLayout::DISTANCE,
        mask = l.slots() - 1,
    ));
    address(f);
    f.code(
        "add.s32 %wbpf_w1, %wbpf_w1, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w1, 0;
        @%wbpf_p0 bra $wbpf_probe;
        $wbpf_probed:
        setp.ne.s32 %wbpf_p0, %wbpf_w1, 0;
        setp.eq.s64 %wbpf_p1, %wbpf_s, %wbpf_want;
        and.pred %wbpf_p1, %wbpf_p1, %wbpf_p0;
        @%wbpf_p1 bra $wbpf_found;
        @%wbpf_p0 bra $wbpf_absent;",
    );
}

/// `%wbpf_slot` becomes the address of slot `%wbpf_w0`.
fn address(f: &mut Text) {
    f.code(&format!(
        "mad.wide.u32 %wbpf_slot, %wbpf_w0, {}, %wbpf_base;
        add.s64 %wbpf_slot, %wbpf_slot, {};",
        HashLayout::DENSE_STRIDE,
        HashLayout::SLOTS
    ));
}

fn update_ends(f: &mut Text, l: &HashLayout, maps: Maps, target: Target) {
    refusals(f, HashLayout::MAKING);
    let pause = nap(CLAIM_PAUSE, target.ptx);
    find_room(f, l, maps, &pause);
    f.code(
        "ld.param.b64 %wbpf_x, [wbpf_a3];
        setp.eq.s64 %wbpf_p2, %wbpf_s, 0;
        mov.b64 %wbpf_res, 0;",
    );
    if has_wide_atomics(target) {
        exchange(f);
    } else {
        claim(f);
    }
    settle(f, l, maps);
    f.code("bra $wbpf_release;");
    claimed(f, l, maps, &pause);
    f.code(&format!(
        "$wbpf_found:
        setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_NOEXIST};
        mov.b64 %wbpf_res, {EEXIST};
        @%wbpf_p0 bra $wbpf_release;
        ld.param.b64 %wbpf_x, [wbpf_a3];
        atom.relaxed.gpu.global.exch.b64 %wbpf_x, [%wbpf_slot+{}], %wbpf_x;
        mov.b64 %wbpf_res, 0;
        $wbpf_release:",
        HashLayout::DENSE_VALUE
    ));
    refund(f, l, maps, "$wbpf_settled");
}

/// Puts word and value into the slot at once, if it is as it was.
fn exchange(f: &mut Text) {
    // A lane that is overtaken mostly finds its own key, and need not read it once more. An empty
    // slot has no value yet. Of one whose key is gone the value may still change, under pointers to
    // it: then it is looked again.
    f.code(&format!(
        ".reg .b128 %wbpf_q<3>;
        mov.b64 %wbpf_t1, 0;
        @!%wbpf_p2 ld.relaxed.gpu.global.u64 %wbpf_t1, [%wbpf_slot+{}];
        mov.b128 %wbpf_q0, {{%wbpf_s, %wbpf_t1}};
        mov.b128 %wbpf_q1, {{%wbpf_want, %wbpf_x}};
        atom.relaxed.gpu.global.cas.b128 %wbpf_q2, [%wbpf_slot], %wbpf_q0, %wbpf_q1;
        mov.b128 {{%wbpf_t2, %wbpf_t3}}, %wbpf_q2;
        setp.ne.s64 %wbpf_p0, %wbpf_t2, %wbpf_s;
        setp.ne.s64 %wbpf_p1, %wbpf_t3, %wbpf_t1;
        or.pred %wbpf_p0, %wbpf_p0, %wbpf_p1;
        setp.eq.s64 %wbpf_p1, %wbpf_t2, %wbpf_want;
        @%wbpf_p1 bra $wbpf_found;
        @%wbpf_p0 bra $wbpf_again;",
        HashLayout::DENSE_VALUE
    ));
}

/// Claims the slot, stores the value and publishes the word. Nobody else changes a word that is
/// claimed.
fn claim(f: &mut Text) {
    f.code(&format!(
        "or.b64 %wbpf_t1, %wbpf_want, {making};
        atom.relaxed.gpu.global.cas.b64 %wbpf_t0, [%wbpf_slot], %wbpf_s, %wbpf_t1;
        setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;
        @%wbpf_p0 bra $wbpf_again;
        @%wbpf_p2 bra $wbpf_fresh;
        fence.acq_rel.gpu;
        $wbpf_fresh:
        st.relaxed.gpu.global.u64 [%wbpf_slot+{value}], %wbpf_x;
        st.release.gpu.global.u64 [%wbpf_slot], %wbpf_want;",
        making = HashLayout::MAKING,
        value = HashLayout::DENSE_VALUE
    ));
}

/// Another lane is about to put the key there, and has room for it.
fn claimed(f: &mut Text, l: &HashLayout, maps: Maps, pause: &str) {
    f.code("$wbpf_claimed:");
    refund(f, l, maps, "$wbpf_unneeded");
    f.code(&format!(
        "add.s32 %wbpf_looks, %wbpf_looks, -1;
        setp.eq.s32 %wbpf_p0, %wbpf_looks, 0;
        @%wbpf_p0 bra $wbpf_busy;
        {pause}
        bra $wbpf_read;"
    ));
}
