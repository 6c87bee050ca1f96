//! The code of one site: who of the lanes that arrive runs each fragment.
//!
//! Lanes arrive in groups: those that `activemask` finds together. Nothing is assumed about the
//! groups, only that each lane is in one. A group's leader is its lowest lane. What fires once per
//! warp or block at exit counts lanes in the launch record: a leader adds its group, and the one
//! who completes the count fires and sets it back to 0 for the next launch. `bar.warp.sync` over
//! the group orders what its lanes wrote before what the leader does; it waits for lanes that are
//! at the same place, so it always ends. In a function that machine code calls nobody may wait, so
//! each lane is a group of its own there. Programs that aggregate over their block count in the
//! launch record themselves, in cells of their own.

use std::fmt::Write as _;

use warpbpf_abi::attach::{Scope, Site};
use warpbpf_abi::layout::launch;
use warpbpf_abi::names::{BLOCK_CELLS, GROUP_MASK};
use warpbpf_codegen::{Fragment, group_mask};

use crate::attachment::{Attachment, Gate};
use crate::capture::{Block, Source};
use crate::gate::Gates;
use crate::launch_args::LaunchArgs;
use crate::launch_bits::LaunchBits;
use crate::program::Programs;

/// The register for the mask of the lanes that came to a site, also of those that go around its
/// code.
pub(crate) const HERE: &str = "%wbpf_here";

/// The attachments of one site, by scope, in the order in which they run.
#[derive(Debug, Clone, Default)]
pub(crate) struct SiteCode<'a> {
    site: Option<Site>,
    thread: Vec<Placed<'a>>,
    warp: Vec<Placed<'a>>,
    block: Vec<Placed<'a>>,
    /// Cells that each block has for the programs of all sites.
    cells: u32,
    /// Lanes meet behind code that they may go through differently.
    rejoins: bool,
}

/// A fragment at its site.
#[derive(Debug, Clone, Copy)]
struct Placed<'a> {
    fragment: &'a Fragment,
    gate: Option<Gate>,
    /// The bit of its launches.
    bit: Option<u32>,
    /// Number of its first cell, among those of a block.
    cell: u32,
}

impl<'a> SiteCode<'a> {
    /// Those of `attachments` that are for `site`.
    pub(crate) fn of(site: Site, attachments: &[Attachment<'a>]) -> SiteCode<'a> {
        // A program has the same cells at each of its places, as each thread comes to one of them.
        let firsts = attachments.iter().scan(0, |next, a| {
            let first = *next;
            *next += a.fragment.block_cells;
            Some((a, first))
        });
        let scoped = |scope| {
            let ours = firsts.clone();
            ours.filter(|(a, _)| a.site == site && a.scope == scope)
                .map(|(a, cell)| Placed {
                    fragment: a.fragment,
                    gate: a.gate,
                    bit: a.choice,
                    cell,
                })
                .collect()
        };
        SiteCode {
            site: Some(site),
            thread: scoped(Scope::Thread),
            warp: scoped(Scope::Warp),
            block: scoped(Scope::Block),
            cells: attachments.iter().map(|a| a.fragment.block_cells).sum(),
            rejoins: false,
        }
    }

    /// The same, with lanes that meet behind it, if the module can say so.
    pub(crate) fn rejoining(self, can: bool) -> SiteCode<'a> {
        SiteCode {
            rejoins: can,
            ..self
        }
    }

    /// Lanes may go through the code differently.
    fn parts(&self, programs: &Programs<'_>) -> bool {
        let gated = self.placed().any(|placed| placed.gate.is_some());
        let elected = !self.warp.is_empty() || !self.block.is_empty();
        let branches = |fragment: &Fragment| {
            let mut code = String::new();
            programs.write(fragment, false, &mut code);
            parts_lanes(&code)
        };
        gated || elected || self.all().any(branches)
    }

    /// Puts a fragment of thread scope before all others, which always runs.
    pub(crate) fn put_first(&mut self, fragment: &'a Fragment) {
        let always = Placed {
            fragment,
            gate: None,
            bit: None,
            cell: 0,
        };
        self.thread.insert(0, always);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.thread.is_empty() && self.warp.is_empty() && self.block.is_empty()
    }

    fn counts(&self) -> bool {
        self.site == Some(Site::Exit)
    }

    /// Needs a counter per block in the launch record.
    pub(crate) fn block_counters(&self) -> bool {
        self.counts() && !self.block.is_empty()
    }

    /// Needs a counter per warp in the launch record.
    pub(crate) fn warp_counters(&self) -> bool {
        self.counts() && !self.warp.is_empty()
    }

    /// Cells that each block has in the launch record, if this site has programs with any.
    pub(crate) fn cells(&self) -> u32 {
        let here = self.all().any(|f| f.block_cells > 0);
        if here { self.cells } else { 0 }
    }

    /// Needs the launch record.
    pub(crate) fn needs_record(&self) -> bool {
        self.block_counters() || self.warp_counters() || self.cells() > 0
    }

    /// Needs the group of lanes: `activemask`, which is PTX 6.2.
    pub(crate) fn needs_mask(&self) -> bool {
        let reads = self.all().any(|f| f.uses_group_mask);
        reads || !self.warp.is_empty() || self.block_counters()
    }

    /// The same where each lane comes alone.
    fn needs_mask_alone(&self) -> bool {
        let reads = self.all().any(|f| f.uses_group_mask);
        reads || !self.counts() && !self.warp.is_empty()
    }

    fn placed(&self) -> impl Iterator<Item = Placed<'a>> {
        let all = self.thread.iter().chain(&self.warp).chain(&self.block);
        all.copied()
    }

