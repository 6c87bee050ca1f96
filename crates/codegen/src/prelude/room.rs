//! How the keys of a HASH are counted: is there room for one more, and whose account does it go on. See [`HashLayout`].

use warpbpf_abi::layout::HashLayout;

use super::text::Text;

/// Of the lanes that are here now with the same map: `%wbpf_w6` becomes the mask, `%wbpf_w7` their number, `%wbpf_w9` how
/// many are below this one, and `%wbpf_p1` whether that is none. Lanes that count together add once: all of a
/// multiprocessor meet in one word, and that is most of what counting costs.
pub fn together(f: &mut Text) {
    f.code(
        "activemask.b32 %wbpf_w6;
        match.any.sync.b64 %wbpf_w6, %wbpf_base, %wbpf_w6;
        popc.b32 %wbpf_w7, %wbpf_w6;
        mov.u32 %wbpf_w9, %lanemask_lt;
        and.b32 %wbpf_w9, %wbpf_w9, %wbpf_w6;
        popc.b32 %wbpf_w9, %wbpf_w9;
        setp.eq.s32 %wbpf_p1, %wbpf_w9, 0;",
    );
}

/// `%wbpf_w4` becomes the number of this SM's shard of `shards`, `%wbpf_t2` its address.
pub fn own_shard(f: &mut Text, shards: u32) {
    if shards == 1 {
        f.code("mov.b32 %wbpf_w4, 0;");
    } else {
        f.code(&format!(
            "mov.u32 %wbpf_w4, %smid;
            and.b32 %wbpf_w4, %wbpf_w4, {};",
            shards - 1
        ));
    }
    shard(f);
}

/// `%wbpf_t2` becomes the address of shard `%wbpf_w4`.
fn shard(f: &mut Text) {
    f.code(&format!(
        "mad.wide.u32 %wbpf_t2, %wbpf_w4, {}, %wbpf_base;
        add.s64 %wbpf_t2, %wbpf_t2, {};",
        HashLayout::CONTROL_STRIDE,
        HashLayout::CONTROL
    ));
}

/// `%wbpf_w5` becomes the quota of shard `%wbpf_w4`.
fn quota(f: &mut Text, l: &HashLayout) {
    if l.counting() == 1 {
        return f.code(&format!("mov.b32 %wbpf_w5, {};", l.max_entries));
    }
    let (each, more) = (
        l.max_entries / HashLayout::SHARDS,
        l.max_entries % HashLayout::SHARDS,
    );
    f.code(&format!(
        "setp.lt.u32 %wbpf_p0, %wbpf_w4, {more};
        selp.b32 %wbpf_w5, {}, {each}, %wbpf_p0;",
        each + 1
    ));
}

/// `inside` for each of the shards, from the own one on; falls through behind the last, and then the shard is the own one
/// again. It may branch to `next`.
pub fn each_shard(
    f: &mut Text,
    shards: u32,
    head: &str,
    next: &str,
    inside: impl FnOnce(&mut Text),
) {
    own_shard(f, shards);
    if shards == 1 {
        inside(f);
        return f.code(&format!("{next}:"));
    }
    f.code(&format!(
        "mov.b32 %wbpf_w6, {shards};
        {head}:
        .pragma \"nounroll\";"
    ));
    inside(f);
    f.code(&format!(
        "{next}:
        add.s32 %wbpf_w4, %wbpf_w4, 1;
        and.b32 %wbpf_w4, %wbpf_w4, {};",
        shards - 1
    ));
    shard(f);
    f.code(&format!(
        "add.s32 %wbpf_w6, %wbpf_w6, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w6, 0;
        @%wbpf_p0 bra {head};"
    ));
}

