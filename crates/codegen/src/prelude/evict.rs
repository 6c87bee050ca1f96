//! What drops a key of a full LRU map: see [`LruLayout`].

use warpbpf_abi::layout::LruLayout;

use super::lru::node_of;
use super::text::Text;

/// Name of the function that drops a key, which only updates call.
pub fn evict_name(update: &str) -> String {
    update.replace("update", "evict")
}

/// `(base, slot to spare) -> number of the node that is free now, plus one; 0 if nothing could be
/// dropped`.
pub fn evict(f: &mut Text, l: &LruLayout, name: &str) {
    f.raw(&format!(
        ".func (.param .b64 wbpf_r) {name}(.param .b64 wbpf_a0, .param .b64 wbpf_a1)"
    ));
    f.raw("{");
    f.code(&format!(
        ".reg .pred %wbpf_p<1>;
        .reg .b32 %wbpf_w<3>;
        .reg .b64 %wbpf_base, %wbpf_spare, %wbpf_slot, %wbpf_s, %wbpf_low, %wbpf_t<2>;
        ld.param.b64 %wbpf_base, [wbpf_a0];
        ld.param.b64 %wbpf_spare, [wbpf_a1];
        mov.b32 %wbpf_w0, {};
        $wbpf_bucket:
        .pragma \"nounroll\";
        atom.relaxed.gpu.global.add.u32 %wbpf_w1, [%wbpf_base+{}], 1;
        and.b32 %wbpf_w1, %wbpf_w1, {};
        mad.wide.u32 %wbpf_slot, %wbpf_w1, {}, %wbpf_base;
        add.s64 %wbpf_slot, %wbpf_slot, {};
        mov.b32 %wbpf_w2, {};
        $wbpf_way:
        .pragma \"nounroll\";
        ld.acquire.gpu.global.u64 %wbpf_s, [%wbpf_slot];
        and.b64 %wbpf_low, %wbpf_s, {:#x};
        setp.eq.s64 %wbpf_p0, %wbpf_low, 0;
        @%wbpf_p0 bra $wbpf_next;
        setp.eq.s64 %wbpf_p0, %wbpf_slot, %wbpf_spare;
        @%wbpf_p0 bra $wbpf_next;",
        LruLayout::EVICT_BUCKETS,
        LruLayout::HAND,
        l.buckets() - 1,
        LruLayout::BUCKET,
        LruLayout::SLOTS,
        LruLayout::WAYS,
        LruLayout::NODE_MASK
    ));
    node_of(f, l, "%wbpf_t0", "%wbpf_low");
    f.code(&format!(
        "ld.relaxed.gpu.global.u64 %wbpf_t1, [%wbpf_t0+{used}];
        setp.eq.s64 %wbpf_p0, %wbpf_t1, 0;
        @%wbpf_p0 bra $wbpf_drop;
        add.s64 %wbpf_t1, %wbpf_t1, -1;
        st.relaxed.gpu.global.u64 [%wbpf_t0+{used}], %wbpf_t1;
        setp.gt.u32 %wbpf_p0, %wbpf_w0, {};
        @%wbpf_p0 bra $wbpf_next;
        $wbpf_drop:
        and.b64 %wbpf_t0, %wbpf_s, {:#x};
        atom.acq_rel.gpu.global.cas.b64 %wbpf_t1, [%wbpf_slot], %wbpf_s, %wbpf_t0;
        setp.eq.s64 %wbpf_p0, %wbpf_t1, %wbpf_s;
        @%wbpf_p0 bra $wbpf_done;
        $wbpf_next:
        add.s64 %wbpf_slot, %wbpf_slot, 8;
        add.s32 %wbpf_w2, %wbpf_w2, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w2, 0;
        @%wbpf_p0 bra $wbpf_way;
        add.s32 %wbpf_w0, %wbpf_w0, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_w0, 0;
        @%wbpf_p0 bra $wbpf_bucket;
        mov.b64 %wbpf_low, 0;
        $wbpf_done:
        st.param.b64 [wbpf_r], %wbpf_low;
        ret;",
        LruLayout::EVICT_BUCKETS / 2,
        LruLayout::LAP_MASK,
        used = LruLayout::USED
    ));
    f.raw("}");
}