    fn all(&self) -> impl Iterator<Item = &'a Fragment> {
        self.placed().map(|placed| placed.fragment)
    }

    /// Nobody counts who arrives, so where nothing always runs all of it can be left out at once.
    fn may_skip(&self) -> bool {
        !self.block_counters() && !self.warp_counters()
    }

    /// The code, in a `{ … }` of its own; `label` makes its labels unique in the function, and `sm`
    /// is the number of the target architecture.
    pub(crate) fn text(
        &self,
        label: usize,
        sm: u32,
        source: &Source<'_, '_, '_, '_>,
        programs: &Programs<'_>,
    ) -> String {
        let mut captured = Block::default();
        let captures = self.all().flat_map(|f| &f.captures);
        source.write(&captures.copied().collect(), &mut captured);
        let (meets, args) = (true, LaunchArgs::Parameter);
        self.write((label, sm), (meets, args), &captured, programs)
    }

    /// The same in a function of its own, for code that captures nothing but what a launch tells.
    /// Nobody knows which lanes come to an exit together there, so each arrives for itself.
    pub(crate) fn text_alone(&self, sm: u32, args: LaunchArgs, programs: &Programs<'_>) -> String {
        let mut captured = Block::default();
        for capture in self.all().flat_map(|f| &f.captures) {
            let register = capture.register();
            if let Some(load) = args.capture(*capture, &register) {
                captured.launch_arg(&register, &load);
            }
        }
        self.write((0, sm), (false, args), &captured, programs)
    }

    fn write(
        &self,
        (label, sm): (usize, u32),
        (meets, args): (bool, LaunchArgs),
        captured: &Block,
        programs: &Programs<'_>,
    ) -> String {
        let mut w = Writer {
            out: String::new(),
            programs,
            label,
            sm,
            meets,
            args,
            warp_counters: self.warp_counters(),
            block_counters: self.block_counters(),
            cells: u64::from(self.cells),
            gates: Gates::of(self.placed().map(|placed| placed.gate)),
            chosen: LaunchBits::of(self.placed().map(|placed| placed.bit)),
            shuts: false,
            leaves: false,
            tests: 0,
        };
        w.shuts = self.may_skip() && w.gates.closes_all();
        w.leaves = self.may_skip() && w.chosen.leaves_all();
        let needs_mask = match meets {
            true => self.needs_mask(),
            false => self.needs_mask_alone(),
        };
        // Behind code that lanes go through differently ptxas makes a second copy of whatever lanes
        // do together, for lanes that come apart: it is slow, and at the limit of registers it was
        // wrong (docs/measurements.md, "Lanes that meet").
        let rejoins = self.rejoins && meets && self.parts(programs);
        // Those that go around all of it meet the others, too.
        let early = rejoins && (w.shuts || w.leaves);
        let needs_mask = needs_mask || rejoins && !early;
        let bare = !needs_mask && self.block.is_empty() && self.warp.is_empty();
        if bare && !captured.declares() && w.gates.is_empty() && w.chosen.is_empty() {
            w.fragments(&self.thread, true);
            return w.out;
        }
        w.line("{");
        if !bare {
            w.line(".reg .pred %wbpf_p;");
            w.line(".reg .b32 %wbpf_a, %wbpf_b, %wbpf_c, %wbpf_n;");
            w.line(".reg .b64 %wbpf_d, %wbpf_e, %wbpf_f;");
        }
        w.out.push_str(&captured.declarations());
        if early {
            w.put(format_args!(".reg .b32 {HERE};"));
            w.out.push_str(&group_mask(HERE));
        }
        if !w.chosen.is_empty() {
            for (ty, name) in LaunchBits::registers() {
                w.put(format_args!(".reg .{ty} {name};"));
            }
            let skip = w.leaves.then(|| w.label("shut"));
            let read = w.chosen.read(args, skip.as_deref());
            w.out.push_str(&read);
        }
        if !w.gates.is_empty() {
            for (ty, name) in w.gates.registers() {
                w.put(format_args!(".reg .{ty} {name};"));
            }
            let skip = w.shuts.then(|| w.label("shut"));
            let read = w.gates.read(programs.slots(), skip.as_deref(), false);
            w.out.push_str(&read);
        }
        w.out.push_str(&captured.late);
        if needs_mask {
            w.put(format_args!(".reg .b32 {GROUP_MASK};"));
            w.out.push_str(&group_mask(GROUP_MASK));
        }
        if self.cells() > 0 {
            w.cells();
        }
        w.fragments(&self.thread, true);
        if self.counts() {
            if !self.warp.is_empty() || !self.block.is_empty() {
                w.exit(&self.warp, &self.block);
            }
        } else {
            w.entry(&self.warp, &self.block);
            if needs_mask && meets && !early {
                w.put(format_args!("bar.warp.sync {GROUP_MASK};"));
            }
        }
        if w.shuts || w.leaves {
            w.mark("shut");
        }
        if early {
            w.put(format_args!("bar.warp.sync {HERE};"));
        }
        w.line("}");
        w.out
    }
}