/// Goes on at `$wbpf_room` if some shard has room. Else as many keys as may be are counted: if this slot is as it was,
/// this key is not among them. Room that wandered from a shard ahead to one behind shows in the sum, and is looked for again.
pub fn look_for_room(f: &mut Text, l: &HashLayout) {
    own_shard(f, l.counting());
    quota(f, l);
    f.code(
        "setp.lt.s32 %wbpf_p0, %wbpf_w11, %wbpf_w5;
        @%wbpf_p0 bra $wbpf_room;",
    );
    f.code("mov.b32 %wbpf_w9, 0;");
    each_shard(f, l.counting(), "$wbpf_look", "$wbpf_looked", |f| {
        quota(f, l);
        f.code(&format!(
            "ld.relaxed.gpu.global.u32 %wbpf_w8, [%wbpf_t2+{}];
            add.s32 %wbpf_w9, %wbpf_w9, %wbpf_w8;
            setp.lt.s32 %wbpf_p0, %wbpf_w8, %wbpf_w5;
            @%wbpf_p0 bra $wbpf_room;",
            HashLayout::USED
        ));
    });
    f.code(&format!(
        "setp.lt.s32 %wbpf_p0, %wbpf_w9, {};
        @%wbpf_p0 bra $wbpf_again;
        fence.acq_rel.gpu;
        ld.acquire.gpu.global.u64 %wbpf_t0, [%wbpf_slot];
        setp.eq.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;
        @%wbpf_p0 bra $wbpf_full;
        bra $wbpf_again;
        $wbpf_room:",
        l.max_entries
    ));
}

/// Finds room for the key whose slot this lane has claimed. Without any, the slot is the key's all the same, and the key
/// is not there.
pub fn charge(f: &mut Text, l: &HashLayout) {
    f.code("$wbpf_charge:");
    own_shard(f, l.counting());
    quota(f, l);
    together(f);
    f.code(&format!(
        "brev.b32 %wbpf_w12, %wbpf_w6;
        clz.b32 %wbpf_w12, %wbpf_w12;
        mov.b32 %wbpf_w8, 0;
        @%wbpf_p1 atom.relaxed.gpu.global.add.u32 %wbpf_w8, [%wbpf_t2+{used}], %wbpf_w7;
        shfl.sync.idx.b32 %wbpf_w8, %wbpf_w8, %wbpf_w12, 31, %wbpf_w6;
        add.s32 %wbpf_w8, %wbpf_w8, %wbpf_w9;
        setp.lt.s32 %wbpf_p0, %wbpf_w8, %wbpf_w5;
        @%wbpf_p0 bra $wbpf_publish;
        red.relaxed.gpu.global.add.u32 [%wbpf_t2+{used}], -1;
        mov.b32 %wbpf_w9, 0;",
        used = HashLayout::USED
    ));
    each_shard(f, l.counting(), "$wbpf_search", "$wbpf_searched", |f| {
        quota(f, l);
        f.code(&format!(
            "ld.relaxed.gpu.global.u32 %wbpf_w8, [%wbpf_t2+{used}];
            add.s32 %wbpf_w9, %wbpf_w9, %wbpf_w8;
            setp.ge.s32 %wbpf_p0, %wbpf_w8, %wbpf_w5;
            @%wbpf_p0 bra $wbpf_searched;
            atom.relaxed.gpu.global.add.u32 %wbpf_w8, [%wbpf_t2+{used}], 1;
            setp.lt.s32 %wbpf_p0, %wbpf_w8, %wbpf_w5;
            @%wbpf_p0 bra $wbpf_publish;
            red.relaxed.gpu.global.add.u32 [%wbpf_t2+{used}], -1;",
            used = HashLayout::USED
        ));
    });
    // Who went past the claim counted on us: then there is one key too many, which has to be counted too. The shard is
    // the own one again.
    f.code(&format!(
        "or.b64 %wbpf_t1, %wbpf_alive, {:#x};
        atom.release.gpu.global.cas.b64 %wbpf_t0, [%wbpf_slot], %wbpf_claim, %wbpf_t1;
        setp.ne.s64 %wbpf_p0, %wbpf_t0, %wbpf_claim;
        @%wbpf_p0 red.relaxed.gpu.global.add.u32 [%wbpf_t2+{}], 1;
        @%wbpf_p0 bra $wbpf_again;
        setp.lt.s32 %wbpf_p0, %wbpf_w9, {};
        @%wbpf_p0 bra $wbpf_again;
        bra $wbpf_full;",
        HashLayout::DEAD,
        HashLayout::USED,
        l.max_entries
    ));
}
