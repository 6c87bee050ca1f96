//! The functions of queues and stacks that fragments call, as PTX text: the algorithms of
//! [`QueueLayout`]. Their names carry the layout, so that one module can hold several and equal
//! ones are one.
//!
//! No lane waits for another: each loop is bounded, and what runs out is counted and told as
//! `-EBUSY`. What takes a ticket to take something closes it before it goes on, whatever others do
//! (`take`), so no value is ever out of reach.

mod stacked;

use warpbpf_abi::layout::QueueLayout;
use warpbpf_abi::maps::{BPF_EXIST, E2BIG, EBUSY, EINVAL, ENOENT};

use crate::bitmap::Search;
use crate::ir::QueueOp;

const TRIES: u32 = QueueLayout::TRIES;

/// Name of a function.
pub fn queue_name(op: QueueOp, l: &QueueLayout) -> String {
    let what = match op {
        QueueOp::Push => "push",
        QueueOp::Pop => "pop",
        QueueOp::Peek => "peek",
    };
    let kind = if l.lifo { "stack" } else { "queue" };
    format!("wbpf_{kind}_{what}_v{}_n{}", l.value_size, l.max_entries)
}

/// Text of a function for this PTX version. All parameters and the result are `.b64`; [`QueueOp`]
/// says which.
pub fn queue_function(op: QueueOp, l: &QueueLayout, ptx: (u32, u32)) -> String {
    let (params, body) = match op {
        QueueOp::Push => (2 + words(l), push(l, ptx)),
        QueueOp::Pop => (2, pop(l, ptx)),
        QueueOp::Peek if l.lifo => (2, peek_stack(l)),
        QueueOp::Peek => (2, peek_queue(l)),
    };
    let params: Vec<String> = (0..params)
        .map(|i| format!(".param .b64 wbpf_a{i}"))
        .collect();
    let mut text = format!(
        ".func (.param .b64 wbpf_r) {}({})\n{{\n",
        queue_name(op, l),
        params.join(", ")
    );
    let registers = "
        .reg .pred %wbpf_p<4>;
        .reg .b32 %wbpf_n, %wbpf_w<4>;
        .reg .b64 %wbpf_base, %wbpf_to, %wbpf_tk, %wbpf_at, %wbpf_c, %wbpf_e, %wbpf_t, %wbpf_u, %wbpf_i, %wbpf_res;
        .reg .b64 %wbpf_head, %wbpf_tail, %wbpf_q;
        ld.param.b64 %wbpf_base, [wbpf_a0];";
    for line in registers
        .lines()
        .chain(body.lines())
        .map(str::trim)
        .filter(|l| !l.is_empty())
    {
        if !line.ends_with(':') {
            text.push('\t');
        }
        text.push_str(line);
        text.push('\n');
    }
    text.push_str("\tst.param.b64 [wbpf_r], %wbpf_res;\n\tret;\n}\n");
    text
}

/// Words of a value.
fn words(l: &QueueLayout) -> u64 {
    l.node_stride() / 8
}

/// A ring of cells.
struct Ring {
    /// Before its labels.
    name: &'static str,
    head: u64,
    tail: u64,
    cells: u64,
}

fn free(name: &'static str) -> Ring {
    Ring {
        name,
        head: QueueLayout::FREE,
        tail: QueueLayout::FREE + QueueLayout::TAIL,
        cells: QueueLayout::CELLS,
    }
}

fn values(name: &'static str, l: &QueueLayout) -> Ring {
    Ring {
        name,
        head: QueueLayout::VALUES,
        tail: QueueLayout::VALUES + QueueLayout::TAIL,
        cells: l.values_at(),
    }
}

/// `%wbpf_at` becomes the address of the cell of `ticket`, less that of the first; `%wbpf_c` its
/// cycle.
fn cell(l: &QueueLayout, ticket: &str) -> String {
    let last = l.cells() - 1;
    format!(
        "and.b64 %wbpf_t, {ticket}, {last};
        mad.lo.s64 %wbpf_at, %wbpf_t, 8, %wbpf_base;
        or.b64 %wbpf_c, {ticket}, {last};
        add.s64 %wbpf_c, %wbpf_c, 1;"
    )
}

