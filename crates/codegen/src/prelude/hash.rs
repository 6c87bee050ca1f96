//! HASH and PERCPU_HASH on the device: see [`HashLayout`].

use warpbpf_abi::layout::HashLayout;
use warpbpf_abi::maps::{BPF_EXIST, BPF_NOEXIST, E2BIG, EBUSY, EEXIST, ENOENT};

use super::nap::nap;
use super::room::{Maps, each_shard, find_room, own_shard, refund, settle, together};
use super::shape::{Shape, own_copy, store_key, store_value};
use super::text::Text;
use crate::bitmap::Search;
use crate::ir::HashOp;

/// How often an update looks at slots again at most, because others changed them under its hands.
pub const TRIES: u32 = 64;
/// How often an insert that meets another lane's claim looks again, after a pause, before it goes
/// past the claim: nodes of the pool, which that takes, are not used again before the map is
/// compacted.
pub const CLAIM_LOOKS: u32 = 8;
/// Such a pause, in nanoseconds at most: about what a claimant needs to fill its place.
pub const CLAIM_PAUSE: u32 = 200;
/// Most words of the bitmap of free nodes that one search looks at.
const FREE_SEARCH: u64 = 64;

/// Everything behind the hash of the key, up to `$wbpf_done`.
pub fn body(f: &mut Text, op: HashOp, l: &HashLayout, shape: &Shape, maps: Maps, ptx: (u32, u32)) {
    if op != HashOp::Delete {
        own_copy(f, shape, l.value_stride());
    }
    if op == HashOp::Update {
        // `%wbpf_w2` is the node that this call has taken and that nobody has seen, as in a slot's
        // word; 0 while it has none.
        start_update(f, l);
        f.code(&format!(
            ".reg .b64 %wbpf_claim, %wbpf_alive;
            mov.b32 %wbpf_w2, 0;
            mov.b32 %wbpf_w10, {CLAIM_LOOKS};"
        ));
    }
    probe(f, op, l, shape);
    match op {
        HashOp::Lookup => lookup_ends(f, l, shape),
        HashOp::Delete => delete_ends(f, l, maps, HashLayout::DEAD),
        HashOp::Update => update_ends(f, l, shape, maps, ptx),
    }
}

/// What an update of either kind of slots begins with. What the own shard counts is asked for now,
/// so that it is here when an insert wants to know.
pub fn start_update(f: &mut Text, l: &HashLayout) {
    own_shard(f, l.counting());
    f.code(&format!(
        ".reg .b32 %wbpf_room, %wbpf_looks;
        ld.relaxed.gpu.global.u32 %wbpf_w11, [%wbpf_t2+{}];
        mov.b32 %wbpf_room, 0;
        mov.b32 %wbpf_looks, {looks};
        mov.b32 %wbpf_w3, {TRIES};",
        HashLayout::USED,
        looks = HashLayout::ROOM_LOOKS
    ));
}

