//! The search for a free node in a bitmap, as PTX text: hashes, LRU hashes and queues take nodes
//! that were given back.

/// A bitmap and the registers that a search uses. Three registers of `.b32` are overwritten, and a
/// predicate `%wbpf_p0`; labels begin with `$wbpf_word` and `$wbpf_skip`, so a function can hold
/// one search.
pub struct Search<'a> {
    /// Bytes from `%wbpf_base` to the first word.
    pub at: u64,
    /// Words.
    pub words: u64,
    /// Most words that are looked at.
    pub most: u64,
    /// A node is free while its bit is set; else while it is not.
    pub set_is_free: bool,
    /// Becomes the number of the node that was taken.
    pub node: &'a str,
    /// Overwritten, `.b32`: the word's number, a bit, two more.
    pub word: &'a str,
    /// As above.
    pub bit: &'a str,
    /// As above.
    pub old: &'a str,
    /// As above: words that are left.
    pub left: &'a str,
    /// Overwritten, `.b64`.
    pub address: &'a str,
    /// Where to go with a node.
    pub found: &'a str,
}

impl Search<'_> {
    /// Takes a node, which what follows comes after (acquire); falls through without one. Lanes
    /// begin at different words, and in one word they prefer different bits.
    pub fn text(&self) -> String {
        let Search {
            at,
            words,
            most,
            node,
            word,
            bit,
            old,
            left,
            address,
            found,
            ..
        } = self;
        let (free, take, taken) = match self.set_is_free {
            true => ("", "and", "ne"),
            false => ("not.b32 %BIT, %BIT;", "or", "eq"),
        };
        let free = free.replace("%BIT", bit);
        let mask = match self.set_is_free {
            true => format!("not.b32 {old}, {bit};"),
            false => format!("mov.b32 {old}, {bit};"),
        };
        format!(
            "mov.u32 {node}, %laneid;
            mov.u32 {word}, %clock;
            mad.lo.s32 {word}, {node}, 0x9E3779B1, {word};
            mul.lo.s32 {word}, {word}, 0x85EBCA77;
            shr.u32 {word}, {word}, 3;
            rem.u32 {word}, {word}, {words};
            mov.b32 {left}, {most};
            $wbpf_word:
            .pragma \"nounroll\";
            mad.wide.u32 {address}, {word}, 4, %wbpf_base;
            add.s64 {address}, {address}, {at};
            ld.relaxed.gpu.global.u32 {bit}, [{address}];
            {free}
            setp.eq.s32 %wbpf_p0, {bit}, 0;
            @%wbpf_p0 bra $wbpf_skip;
            mov.u32 {node}, %laneid;
            shf.r.wrap.b32 {bit}, {bit}, {bit}, {node};
            neg.s32 {old}, {bit};
            and.b32 {bit}, {bit}, {old};
            clz.b32 {old}, {bit};
            sub.s32 {node}, {node}, {old};
            add.s32 {node}, {node}, 31;
            and.b32 {node}, {node}, 31;
            mov.b32 {bit}, 1;
            shl.b32 {bit}, {bit}, {node};
            mad.lo.s32 {node}, {word}, 32, {node};
            {mask}
            atom.acquire.gpu.global.{take}.b32 {old}, [{address}], {old};
            and.b32 {old}, {old}, {bit};
            setp.{taken}.s32 %wbpf_p0, {old}, 0;
            @%wbpf_p0 bra {found};
            $wbpf_skip:
            add.s32 {word}, {word}, 1;
            setp.eq.s32 %wbpf_p0, {word}, {words};
            selp.b32 {word}, 0, {word}, %wbpf_p0;
            add.s32 {left}, {left}, -1;
            setp.ne.s32 %wbpf_p0, {left}, 0;
            @%wbpf_p0 bra $wbpf_word;"
        )
    }
}