/// `%wbpf_p`: this lane is not the lowest of its group.
pub(crate) fn not_leader() -> String {
    format!(
        "\tmov.u32 %wbpf_a, %lanemask_lt;\n\tand.b32 %wbpf_a, %wbpf_a, {GROUP_MASK};\n\tsetp.ne.u32 %wbpf_p, \
         %wbpf_a, 0;\n"
    )
}

/// `%wbpf_p`: this is not thread 0 of its block.
pub(crate) fn not_first() -> String {
    let mut out = String::from("\tmov.u32 %wbpf_a, %tid.x;\n");
    for axis in ["y", "z"] {
        // Writing to a String cannot fail.
        let _ = write!(
            out,
            "\tmov.u32 %wbpf_b, %tid.{axis};\n\tor.b32 %wbpf_a, %wbpf_a, %wbpf_b;\n"
        );
    }
    out.push_str("\tsetp.ne.u32 %wbpf_p, %wbpf_a, 0;\n");
    out
}

/// Lanes that come to this code together may go through it differently: it has a branch under a
/// predicate, or calls a function.
pub(crate) fn parts_lanes(code: &str) -> bool {
    code.lines().any(|line| {
        let mut words = line.split_whitespace();
        match words.next() {
            Some(guard) if guard.starts_with('@') => {
                words.next().is_some_and(|opcode| opcode == "bra")
            }
            Some(opcode) => opcode.starts_with("call") || opcode.starts_with("brx"),
            None => false,
        }
    })
}

/// The fragment ends the thread (helper 507), and would leave a count of arrivals open.
pub(crate) fn ends_thread(fragment: &Fragment) -> bool {
    fragment
        .body
        .split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%' | '.')))
        .any(|word| word == "exit")
}