/// Puts node `%wbpf_i` - 1 into a ring; goes to `failed` if no ticket served.
fn put(l: &QueueLayout, ring: &Ring, failed: &str) -> String {
    let Ring {
        name,
        head,
        tail,
        cells,
    } = ring;
    format!(
        "mov.b32 %wbpf_n, {TRIES};
        $wbpf_{name}_again:
        atom.relaxed.gpu.global.add.u64 %wbpf_tk, [%wbpf_base+{tail}], 1;
        {cell}
        ld.acquire.gpu.global.u64 %wbpf_e, [%wbpf_at+{cells}];
        $wbpf_{name}_see:
        setp.ge.u64 %wbpf_p0, %wbpf_e, %wbpf_c;
        @%wbpf_p0 bra $wbpf_{name}_next;
        and.b64 %wbpf_t, %wbpf_e, {mask};
        setp.ne.s64 %wbpf_p0, %wbpf_t, 0;
        @%wbpf_p0 bra $wbpf_{name}_next;
        and.b64 %wbpf_t, %wbpf_e, {flag};
        setp.eq.s64 %wbpf_p0, %wbpf_t, 0;
        @%wbpf_p0 bra $wbpf_{name}_swap;
        ld.acquire.gpu.global.u64 %wbpf_t, [%wbpf_base+{head}];
        setp.gt.u64 %wbpf_p0, %wbpf_t, %wbpf_tk;
        @%wbpf_p0 bra $wbpf_{name}_next;
        $wbpf_{name}_swap:
        or.b64 %wbpf_u, %wbpf_c, %wbpf_i;
        atom.acq_rel.gpu.global.cas.b64 %wbpf_t, [%wbpf_at+{cells}], %wbpf_e, %wbpf_u;
        setp.eq.s64 %wbpf_p0, %wbpf_t, %wbpf_e;
        @%wbpf_p0 bra $wbpf_{name}_put;
        mov.b64 %wbpf_e, %wbpf_t;
        add.s32 %wbpf_n, %wbpf_n, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_n, 0;
        @%wbpf_p0 bra $wbpf_{name}_see;
        bra {failed};
        $wbpf_{name}_next:
        add.s32 %wbpf_n, %wbpf_n, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_n, 0;
        @%wbpf_p0 bra $wbpf_{name}_again;
        bra {failed};
        $wbpf_{name}_put:",
        cell = cell(l, "%wbpf_tk"),
        mask = l.node_mask(),
        flag = l.unsafe_flag(),
    )
}