/// Goes from slot to slot. To `$wbpf_found` if the key is there, with its address in `%wbpf_node`;
/// to `$wbpf_absent` at the slot that is the key's, or would be: empty, or claimed for a key with
/// its tag, or the key's own and dead or claimed, and then `%wbpf_node` is as before. Falls through
/// when all probes are used. The slot's address is in `%wbpf_slot`, its word in `%wbpf_s`.
fn probe(f: &mut Text, op: HashOp, l: &HashLayout, shape: &Shape) {
    f.code(&format!(
        ".reg .b64 %wbpf_want, %wbpf_x;
        and.b64 %wbpf_tag, %wbpf_h, 0xffffffff00000000;
        or.b64 %wbpf_want, %wbpf_tag, {:#x};
        cvt.u32.u64 %wbpf_w0, %wbpf_h;
        and.b32 %wbpf_w0, %wbpf_w0, {mask};
        mov.b32 %wbpf_w1, {};
        $wbpf_probe:
        .pragma \"nounroll\";
        mad.wide.u32 %wbpf_slot, %wbpf_w0, {}, %wbpf_base;
        add.s64 %wbpf_slot, %wbpf_slot, {};",
        HashLayout::HOME,
        HashLayout::PROBES,
        l.slot_stride(),
        HashLayout::SLOTS,
        mask = l.slots() - 1
    ));
    if op == HashOp::Update {
        f.code("$wbpf_read:");
    }
    if l.homes() {
        home(f, shape);
    } else {
        f.code(
            "ld.acquire.gpu.global.u64 %wbpf_s, [%wbpf_slot];
            setp.eq.s64 %wbpf_p0, %wbpf_s, 0;
            @%wbpf_p0 bra $wbpf_absent;",
        );
    }
    // `%wbpf_t0` becomes the lower half if the tag is ours, else more than that.
    f.code(&format!(
        "xor.b64 %wbpf_t0, %wbpf_s, %wbpf_tag;
        setp.gt.u64 %wbpf_p0, %wbpf_t0, 0xffffffff;
        @%wbpf_p0 bra $wbpf_next;
        and.b64 %wbpf_t1, %wbpf_t0, {:#x};",
        HashLayout::PLACE
    ));
    if l.homes() {
        f.code(
            "setp.eq.s64 %wbpf_p0, %wbpf_t1, 0;
            @%wbpf_p0 bra $wbpf_absent;",
        );
    }
    f.code(&format!(
        "mad.lo.s64 %wbpf_node, %wbpf_t1, {}, %wbpf_base;
        add.s64 %wbpf_node, %wbpf_node, {};",
        l.node_stride(),
        l.nodes_at() as i64 - (HashLayout::FIRST_NODE * l.node_stride()) as i64
    ));
    if l.homes() {
        f.code(&format!(
            "setp.eq.s64 %wbpf_p0, %wbpf_t1, {};
            add.s64 %wbpf_t1, %wbpf_slot, 8;
            selp.b64 %wbpf_node, %wbpf_t1, %wbpf_node, %wbpf_p0;",
            HashLayout::HOME
        ));
    }
    // A place that was published once never changes its key, and the slot was read with acquire:
    // plain loads are enough.
    for i in 0..shape.keys() {
        f.code(&format!(
            "ld.global.u64 %wbpf_t1, [%wbpf_node+{}];
            setp.ne.s64 %wbpf_p0, %wbpf_t1, %wbpf_k{i};
            @%wbpf_p0 bra $wbpf_next;",
            i * 8
        ));
    }
    f.code(&format!(
        "and.b64 %wbpf_t0, %wbpf_t0, {:#x};
        setp.ne.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 bra $wbpf_absent;
        bra $wbpf_found;
        $wbpf_next:
        add.s32 %wbpf_w0, %wbpf_w0, 1;
        and.b32 %wbpf_w0, %wbpf_w0, {};
        add.s32 %wbpf_w1, %wbpf_w1, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w1, 0;
        @%wbpf_p0 bra $wbpf_probe;",
        HashLayout::DEAD,
        l.slots() - 1
    ));
}

/// Reads a slot with the first word of its home, and looks whether the key is in the home.
fn home(f: &mut Text, shape: &Shape) {
    // The key's word may be read before the slot's, so it may be from before the home was filled:
    // zero then. So one that is the key's and not zero is right, and zero is read again.
    f.code(
        "ld.acquire.gpu.global.v2.u64 {%wbpf_s, %wbpf_x}, [%wbpf_slot];
        setp.eq.s64 %wbpf_p0, %wbpf_s, 0;
        @%wbpf_p0 bra $wbpf_absent;
        setp.ne.s64 %wbpf_p0, %wbpf_s, %wbpf_want;
        @%wbpf_p0 bra $wbpf_pool;
        setp.ne.s64 %wbpf_p0, %wbpf_x, 0;
        @%wbpf_p0 bra $wbpf_known;
        ld.global.u64 %wbpf_x, [%wbpf_slot+8];
        $wbpf_known:
        setp.ne.s64 %wbpf_p0, %wbpf_x, %wbpf_k0;
        @%wbpf_p0 bra $wbpf_next;",
    );
    for i in 1..shape.keys() {
        f.code(&format!(
            "ld.global.u64 %wbpf_x, [%wbpf_slot+{}];
            setp.ne.s64 %wbpf_p0, %wbpf_x, %wbpf_k{i};
            @%wbpf_p0 bra $wbpf_next;",
            8 + i * 8
        ));
    }
    f.code(
        "add.s64 %wbpf_node, %wbpf_slot, 8;
        bra $wbpf_found;
        $wbpf_pool:",
    );
}

/// `%wbpf_t0` becomes the address of the value that this lane uses.
fn value_address(f: &mut Text, l: &HashLayout, shape: &Shape) {
    f.code(&format!(
        "add.s64 %wbpf_t0, %wbpf_node, {};",
        l.key_stride()
    ));
    if shape.copies > 1 {
        f.code("add.s64 %wbpf_t0, %wbpf_t0, %wbpf_copy;");
    }
}

fn lookup_ends(f: &mut Text, l: &HashLayout, shape: &Shape) {
    f.code(
        "$wbpf_absent:
        mov.b64 %wbpf_res, 0;
        bra $wbpf_done;
        $wbpf_found:",
    );
    value_address(f, l, shape);
    f.code("mov.b64 %wbpf_res, %wbpf_t0;");
}

/// Sets the bit `dead` of the word in `%wbpf_slot`.
pub fn delete_ends(f: &mut Text, l: &HashLayout, maps: Maps, dead: u64) {
    // The slot stays the key's, and keeps its place. A claim has the bit already, so it is left
    // alone.
    f.code(&format!(
        "$wbpf_absent:
        mov.b64 %wbpf_res, {ENOENT};
        bra $wbpf_done;
        $wbpf_found:
        mov.b64 %wbpf_t1, {dead:#x};
        atom.relaxed.gpu.global.or.b64 %wbpf_t0, [%wbpf_slot], %wbpf_t1;
        and.b64 %wbpf_t0, %wbpf_t0, {dead:#x};
        setp.ne.s64 %wbpf_p0, %wbpf_t0, 0;
        @%wbpf_p0 bra $wbpf_absent;"
    ));
    own_shard(f, l.counting());
    together(f, maps);
    f.code(&format!(
        "cvt.u64.u32 %wbpf_t0, %wbpf_w7;
        neg.s64 %wbpf_t0, %wbpf_t0;
        @%wbpf_p1 red.relaxed.gpu.global.add.u64 [%wbpf_t2+{}], %wbpf_t0;
        mov.b64 %wbpf_res, 0;",
        HashLayout::USED
    ));
}

fn update_ends(f: &mut Text, l: &HashLayout, shape: &Shape, maps: Maps, ptx: (u32, u32)) {
    refusals(f, HashLayout::CLAIMED);
    let pause = nap(CLAIM_PAUSE, ptx);
    find_room(f, l, maps, &pause);
    claim_in_place(f, l, shape);
    past_a_claim(f, l, maps, &pause);
    take(f, l);
    fill(f, l, shape);
    put(f, l);
    publish(f, l, maps);
    found(f, l, shape);
    release(f, l, shape, maps);
}

/// The ends of an update that has no place, and the beginning of one whose key is not there: at
/// `$wbpf_claimed` if the slot's word has the bits `claimed`, else behind this.
pub fn refusals(f: &mut Text, claimed: u64) {
    // All probes used: a key that must exist does not, any other has no place.
    f.code(&format!(
        "setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_EXIST};
        mov.b64 %wbpf_res, {ENOENT};
        @%wbpf_p0 bra $wbpf_release;
        $wbpf_busy:
        mov.b64 %wbpf_res, {EBUSY};
        red.relaxed.gpu.global.add.u64 [%wbpf_base+{}], 1;
        bra $wbpf_release;
        $wbpf_full:
        mov.b64 %wbpf_res, {E2BIG};
        red.relaxed.gpu.global.add.u64 [%wbpf_base+{}], 1;
        bra $wbpf_release;
        $wbpf_again:
        add.s32 %wbpf_w3, %wbpf_w3, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w3, 0;
        @%wbpf_p0 bra $wbpf_read;
        bra $wbpf_busy;
        $wbpf_absent:
        setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_EXIST};
        mov.b64 %wbpf_res, {ENOENT};
        @%wbpf_p0 bra $wbpf_release;
        and.b64 %wbpf_t0, %wbpf_s, {claimed:#x};
        setp.eq.s64 %wbpf_p0, %wbpf_t0, {claimed:#x};
        @%wbpf_p0 bra $wbpf_claimed;",
        HashLayout::COUNT_BUSY,
        HashLayout::COUNT_FULL
    ));
}

/// Claims the slot for a place that it has, where it has one, and fills that: its home if it is
/// empty, its old place if the key was there and values are written in place. To `$wbpf_publish`
/// with that done, to `$wbpf_new` without one.
fn claim_in_place(f: &mut Text, l: &HashLayout, shape: &Shape) {
    // `%wbpf_p2`: the slot is empty.
    f.code("setp.eq.s64 %wbpf_p2, %wbpf_s, 0;");
    match (l.homes(), l.swaps()) {
        (false, true) => return f.code("bra $wbpf_new;"),
        (false, false) => f.code("@%wbpf_p2 bra $wbpf_new;"),
        (true, true) => f.code("@!%wbpf_p2 bra $wbpf_new;"),
        (true, false) => {}
    }
    f.code(&format!(
        "or.b64 %wbpf_claim, %wbpf_s, %wbpf_tag;
        or.b64 %wbpf_claim, %wbpf_claim, {:#x};
        xor.b64 %wbpf_alive, %wbpf_s, {:#x};",
        HashLayout::CLAIMED,
        HashLayout::DEAD
    ));
    if l.homes() {
        f.code(
            "add.s64 %wbpf_t0, %wbpf_slot, 8;
            selp.b64 %wbpf_node, %wbpf_t0, %wbpf_node, %wbpf_p2;
            selp.b64 %wbpf_alive, %wbpf_want, %wbpf_alive, %wbpf_p2;",
        );
    }
    f.code(
        "atom.relaxed.gpu.global.cas.b64 %wbpf_t0, [%wbpf_slot], %wbpf_s, %wbpf_claim;
        setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;
        @%wbpf_p0 bra $wbpf_again;",
    );
    if l.homes() {
        // Where the key is already, others may be comparing it.
        f.code("@!%wbpf_p2 bra $wbpf_revived;");
        store_key(f, shape);
        f.code("bra $wbpf_keyed;\n$wbpf_revived:");
    }
    if !l.swaps() {
        // Whoever sees what is written into the place now can know that the key was gone before.
        f.code("fence.acq_rel.gpu;");
        if shape.copies > 1 {
            zero_values(f, l);
        }
    }
    f.code("$wbpf_keyed:");
    value_address(f, l, shape);
    store_value(f, shape);
    f.code("bra $wbpf_publish;");
}

/// Zeroes all copies of the value of `%wbpf_node`.
fn zero_values(f: &mut Text, l: &HashLayout) {
    f.code(&format!(
        "add.s64 %wbpf_t0, %wbpf_node, {};
        mov.b32 %wbpf_w8, {};
        $wbpf_zero:
        .pragma \"nounroll\";
        st.relaxed.gpu.global.u64 [%wbpf_t0], 0;
        add.s64 %wbpf_t0, %wbpf_t0, 8;
        add.s32 %wbpf_w8, %wbpf_w8, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w8, 0;
        @%wbpf_p0 bra $wbpf_zero;",
        l.key_stride(),
        u64::from(l.copies) * l.value_stride() / 8
    ));
}

/// Another lane has claimed the slot: looks again a few times, and then goes past the claim with a
/// node of the pool. The claimant has room for the key, so nobody else needs any.
fn past_a_claim(f: &mut Text, l: &HashLayout, maps: Maps, pause: &str) {
    f.code("$wbpf_claimed:");
    refund(f, l, maps, "$wbpf_unneeded");
    f.code(&format!(
        "setp.eq.s32 %wbpf_p0, %wbpf_w10, 0;
        @%wbpf_p0 bra $wbpf_new;
        add.s32 %wbpf_w10, %wbpf_w10, -1;
        {pause}
        bra $wbpf_again;
        $wbpf_new:
        setp.ne.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_filled;"
    ));
}

/// Takes a node of the pool; `%wbpf_w2` becomes what stands for it in a word.
fn take(f: &mut Text, l: &HashLayout) {
    each_shard(f, HashLayout::SHARDS, "$wbpf_fresh", "$wbpf_empty", |f| {
        // Looking first keeps the counter from running away, and wrapping, in a map that is out of
        // nodes.
        f.code(&format!(
            "ld.relaxed.gpu.global.u32 %wbpf_w8, [%wbpf_t2+{next}];
            setp.ge.u32 %wbpf_p0, %wbpf_w8, {nodes};
            @%wbpf_p0 bra $wbpf_empty;
            atom.relaxed.gpu.global.add.u32 %wbpf_w8, [%wbpf_t2+{next}], 1;
            mad.lo.s32 %wbpf_w2, %wbpf_w4, {nodes}, %wbpf_w8;
            add.s32 %wbpf_w2, %wbpf_w2, {};
            setp.lt.u32 %wbpf_p0, %wbpf_w8, {nodes};
            @%wbpf_p0 bra $wbpf_fill;",
            HashLayout::FIRST_NODE,
            next = HashLayout::NEXT_NODE,
            nodes = l.shard_nodes()
        ));
    });
    search_free(f, l);
    f.code(&format!(
        "mov.b32 %wbpf_w2, 0;
        bra $wbpf_again;
        $wbpf_reused:
        add.s32 %wbpf_w2, %wbpf_w2, {};",
        HashLayout::FIRST_NODE
    ));
}

/// Looks for a node that was given back. Falls through without one.
fn search_free(f: &mut Text, l: &HashLayout) {
    let search = Search {
        at: l.free_at(),
        words: l.free_words(),
        most: l.free_words().min(FREE_SEARCH),
        set_is_free: true,
        node: "%wbpf_w2",
        word: "%wbpf_w4",
        bit: "%wbpf_w8",
        old: "%wbpf_w9",
        left: "%wbpf_w6",
        address: "%wbpf_t0",
        found: "$wbpf_reused",
    };
    f.code(&search.text());
}

/// `%wbpf_node` becomes the address of the node that `%wbpf_w2` stands for.
fn node_address(f: &mut Text, l: &HashLayout) {
    f.code(&format!(
        "cvt.u64.u32 %wbpf_node, %wbpf_w2;
        mad.lo.s64 %wbpf_node, %wbpf_node, {}, %wbpf_base;
        add.s64 %wbpf_node, %wbpf_node, {};",
        l.node_stride(),
        l.nodes_at() as i64 - (HashLayout::FIRST_NODE * l.node_stride()) as i64
    ));
}

/// Writes key and value into the node taken. Copies of other SMs are zero in a free node.
fn fill(f: &mut Text, l: &HashLayout, shape: &Shape) {
    f.code("$wbpf_fill:");
    node_address(f, l);
    store_key(f, shape);
    value_address(f, l, shape);
    store_value(f, shape);
}

/// Puts the node into the slot as the key's place, if the slot is as it was; it is filled, so it
/// needs no claim. The ticket is used up if the slot was empty or dead: what takes the place of
/// another lane's claim is on that one's account.
fn put(f: &mut Text, l: &HashLayout) {
    // An empty slot is no key's either.
    f.code(&format!(
        "$wbpf_filled:
        cvt.u64.u32 %wbpf_alive, %wbpf_w2;
        or.b64 %wbpf_alive, %wbpf_alive, %wbpf_tag;
        and.b64 %wbpf_t0, %wbpf_s, {claimed:#x};
        setp.eq.s64 %wbpf_p1, %wbpf_t0, {:#x};
        setp.eq.s64 %wbpf_p2, %wbpf_s, 0;
        or.pred %wbpf_p1, %wbpf_p1, %wbpf_p2;
        atom.release.gpu.global.cas.b64 %wbpf_t1, [%wbpf_slot], %wbpf_s, %wbpf_alive;
        setp.ne.s64 %wbpf_p0, %wbpf_t1, %wbpf_s;",
        HashLayout::DEAD,
        claimed = HashLayout::CLAIMED
    ));
    if l.swaps() {
        // An overwrite that was overtaken by another or by a delete is done: its value was there,
        // for no time.
        f.code(
            "@!%wbpf_p0 bra $wbpf_taken;
            setp.eq.s64 %wbpf_p2, %wbpf_t0, 0;
            mov.b64 %wbpf_res, 0;
            @%wbpf_p1 bra $wbpf_again;
            @%wbpf_p2 bra $wbpf_release;
            bra $wbpf_again;
            $wbpf_taken:",
        );
    } else {
        f.code("@%wbpf_p0 bra $wbpf_again;");
    }
    // Others have seen the node, so it is no longer ours to give back.
    f.code(
        "mov.b32 %wbpf_w2, 0;
        mov.b64 %wbpf_res, 0;
        @!%wbpf_p1 bra $wbpf_release;
        setp.ne.s32 %wbpf_p2, %wbpf_w2, 0;
        bra $wbpf_settle;",
    );
}

/// Publishes what was claimed. If another lane went past the claim, the room that was found is that
/// one's.
fn publish(f: &mut Text, l: &HashLayout, maps: Maps) {
    f.code(
        "$wbpf_publish:
        mov.b64 %wbpf_res, 0;
        atom.release.gpu.global.cas.b64 %wbpf_t0, [%wbpf_slot], %wbpf_claim, %wbpf_alive;
        setp.ne.s64 %wbpf_p2, %wbpf_t0, %wbpf_claim;
        $wbpf_settle:",
    );
    settle(f, l, maps);
    f.code(
        "@%wbpf_p2 bra $wbpf_again;
        bra $wbpf_release;",
    );
}

fn found(f: &mut Text, l: &HashLayout, shape: &Shape) {
    f.code(&format!(
        "$wbpf_found:
        setp.eq.s64 %wbpf_p0, %wbpf_flags, {BPF_NOEXIST};
        mov.b64 %wbpf_res, {EEXIST};
        @%wbpf_p0 bra $wbpf_release;"
    ));
    if l.swaps() {
        return f.code("bra $wbpf_new;");
    }
    value_address(f, l, shape);
    store_value(f, shape);
    f.code("mov.b64 %wbpf_res, 0;");
}

/// Gives back a ticket that was not used and a node that was not published.
fn release(f: &mut Text, l: &HashLayout, shape: &Shape, maps: Maps) {
    f.code("$wbpf_release:");
    refund(f, l, maps, "$wbpf_settled");
    f.code(
        "setp.eq.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_done;",
    );
    if shape.copies > 1 {
        node_address(f, l);
        value_address(f, l, shape);
        for i in 0..shape.values() {
            f.code(&format!(
                "st.relaxed.gpu.global.u64 [%wbpf_t0+{}], 0;",
                i * 8
            ));
        }
    }
    f.code(&format!(
        "add.s32 %wbpf_w2, %wbpf_w2, {};
        shr.u32 %wbpf_w4, %wbpf_w2, 5;
        and.b32 %wbpf_w5, %wbpf_w2, 31;
        mov.b32 %wbpf_w6, 1;
        shl.b32 %wbpf_w6, %wbpf_w6, %wbpf_w5;
        mad.wide.u32 %wbpf_t0, %wbpf_w4, 4, %wbpf_base;
        add.s64 %wbpf_t0, %wbpf_t0, {};
        red.release.gpu.global.or.b32 [%wbpf_t0], %wbpf_w6;",
        -(HashLayout::FIRST_NODE as i64),
        l.free_at()
    ));
}
