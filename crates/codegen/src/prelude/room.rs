//! How the keys of a HASH are counted: is there room for one more, and whose account does it go on.
//! See [`HashLayout`].
//!
//! Additions are of whole words, whose halves are signed: a shard that gave back more than it took
//! counts below zero, and the borrow from the upper half is undone where it is read.

use warpbpf_abi::layout::HashLayout;

use super::text::Text;

/// A key more that is there and one that is being made, in a shard's word ([`HashLayout::USED`]).
const TICKET: u64 = HashLayout::PENDING + 1;
/// Keys for which a shard has room where lanes of a warp are sure enough that there is some for
/// each of them.
const PLENTY: i32 = 64;
/// What a map function knows about the lanes that are in it together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maps {
    /// All are there for this one map, whose number is part of the function's name.
    One,
    /// Lanes may have different maps.
    Several,
}

/// Of the lanes that are here now for the same map: `%wbpf_w6` becomes the mask, `%wbpf_w7` their
/// number, `%wbpf_w9` how many are below this one, and `%wbpf_p1` whether that is none. Lanes that
/// count together add once: all of a multiprocessor meet in one word, and that is most of what
/// counting costs.
pub fn together(f: &mut Text, maps: Maps) {
    f.code("activemask.b32 %wbpf_w6;");
    if maps == Maps::Several {
        f.code("match.any.sync.b64 %wbpf_w6, %wbpf_base, %wbpf_w6;");
    }
    count_group(f);
}