/// Takes the first node out of a ring: `%wbpf_i` becomes its number plus one. Goes to `empty` if
/// there is none, to `busy` if no ticket served.
///
/// A ticket whose cell holds nothing for it is closed before anything else is done. The flag keeps
/// away whoever has not yet looked; a lane that looked before, at a cell that was empty and had the
/// flag already, may still swap between the flag and the maximum. If its ticket is a later one, the
/// maximum changes nothing and tells it. If it is the own one or one of a lap before, the maximum
/// has taken its node out, which is then what this lane takes: it was put during this call. So the
/// owner of the older ticket may lose the node after it saw it, and takes by a CAS. That fails only
/// if another lane has set the flag, once, or has taken the node: two turns more at most.
fn take(l: &QueueLayout, ring: &Ring, empty: &str, busy: &str) -> String {
    let Ring {
        name,
        head,
        tail,
        cells,
    } = ring;
    format!(
        "mov.b32 %wbpf_n, {TRIES};
        $wbpf_{name}_again:
        ld.acquire.gpu.global.u64 %wbpf_tk, [%wbpf_base+{head}];
        ld.acquire.gpu.global.u64 %wbpf_t, [%wbpf_base+{tail}];
        setp.le.u64 %wbpf_p0, %wbpf_t, %wbpf_tk;
        @%wbpf_p0 bra {empty};
        atom.relaxed.gpu.global.add.u64 %wbpf_tk, [%wbpf_base+{head}], 1;
        {cell}
        ld.acquire.gpu.global.u64 %wbpf_e, [%wbpf_at+{cells}];
        setp.ge.u64 %wbpf_p0, %wbpf_e, %wbpf_c;
        @%wbpf_p0 bra $wbpf_{name}_seen;
        atom.acq_rel.gpu.global.or.b64 %wbpf_e, [%wbpf_at+{cells}], {flag};
        setp.ge.u64 %wbpf_p0, %wbpf_e, %wbpf_c;
        @%wbpf_p0 bra $wbpf_{name}_seen;
        and.b64 %wbpf_t, %wbpf_e, {mask};
        setp.ne.s64 %wbpf_p0, %wbpf_t, 0;
        @%wbpf_p0 bra $wbpf_{name}_missed;
        or.b64 %wbpf_u, %wbpf_c, {flag};
        atom.acq_rel.gpu.global.max.u64 %wbpf_e, [%wbpf_at+{cells}], %wbpf_u;
        setp.ge.u64 %wbpf_p0, %wbpf_e, %wbpf_u;
        @%wbpf_p0 bra $wbpf_{name}_seen;
        and.b64 %wbpf_i, %wbpf_e, {mask};
        setp.ne.s64 %wbpf_p0, %wbpf_i, 0;
        @%wbpf_p0 bra $wbpf_{name}_taken;
        bra $wbpf_{name}_missed;
        $wbpf_{name}_seen:
        sub.s64 %wbpf_t, %wbpf_e, %wbpf_c;
        setp.ge.u64 %wbpf_p0, %wbpf_t, {count};
        @%wbpf_p0 bra $wbpf_{name}_missed;
        and.b64 %wbpf_i, %wbpf_e, {mask};
        setp.eq.s64 %wbpf_p0, %wbpf_i, 0;
        @%wbpf_p0 bra $wbpf_{name}_missed;
        and.b64 %wbpf_u, %wbpf_e, {without};
        atom.acq_rel.gpu.global.cas.b64 %wbpf_t, [%wbpf_at+{cells}], %wbpf_e, %wbpf_u;
        setp.eq.s64 %wbpf_p0, %wbpf_t, %wbpf_e;
        @%wbpf_p0 bra $wbpf_{name}_taken;
        mov.b64 %wbpf_e, %wbpf_t;
        bra $wbpf_{name}_seen;
        $wbpf_{name}_missed:
        ld.acquire.gpu.global.u64 %wbpf_t, [%wbpf_base+{tail}];
        add.s64 %wbpf_u, %wbpf_tk, 1;
        setp.gt.u64 %wbpf_p0, %wbpf_t, %wbpf_u;
        @%wbpf_p0 bra $wbpf_{name}_next;
        red.relaxed.gpu.global.max.u64 [%wbpf_base+{tail}], %wbpf_u;
        bra {empty};
        $wbpf_{name}_next:
        add.s32 %wbpf_n, %wbpf_n, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_n, 0;
        @%wbpf_p0 bra $wbpf_{name}_again;
        bra {busy};
        $wbpf_{name}_taken:",
        cell = cell(l, "%wbpf_tk"),
        count = l.cells(),
        mask = l.node_mask(),
        without = format_args!("{:#x}", !l.node_mask()),
        flag = l.unsafe_flag(),
    )
}