struct Writer<'w> {
    out: String,
    programs: &'w Programs<'w>,
    label: usize,
    sm: u32,
    /// Lanes that come together may wait for each other.
    meets: bool,
    args: LaunchArgs,
    warp_counters: bool,
    block_counters: bool,
    /// Of each block.
    cells: u64,
    gates: Gates,
    chosen: LaunchBits,
    /// The site as a whole was left out if none is open.
    shuts: bool,
    /// The same if none is in this launch.
    leaves: bool,
    /// Programs that were asked for by themselves.
    tests: u32,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        self.out.push('\t');
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.out, "\t{text}");
    }

    /// `name` made unique for this site.
    fn label(&self, name: &str) -> String {
        format!("wbpf_{name}_{}", self.label)
    }

    fn mark(&mut self, name: &str) {
        let label = self.label(name);
        let _ = writeln!(self.out, "{label}:");
    }

    fn branch(&mut self, guard: &str, name: &str) {
        let label = self.label(name);
        self.put(format_args!("{guard}bra {label};"));
    }

    /// Those of one scope, `thread` if each lane of the group runs them.
    fn fragments(&mut self, fragments: &[Placed<'_>], thread: bool) {
        for Placed {
            fragment,
            gate,
            bit,
            cell,
        } in fragments
        {
            let name = format!("closed_{}", self.tests);
            let label = self.label(&name);
            let together = thread && fragment.uses_group_mask;
            let mut test = self.chosen.test(*bit, self.leaves, &label);
            test += &self.gates.test(*gate, self.shuts, together, &label);
            self.out.push_str(&test);
            if fragment.block_cells > 0 {
                let at = u64::from(*cell) * launch::CELL;
                self.put(format_args!("add.s64 {BLOCK_CELLS}, %wbpf_g, {at};"));
            }
            self.programs.write(fragment, false, &mut self.out);
            if !test.is_empty() {
                self.tests += 1;
                self.mark(&name);
            }
        }
    }

    /// `%wbpf_g`: address of the block's cells.
    fn cells(&mut self) {
        let (first, bytes) = (launch::CELLS, self.cells * launch::CELL);
        self.put(format_args!(".reg .b64 %wbpf_g, {BLOCK_CELLS};"));
        self.linear_block();
        self.record();
        self.put(format_args!(
            "mad.lo.s64 %wbpf_g, %wbpf_d, {bytes}, %wbpf_f;"
        ));
        if first != 0 {
            self.put(format_args!("add.s64 %wbpf_g, %wbpf_g, {first};"));
        }
    }

    fn entry(&mut self, warp: &[Placed<'_>], block: &[Placed<'_>]) {
        if !warp.is_empty() {
            self.out.push_str(&not_leader());
            self.branch("@%wbpf_p ", "led");
            self.fragments(warp, false);
            self.mark("led");
        }
        if !block.is_empty() {
            self.out.push_str(&not_first());
            self.branch("@%wbpf_p ", "first");
            self.fragments(block, false);
            self.mark("first");
        }
    }

    /// `%wbpf_f`: address of the launch record.
    fn record(&mut self) {
        let load = self.args.load("%wbpf_f", launch::PARAM_RECORD);
        self.line(&load);
    }

    fn exit(&mut self, warp: &[Placed<'_>], block: &[Placed<'_>]) {
        if self.meets {
            self.put(format_args!("bar.warp.sync {GROUP_MASK};"));
            self.out.push_str(&not_leader());
            self.branch("@%wbpf_p ", "done");
            self.put(format_args!("popc.b32 %wbpf_n, {GROUP_MASK};"));
        } else {
            self.line("mov.u32 %wbpf_n, 1;");
        }
        self.linear_block();
        // %wbpf_c: threads of the block.
        self.line("mov.u32 %wbpf_a, %ntid.x;");
        self.line("mov.u32 %wbpf_b, %ntid.y;");
        self.line("mul.lo.u32 %wbpf_c, %wbpf_a, %wbpf_b;");
        self.line("mov.u32 %wbpf_a, %ntid.z;");
        self.line("mul.lo.u32 %wbpf_c, %wbpf_c, %wbpf_a;");
        self.record();
        if self.cells > 0 {
            let bytes = self.cells * launch::CELL;
            self.put(format_args!(
                "mad.lo.s64 %wbpf_f, %wbpf_e, {bytes}, %wbpf_f;"
            ));
        }
        if !warp.is_empty() {
            self.warp_exit(warp);
        }
        if !block.is_empty() {
            self.line("shl.b64 %wbpf_e, %wbpf_d, 2;");
            self.line("add.s64 %wbpf_e, %wbpf_f, %wbpf_e;");
            self.arrive("done");
            self.fragments(block, false);
        }
        self.mark("done");
    }

    /// `%wbpf_d`: linear block id; `%wbpf_e`: blocks of the grid, where that is needed.
    fn linear_block(&mut self) {
        self.line("mov.u32 %wbpf_a, %ctaid.z;");
        self.line("mov.u32 %wbpf_b, %nctaid.y;");
        self.line("mul.wide.u32 %wbpf_d, %wbpf_a, %wbpf_b;");
        self.line("mov.u32 %wbpf_a, %ctaid.y;");
        self.line("cvt.u64.u32 %wbpf_e, %wbpf_a;");
        self.line("add.s64 %wbpf_d, %wbpf_d, %wbpf_e;");
        self.line("mov.u32 %wbpf_a, %nctaid.x;");
        self.line("cvt.u64.u32 %wbpf_e, %wbpf_a;");
        self.line("mul.lo.s64 %wbpf_d, %wbpf_d, %wbpf_e;");
        self.line("mov.u32 %wbpf_a, %ctaid.x;");
        self.line("cvt.u64.u32 %wbpf_f, %wbpf_a;");
        self.line("add.s64 %wbpf_d, %wbpf_d, %wbpf_f;");
        let counts = self.warp_counters || self.block_counters;
        if self.warp_counters && self.block_counters || counts && self.cells > 0 {
            self.line("mov.u32 %wbpf_a, %nctaid.y;");
            self.line("cvt.u64.u32 %wbpf_f, %wbpf_a;");
            self.line("mul.lo.s64 %wbpf_e, %wbpf_e, %wbpf_f;");
            self.line("mov.u32 %wbpf_a, %nctaid.z;");
            self.line("cvt.u64.u32 %wbpf_f, %wbpf_a;");
            self.line("mul.lo.s64 %wbpf_e, %wbpf_e, %wbpf_f;");
        }
    }

    /// Runs `warp` in the leader that completes its warp; all leaders go on behind it. Uses %wbpf_c
    /// without changing it, %wbpf_d and %wbpf_f likewise; %wbpf_n stays the group's size.
    fn warp_exit(&mut self, warp: &[Placed<'_>]) {
        self.line("{");
        self.line(".reg .b32 %wbpf_w, %wbpf_l;");
        // Linear thread index, then warp index and the lanes that this warp has.
        self.line("mov.u32 %wbpf_a, %tid.z;");
        self.line("mov.u32 %wbpf_b, %ntid.y;");
        self.line("mov.u32 %wbpf_l, %tid.y;");
        self.line("mad.lo.u32 %wbpf_a, %wbpf_a, %wbpf_b, %wbpf_l;");
        self.line("mov.u32 %wbpf_b, %ntid.x;");
        self.line("mov.u32 %wbpf_l, %tid.x;");
        self.line("mad.lo.u32 %wbpf_a, %wbpf_a, %wbpf_b, %wbpf_l;");
        self.line("shr.u32 %wbpf_w, %wbpf_a, 5;");
        self.line("shl.b32 %wbpf_l, %wbpf_w, 5;");
        self.line("sub.u32 %wbpf_l, %wbpf_c, %wbpf_l;");
        self.line("min.u32 %wbpf_l, %wbpf_l, 32;");
        self.line("setp.eq.u32 %wbpf_p, %wbpf_n, %wbpf_l;");
        self.branch("@%wbpf_p ", "whole");
        // Counter, behind the cells: blocks * 4 when block counters come first, + (block * warps +
        // warp) * 4.
        if self.block_counters {
            self.line("shl.b64 %wbpf_e, %wbpf_e, 2;");
            self.line("add.s64 %wbpf_e, %wbpf_f, %wbpf_e;");
        } else {
            self.line("mov.b64 %wbpf_e, %wbpf_f;");
        }
        self.line("{");
        self.line(".reg .b64 %wbpf_g, %wbpf_h;");
        self.line("add.u32 %wbpf_a, %wbpf_c, 31;");
        self.line("shr.u32 %wbpf_a, %wbpf_a, 5;");
        self.line("cvt.u64.u32 %wbpf_g, %wbpf_a;");
        self.line("cvt.u64.u32 %wbpf_h, %wbpf_w;");
        self.line("mad.lo.s64 %wbpf_g, %wbpf_d, %wbpf_g, %wbpf_h;");
        self.line("shl.b64 %wbpf_g, %wbpf_g, 2;");
        self.line("add.s64 %wbpf_e, %wbpf_e, %wbpf_g;");
        self.line("}");
        self.arrive_count("%wbpf_l", "partial");
        self.mark("whole");
        self.fragments(warp, false);
        self.mark("partial");
        self.line("}");
    }

    /// Adds the group to the block's count at %wbpf_e; those who do not complete it go to label
    /// `other`.
    fn arrive(&mut self, other: &str) {
        self.arrive_count("%wbpf_c", other);
    }

    /// Adds %wbpf_n at %wbpf_e; who does not reach `full` goes to label `other`, who does sets the
    /// counter back.
    fn arrive_count(&mut self, full: &str, other: &str) {
        let offset = launch::CELLS;
        // Whoever fires sees what the lanes counted before it wrote to maps.
        if self.sm >= 70 {
            self.put(format_args!(
                "atom.acq_rel.gpu.global.add.u32 %wbpf_a, [%wbpf_e+{offset}], %wbpf_n;"
            ));
        } else {
            self.line("membar.gl;");
            self.put(format_args!(
                "atom.global.add.u32 %wbpf_a, [%wbpf_e+{offset}], %wbpf_n;"
            ));
            self.line("membar.gl;");
        }
        self.line("add.u32 %wbpf_a, %wbpf_a, %wbpf_n;");
        self.put(format_args!("setp.ne.u32 %wbpf_p, %wbpf_a, {full};"));
        self.branch("@%wbpf_p ", other);
        self.put(format_args!("st.global.u32 [%wbpf_e+{offset}], 0;"));
    }
}