/// The group is `%wbpf_w6`, of which this lane is one.
fn count_group(f: &mut Text) {
    f.code(
        "popc.b32 %wbpf_w7, %wbpf_w6;
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

/// `inside` for each of the shards, from the own one on; falls through behind the last, and then
/// the shard is the own one again. It may branch to `next`.
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

/// Gets a ticket for a key that is not there, and goes on at `$wbpf_room` with it; falls through
/// nowhere. `%wbpf_room` is the number of the shard that gave it plus one, 0 without.
///
/// A ticket is got before a slot is claimed, because a slot that was claimed is the key's for good:
/// a key that is refused must use up none. Others may hold tickets that come to nothing, for a key
/// that somebody else has made meanwhile. So the map is full only if as many keys as may be are
/// there less those that are pending; else it is looked again, and if this slot is as it was then,
/// this key is not among them.
pub fn find_room(f: &mut Text, l: &HashLayout, maps: Maps, pause: &str) {
    f.code(
        "setp.ne.s32 %wbpf_p0, %wbpf_room, 0;
        @%wbpf_p0 bra $wbpf_room;",
    );
    own_shard(f, l.counting());
    quota(f, l);
    // Who adds and finds that it was too much takes back what it added, and in between others see
    // too much. So only where there is plenty of room is anything added unseen.
    f.code(&format!(
        "add.s32 %wbpf_w8, %wbpf_w11, {PLENTY};
        setp.ge.s32 %wbpf_p0, %wbpf_w8, %wbpf_w5;
        @%wbpf_p0 bra $wbpf_elsewhere;",
    ));
    together(f, maps);
    // What the shard counted at the start is out of date after this.
    f.code(&format!(
        "brev.b32 %wbpf_w12, %wbpf_w6;
        clz.b32 %wbpf_w12, %wbpf_w12;
        mov.b64 %wbpf_t0, {{%wbpf_w7, %wbpf_w7}};
        mov.b64 %wbpf_t1, 0;
        @%wbpf_p1 atom.relaxed.gpu.global.add.u64 %wbpf_t1, [%wbpf_t2+{used}], %wbpf_t0;
        cvt.u32.u64 %wbpf_w8, %wbpf_t1;
        shfl.sync.idx.b32 %wbpf_w8, %wbpf_w8, %wbpf_w12, 31, %wbpf_w6;
        add.s32 %wbpf_w8, %wbpf_w8, %wbpf_w9;
        mov.b32 %wbpf_w11, {most};
        add.s32 %wbpf_room, %wbpf_w4, 1;
        setp.lt.s32 %wbpf_p0, %wbpf_w8, %wbpf_w5;
        @%wbpf_p0 bra $wbpf_room;
        red.relaxed.gpu.global.add.u64 [%wbpf_t2+{used}], {back};
        $wbpf_elsewhere:",
        used = HashLayout::USED,
        most = i32::MAX - PLENTY,
        back = TICKET.wrapping_neg() as i64,
    ));
    if l.counting() == 1 {
        ask_together(f, l, maps);
    } else {
        ask_each_shard(f, l);
    }
    f.code(&format!(
        "mov.b32 %wbpf_room, 0;
        setp.ge.s32 %wbpf_p0, %wbpf_w9, {};
        @%wbpf_p0 bra $wbpf_crowded;
        add.s32 %wbpf_looks, %wbpf_looks, -1;
        setp.eq.s32 %wbpf_p0, %wbpf_looks, 0;
        @%wbpf_p0 bra $wbpf_busy;
        {pause}
        bra $wbpf_read;
        $wbpf_crowded:
        fence.acq_rel.gpu;
        ld.acquire.gpu.global.u64 %wbpf_t0, [%wbpf_slot];
        setp.eq.s64 %wbpf_p0, %wbpf_t0, %wbpf_s;
        @%wbpf_p0 bra $wbpf_full;
        bra $wbpf_again;
        $wbpf_room:",
        l.max_entries
    ));
}

/// Lanes that are together ask the one shard for as many tickets as it has for them: it goes on at
/// `$wbpf_room` for those that get one. `%wbpf_w9` becomes the number of keys that are there and
/// not pending.
fn ask_together(f: &mut Text, l: &HashLayout, maps: Maps) {
    own_shard(f, 1);
    quota(f, l);
    together(f, maps);
    f.code(&format!(
        "brev.b32 %wbpf_w12, %wbpf_w6;
        clz.b32 %wbpf_w12, %wbpf_w12;
        mov.b64 %wbpf_t1, 0;
        @%wbpf_p1 ld.relaxed.gpu.global.u64 %wbpf_t1, [%wbpf_t2+{used}];
        mov.b64 {{%wbpf_w8, %wbpf_w4}}, %wbpf_t1;
        shfl.sync.idx.b32 %wbpf_w8, %wbpf_w8, %wbpf_w12, 31, %wbpf_w6;
        shfl.sync.idx.b32 %wbpf_w4, %wbpf_w4, %wbpf_w12, 31, %wbpf_w6;
        mov.b64 %wbpf_t1, {{%wbpf_w8, %wbpf_w4}};
        sub.s32 %wbpf_w5, %wbpf_w5, %wbpf_w8;
        max.s32 %wbpf_w5, %wbpf_w5, 0;
        min.s32 %wbpf_w5, %wbpf_w5, %wbpf_w7;
        setp.eq.s32 %wbpf_p0, %wbpf_w5, 0;
        @%wbpf_p0 bra $wbpf_asked;
        cvt.u64.u32 %wbpf_t0, %wbpf_w5;
        mul.lo.s64 %wbpf_t0, %wbpf_t0, {TICKET};
        add.s64 %wbpf_t0, %wbpf_t0, %wbpf_t1;
        mov.b64 %wbpf_t3, %wbpf_t1;
        @%wbpf_p1 atom.relaxed.gpu.global.cas.b64 %wbpf_t3, [%wbpf_t2+{used}], %wbpf_t1, %wbpf_t0;
        setp.eq.s64 %wbpf_p0, %wbpf_t3, %wbpf_t1;
        selp.b32 %wbpf_w5, %wbpf_w5, 0, %wbpf_p0;
        shfl.sync.idx.b32 %wbpf_w5, %wbpf_w5, %wbpf_w12, 31, %wbpf_w6;
        mov.b32 %wbpf_room, 1;
        setp.lt.u32 %wbpf_p0, %wbpf_w9, %wbpf_w5;
        @%wbpf_p0 bra $wbpf_room;
        $wbpf_asked:
        cvt.s64.s32 %wbpf_t0, %wbpf_w8;
        sub.s64 %wbpf_t0, %wbpf_t1, %wbpf_t0;
        shr.u64 %wbpf_t0, %wbpf_t0, {shift};
        cvt.u32.u64 %wbpf_w7, %wbpf_t0;
        sub.s32 %wbpf_w9, %wbpf_w8, %wbpf_w7;",
        used = HashLayout::USED,
        shift = HashLayout::PENDING.ilog2(),
    ));
}

/// Each lane asks one shard after the other.
fn ask_each_shard(f: &mut Text, l: &HashLayout) {
    f.code("mov.b32 %wbpf_w9, 0;");
    each_shard(f, l.counting(), "$wbpf_look", "$wbpf_looked", |f| {
        quota(f, l);
        // `%wbpf_w9` adds up the keys that are there and not pending.
        f.code(&format!(
            "ld.relaxed.gpu.global.u64 %wbpf_t1, [%wbpf_t2+{used}];
            cvt.u32.u64 %wbpf_w8, %wbpf_t1;
            cvt.s64.s32 %wbpf_t0, %wbpf_w8;
            sub.s64 %wbpf_t0, %wbpf_t1, %wbpf_t0;
            shr.u64 %wbpf_t0, %wbpf_t0, {shift};
            cvt.u32.u64 %wbpf_w7, %wbpf_t0;
            add.s32 %wbpf_w9, %wbpf_w9, %wbpf_w8;
            sub.s32 %wbpf_w9, %wbpf_w9, %wbpf_w7;
            setp.ge.s32 %wbpf_p0, %wbpf_w8, %wbpf_w5;
            @%wbpf_p0 bra $wbpf_looked;
            add.s64 %wbpf_t0, %wbpf_t1, {TICKET};
            add.s32 %wbpf_room, %wbpf_w4, 1;
            atom.relaxed.gpu.global.cas.b64 %wbpf_t0, [%wbpf_t2+{used}], %wbpf_t1, %wbpf_t0;
            setp.eq.s64 %wbpf_p0, %wbpf_t0, %wbpf_t1;
            @%wbpf_p0 bra $wbpf_room;",
            used = HashLayout::USED,
            shift = HashLayout::PENDING.ilog2(),
        ));
    });
}

/// Adds `each` to the shard that gave this lane its ticket, for each of the lanes that are here,
/// and leaves them without one. Those with the same shard add together; where there is one map
/// only, that is looked for among those with their own shard, which nearly all have.
fn hand_in(f: &mut Text, l: &HashLayout, maps: Maps, each: i64) {
    match maps {
        Maps::One => {
            own_shard(f, l.counting());
            f.code(
                "add.s32 %wbpf_w4, %wbpf_w4, 1;
                setp.eq.s32 %wbpf_p0, %wbpf_w4, %wbpf_room;
                activemask.b32 %wbpf_w6;
                vote.sync.ballot.b32 %wbpf_w6, %wbpf_p0, %wbpf_w6;
                add.s32 %wbpf_w4, %wbpf_room, -1;",
            );
            shard(f);
            count_group(f);
            f.code(
                "selp.b32 %wbpf_w7, %wbpf_w7, 1, %wbpf_p0;
                not.pred %wbpf_p0, %wbpf_p0;
                or.pred %wbpf_p1, %wbpf_p1, %wbpf_p0;",
            );
        }
        Maps::Several => {
            f.code("add.s32 %wbpf_w4, %wbpf_room, -1;");
            shard(f);
            f.code(
                "activemask.b32 %wbpf_w6;
                match.any.sync.b64 %wbpf_w6, %wbpf_t2, %wbpf_w6;",
            );
            count_group(f);
        }
    }
    f.code(&format!(
        "mov.b32 %wbpf_room, 0;
        cvt.u64.u32 %wbpf_t0, %wbpf_w7;
        mul.lo.s64 %wbpf_t0, %wbpf_t0, {each};
        @%wbpf_p1 red.relaxed.gpu.global.add.u64 [%wbpf_t2+{}], %wbpf_t0;",
        HashLayout::USED
    ));
}

/// The key that this lane's ticket was for is there, by whomever it was made.
pub fn settle(f: &mut Text, l: &HashLayout, maps: Maps) {
    hand_in(f, l, maps, HashLayout::PENDING.wrapping_neg() as i64);
}

/// Gives back a ticket that was not used, if there is one. `skip` is a label.
pub fn refund(f: &mut Text, l: &HashLayout, maps: Maps, skip: &str) {
    f.code(&format!(
        "setp.eq.s32 %wbpf_p0, %wbpf_room, 0;
        @%wbpf_p0 bra {skip};"
    ));
    hand_in(f, l, maps, TICKET.wrapping_neg() as i64);
    f.code(&format!("{skip}:"));
}