/// Takes a node that holds nothing: `%wbpf_i` becomes its number plus one. Goes to `$wbpf_full` if
/// there is none.
fn claim(l: &QueueLayout) -> String {
    let search = Search {
        at: l.spare_at(),
        words: l.spare_words(),
        most: l.spare_words().min(QueueLayout::SPARE_SEARCH),
        set_is_free: true,
        node: "%wbpf_w3",
        word: "%wbpf_w0",
        bit: "%wbpf_w1",
        old: "%wbpf_w2",
        left: "%wbpf_n",
        address: "%wbpf_at",
        found: "$wbpf_spared",
    };
    format!(
        "ld.relaxed.gpu.global.u32 %wbpf_w0, [%wbpf_base+{next}];
        setp.ge.u32 %wbpf_p0, %wbpf_w0, {nodes};
        @%wbpf_p0 bra $wbpf_reuse;
        atom.relaxed.gpu.global.add.u32 %wbpf_w0, [%wbpf_base+{next}], 1;
        cvt.u64.u32 %wbpf_i, %wbpf_w0;
        add.s64 %wbpf_i, %wbpf_i, 1;
        setp.lt.u32 %wbpf_p0, %wbpf_w0, {nodes};
        @%wbpf_p0 bra $wbpf_fill;
        $wbpf_reuse:
        {take}
        bra $wbpf_reused;
        $wbpf_spare:
        ld.acquire.gpu.global.u32 %wbpf_w0, [%wbpf_base+{count}];
        setp.eq.s32 %wbpf_p0, %wbpf_w0, 0;
        @%wbpf_p0 bra $wbpf_full;
        {search}
        bra $wbpf_busy;
        $wbpf_spared:
        cvt.u64.u32 %wbpf_i, %wbpf_w3;
        add.s64 %wbpf_i, %wbpf_i, 1;
        red.relaxed.gpu.global.add.u32 [%wbpf_base+{count}], -1;
        bra $wbpf_reused;",
        next = QueueLayout::NEXT_NODE,
        nodes = l.max_entries,
        take = take(l, &free("free"), "$wbpf_spare", "$wbpf_busy"),
        count = QueueLayout::SPARES,
        search = search.text(),
    )
}

/// Gives node `%wbpf_i` - 1 back.
fn release(l: &QueueLayout) -> String {
    format!(
        "{put}
        bra $wbpf_released;
        $wbpf_lost:
        cvt.u32.u64 %wbpf_w0, %wbpf_i;
        add.s32 %wbpf_w0, %wbpf_w0, -1;
        shr.u32 %wbpf_w1, %wbpf_w0, 5;
        and.b32 %wbpf_w0, %wbpf_w0, 31;
        mov.b32 %wbpf_w2, 1;
        shl.b32 %wbpf_w2, %wbpf_w2, %wbpf_w0;
        mad.wide.u32 %wbpf_at, %wbpf_w1, 4, %wbpf_base;
        red.release.gpu.global.or.b32 [%wbpf_at+{at}], %wbpf_w2;
        red.release.gpu.global.add.u32 [%wbpf_base+{count}], 1;
        $wbpf_released:",
        put = put(l, &free("back"), "$wbpf_lost"),
        at = l.spare_at(),
        count = QueueLayout::SPARES,
    )
}

/// `%wbpf_at` becomes the address of node `%wbpf_i` - 1, less that of the first.
fn node(l: &QueueLayout) -> String {
    format!(
        "add.s64 %wbpf_t, %wbpf_i, -1;
        mad.lo.s64 %wbpf_at, %wbpf_t, {}, %wbpf_base;",
        l.node_stride()
    )
}

/// Writes the parameters from the third on into the node taken.
fn fill(l: &QueueLayout) -> String {
    let mut text = node(l);
    for i in 0..words(l) {
        text += &format!(
            "\nld.param.b64 %wbpf_t, [wbpf_a{}];
            st.relaxed.gpu.global.u64 [%wbpf_at+{}], %wbpf_t;",
            2 + i,
            l.nodes_at() + i * 8
        );
    }
    text
}

/// Copies the value of the node to the local memory at `%wbpf_to`.
fn copy(l: &QueueLayout) -> String {
    let mut text = node(l);
    for i in 0..words(l) {
        text += &format!(
            "\nld.relaxed.gpu.global.u64 %wbpf_t, [%wbpf_at+{}];
            st.local.u64 [%wbpf_to+{}], %wbpf_t;",
            l.nodes_at() + i * 8,
            i * 8
        );
    }
    text
}

/// The ends of a function that gives a value: with it, or with zeros.
fn ends(l: &QueueLayout) -> String {
    let mut text = format!(
        "mov.b64 %wbpf_res, 0;
        bra $wbpf_done;
        $wbpf_busy:
        red.relaxed.gpu.global.add.u64 [%wbpf_base+{}], 1;
        mov.b64 %wbpf_res, {EBUSY};
        bra $wbpf_zero;
        $wbpf_empty:
        mov.b64 %wbpf_res, {ENOENT};
        $wbpf_zero:
        mov.b64 %wbpf_t, 0;",
        QueueLayout::COUNT_BUSY
    );
    for i in 0..words(l) {
        text += &format!("\nst.local.u64 [%wbpf_to+{}], %wbpf_t;", i * 8);
    }
    text + "\n$wbpf_done:"
}

/// A node that held a value before is written behind a fence: a peek that sees some of the new
/// value then also sees that the old one was taken.
fn push(l: &QueueLayout, ptx: (u32, u32)) -> String {
    // A full queue may drop its oldest value: its node is the new one's. Where other lanes have all
    // nodes in hand, there is nothing to drop now. A stack's oldest is at the bottom of a list.
    let full = if l.lifo {
        String::new()
    } else {
        format!(
            "ld.param.b64 %wbpf_t, [wbpf_a1];
            setp.ne.s64 %wbpf_p0, %wbpf_t, {BPF_EXIST};
            @%wbpf_p0 bra $wbpf_refused;
            {}
            bra $wbpf_reused;
            $wbpf_refused:",
            take(l, &values("oldest", l), "$wbpf_busy", "$wbpf_busy")
        )
    };
    let publish = if l.lifo {
        stacked::put(l, ptx)
    } else {
        put(l, &values("value", l), "$wbpf_unpushed")
    };
    format!(
        "ld.param.b64 %wbpf_t, [wbpf_a1];
        mov.b64 %wbpf_res, {EINVAL};
        setp.eq.s64 %wbpf_p0, %wbpf_t, 0;
        @%wbpf_p0 bra $wbpf_known;
        setp.ne.s64 %wbpf_p0, %wbpf_t, {BPF_EXIST};
        @%wbpf_p0 bra $wbpf_done;
        $wbpf_known:
        {claim}
        $wbpf_full:
        {full}
        red.relaxed.gpu.global.add.u64 [%wbpf_base+{count_full}], 1;
        mov.b64 %wbpf_res, {E2BIG};
        bra $wbpf_done;
        $wbpf_reused:
        fence.acq_rel.gpu;
        $wbpf_fill:
        {fill}
        {publish}
        mov.b64 %wbpf_res, 0;
        bra $wbpf_done;
        $wbpf_unpushed:
        {release}
        $wbpf_busy:
        red.relaxed.gpu.global.add.u64 [%wbpf_base+{count_busy}], 1;
        mov.b64 %wbpf_res, {EBUSY};
        $wbpf_done:",
        claim = claim(l),
        fill = fill(l),
        release = release(l),
        count_full = QueueLayout::COUNT_FULL,
        count_busy = QueueLayout::COUNT_BUSY,
    )
}

fn pop(l: &QueueLayout, ptx: (u32, u32)) -> String {
    let get = if l.lifo {
        stacked::take(l, ptx)
    } else {
        take(l, &values("value", l), "$wbpf_empty", "$wbpf_busy")
    };
    format!(
        "ld.param.b64 %wbpf_to, [wbpf_a1];
        {get}
        {copy}
        {release}
        {ends}",
        copy = copy(l),
        release = release(l),
        ends = ends(l),
    )
}

/// Reads the top, its value, and the top again.
fn peek_stack(l: &QueueLayout) -> String {
    format!(
        "ld.param.b64 %wbpf_to, [wbpf_a1];
        mov.b32 %wbpf_n, {turns};
        $wbpf_turn:
        ld.acquire.gpu.global.u64 %wbpf_e, [%wbpf_base+{top}];
        and.b64 %wbpf_i, %wbpf_e, 0xffffffff;
        setp.eq.s64 %wbpf_p0, %wbpf_i, 0;
        @%wbpf_p0 bra $wbpf_empty;
        {copy}
        fence.acq_rel.gpu;
        ld.relaxed.gpu.global.u64 %wbpf_t, [%wbpf_base+{top}];
        setp.eq.s64 %wbpf_p0, %wbpf_t, %wbpf_e;
        @%wbpf_p0 bra $wbpf_same;
        add.s32 %wbpf_n, %wbpf_n, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_n, 0;
        @%wbpf_p0 bra $wbpf_turn;
        bra $wbpf_busy;
        $wbpf_same:
        {ends}",
        turns = QueueLayout::TURNS,
        top = QueueLayout::VALUES,
        copy = copy(l),
        ends = ends(l),
    )
}

/// Finds the first cell from `HEAD` on that holds its ticket's node, copies the value, and then
/// makes sure that there was a moment at which it was the oldest: `HEAD` has not moved, so nobody
/// took anything, and nothing has come to a cell before it. Where no cell up to `TAIL` holds
/// anything, the queue was empty when `TAIL` was read, by the same argument.
fn peek_queue(l: &QueueLayout) -> String {
    let Ring {
        head, tail, cells, ..
    } = values("value", l);
    let (count, mask) = (l.cells(), l.node_mask());
    format!(
        "ld.param.b64 %wbpf_to, [wbpf_a1];
        mov.b32 %wbpf_n, {TRIES};
        $wbpf_again:
        ld.acquire.gpu.global.u64 %wbpf_head, [%wbpf_base+{head}];
        ld.acquire.gpu.global.u64 %wbpf_tail, [%wbpf_base+{tail}];
        mov.b64 %wbpf_tk, %wbpf_head;
        $wbpf_scan:
        setp.ge.u64 %wbpf_p0, %wbpf_tk, %wbpf_tail;
        @%wbpf_p0 bra $wbpf_none;
        {cell}
        ld.acquire.gpu.global.u64 %wbpf_e, [%wbpf_at+{cells}];
        sub.s64 %wbpf_t, %wbpf_e, %wbpf_c;
        setp.ge.u64 %wbpf_p0, %wbpf_t, {count};
        @%wbpf_p0 bra $wbpf_next;
        and.b64 %wbpf_i, %wbpf_e, {mask};
        setp.ne.s64 %wbpf_p0, %wbpf_i, 0;
        @%wbpf_p0 bra $wbpf_found;
        $wbpf_next:
        add.s64 %wbpf_tk, %wbpf_tk, 1;
        add.s32 %wbpf_n, %wbpf_n, -1;
        setp.ne.s32 %wbpf_p0, %wbpf_n, 0;
        @%wbpf_p0 bra $wbpf_scan;
        bra $wbpf_busy;
        $wbpf_none:
        ld.acquire.gpu.global.u64 %wbpf_t, [%wbpf_base+{head}];
        setp.eq.s64 %wbpf_p0, %wbpf_t, %wbpf_head;
        @%wbpf_p0 bra $wbpf_empty;
        $wbpf_moved:
        add.s32 %wbpf_n, %wbpf_n, -1;
        setp.gt.s32 %wbpf_p0, %wbpf_n, 0;
        @%wbpf_p0 bra $wbpf_again;
        bra $wbpf_busy;
        $wbpf_found:
        {copy}
        fence.acq_rel.gpu;
        mov.b64 %wbpf_q, %wbpf_head;
        $wbpf_check:
        setp.eq.s64 %wbpf_p0, %wbpf_q, %wbpf_tk;
        @%wbpf_p0 bra $wbpf_checked;
        {before}
        ld.acquire.gpu.global.u64 %wbpf_e, [%wbpf_at+{cells}];
        add.s64 %wbpf_q, %wbpf_q, 1;
        sub.s64 %wbpf_t, %wbpf_e, %wbpf_c;
        setp.ge.u64 %wbpf_p0, %wbpf_t, {count};
        @%wbpf_p0 bra $wbpf_check;
        and.b64 %wbpf_t, %wbpf_e, {mask};
        setp.eq.s64 %wbpf_p0, %wbpf_t, 0;
        @%wbpf_p0 bra $wbpf_check;
        bra $wbpf_moved;
        $wbpf_checked:
        ld.relaxed.gpu.global.u64 %wbpf_t, [%wbpf_base+{head}];
        setp.ne.s64 %wbpf_p0, %wbpf_t, %wbpf_head;
        @%wbpf_p0 bra $wbpf_moved;
        {ends}",
        cell = cell(l, "%wbpf_tk"),
        before = cell(l, "%wbpf_q"),
        copy = copy(l),
        ends = ends(l),
    )
}
