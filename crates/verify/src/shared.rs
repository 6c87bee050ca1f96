//! Updates of shared map values that can be lost, and locks: what is safe but, with thousands of
//! threads at once, almost surely not what its author meant.
//!
//! For each map that threads share, its loads and lookups are marked and the marks followed through
//! registers, stack, calls and callbacks. A store whose value carries the mark of a load of the
//! same bytes is a read-modify-write; so is one that only happens if a test of such a load says so
//! (`if (x > v->max) v->max = x`). The forms that the code generator turns into one atomic
//! operation are left out: see [`becomes_atomic`].

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use warpbpf_abi::helpers::HelperId;
use warpbpf_abi::maps::{BPF_ANY, MapType};
use warpbpf_ebpf::{AluOp, AtomicOp, Insn, JumpOp, Pc, Reg, Source, Width};
use warpbpf_flow::{DomTree, Loops};

use crate::atomic::{Line, becomes_atomic, overlap};
use crate::defines::fetched;
use crate::facts::{ArgFact, InsnFact, Place, Region, map_def};
use crate::graph::{Graph, Kind, Part};
use crate::warp::{postdominators, region};

/// Nodes that may be looked at behind branches, for one map.
const EFFORT: usize = 1 << 20;
/// Marks of loads; the rest of the 64 are of lookups. With more of either, several share one.
const LOADS: usize = 48;
const LOOKUPS: usize = 64 - LOADS;
/// Only the marks of lookups.
const LOOKUP_MARKS: u64 = u64::MAX << LOADS;

/// What was found.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Finding {
    /// A value is loaded, changed and stored.
    Update {
        map: u32,
        width: Width,
        checked: bool,
    },
    /// `bpf_map_update_elem` writes back what was computed from the map's own value.
    WriteBack { map: u32 },
    /// `bpf_map_update_elem` with `BPF_ANY` where a lookup found nothing.
    Insert { map: u32 },
    /// A compare-and-swap or exchange that is tried until it succeeds, without looking at the value
    /// first.
    Lock { map: u32 },
}

/// Where, what, and the load, lookup or loop that it is about.
pub type Found = (Pc, Finding, Option<Pc>);

/// Looks at all maps.
pub fn find(graph: &Graph<'_>) -> BTreeSet<Found> {
    let mut found = BTreeSet::new();
    let mut uses: BTreeMap<u32, Uses> = BTreeMap::new();
    for &node in &graph.order {
        if graph.at(node).kind == Kind::Insn {
            collect(graph, node, &mut uses);
        }
    }
    let mut post = None;
    for (&map, uses) in &uses {
        if !uses.matters() {
            continue;
        }
        let post = post.get_or_insert_with(|| postdominators(graph));
        OfMap::new(graph, map, uses, post).find(&mut found);
    }
    found
}

/// Where a map is used.
#[derive(Default)]
struct Uses {
    loads: Vec<usize>,
    atomics: Vec<usize>,
    lookups: Vec<usize>,
    stores: Vec<usize>,
    updates: Vec<usize>,
}

impl Uses {
    fn matters(&self) -> bool {
        let reads = !self.loads.is_empty() || !self.atomics.is_empty();
        let writes = !self.stores.is_empty() || !self.updates.is_empty();
        reads && writes
            || !self.atomics.is_empty()
            || !self.lookups.is_empty() && !self.updates.is_empty()
    }
}

fn collect(graph: &Graph<'_>, node: usize, uses: &mut BTreeMap<u32, Uses>) {
    let of = |place: &Place| match place.region {
        Region::MapValue { map } if shared(graph, map) => Some(map),
        _ => None,
    };
    match (graph.insn(node), graph.fact(node)) {
        (Insn::Load { .. } | Insn::LoadAcquire { .. }, InsnFact::Access(place)) => {
            if let Some(map) = of(place) {
                uses.entry(map).or_default().loads.push(node);
            }
        }
        (Insn::Store { .. } | Insn::StoreRelease { .. }, InsnFact::Access(place)) => {
            if let Some(map) = of(place) {
                uses.entry(map).or_default().stores.push(node);
            }
        }
        (Insn::Atomic { op, src, .. }, InsnFact::Access(place)) => {
            if let (Some(map), Some(_)) = (of(place), fetched(op, src)) {
                uses.entry(map).or_default().atomics.push(node);
            }
        }
        (Insn::Call { .. }, InsnFact::Call(call)) => {
            let Some(map) = call.map.filter(|&map| shared(graph, map)) else {
                return;
            };
            match call.helper {
                HelperId::MapLookupElem | HelperId::MapLookupPercpuElem => {
                    uses.entry(map).or_default().lookups.push(node);
                }
                HelperId::MapUpdateElem => uses.entry(map).or_default().updates.push(node),
                _ => {}
            }
        }
        (Insn::LoadImm64 { dst: _, value }, _) => {
            if let warpbpf_ebpf::Imm64::MapValue { map, .. } = value
                && shared(graph, map)
            {
                uses.entry(map).or_default().lookups.push(node);
            }
        }
        _ => {}
    }
}

/// Other threads see the same values. A per-SM copy is shared by the threads of its SM.
fn shared(graph: &Graph<'_>, map: u32) -> bool {
    match graph.map_type(map) {
        Some(MapType::Hash | MapType::Array | MapType::PercpuArray) => {
            graph.env.constant_bytes(map).is_none()
        }
        Some(
            MapType::PercpuHash | MapType::LruHash | MapType::LruPercpuHash | MapType::GpuHash,
        ) => true,
        Some(MapType::GpuArray | MapType::GpuKernelArray | MapType::GpuHostArray) => true,
        Some(
            MapType::PerfEventArray
            | MapType::ArrayOfMaps
            | MapType::HashOfMaps
            | MapType::Queue
            | MapType::Stack
            | MapType::BloomFilter
            | MapType::UserRingbuf
            | MapType::PerThreadHostArray
            | MapType::GpuRingbuf,
        ) => false,
        Some(MapType::PerThreadArray | MapType::Ringbuf) | None => false,
    }
}

/// Marks by location: a frame's registers, then its stack cells.
type Marks = BTreeMap<u16, u64>;

fn locations(part: &Part) -> impl Iterator<Item = u16> + '_ {
    let base = part.frame as u16 * 256;
    let regs = (0..16).filter(|i| part.regs >> i & 1 != 0);
    let cells = (0..128).filter(|i| part.cells >> i & 1 != 0);
    regs.map(move |i| base + i)
        .chain(cells.map(move |i| base + 16 + i))
}

fn marks_of(marks: &Marks, part: &Part) -> u64 {
    if marks.is_empty() {
        return 0;
    }
    locations(part).fold(0, |all, at| all | marks.get(&at).copied().unwrap_or(0))
}

/// One map's uses, and what is marked where.
struct OfMap<'g, 'a> {
    graph: &'g Graph<'a>,
    map: u32,
    uses: &'g Uses,
    post: &'g [Option<usize>],
    /// The mark of each load, fetching atomic and lookup.
    marks: BTreeMap<usize, u64>,
    before: Vec<Marks>,
}

impl<'g, 'a> OfMap<'g, 'a> {
    fn new(
        graph: &'g Graph<'a>,
        map: u32,
        uses: &'g Uses,
        post: &'g [Option<usize>],
    ) -> OfMap<'g, 'a> {
        let mut marks = BTreeMap::new();
        for (i, &node) in uses.loads.iter().chain(&uses.atomics).enumerate() {
            marks.insert(node, 1 << (i % LOADS));
        }
        for (i, &node) in uses.lookups.iter().enumerate() {
            marks.insert(node, 1 << (LOADS + i % LOOKUPS));
        }
        let mut of_map = OfMap {
            graph,
            map,
            uses,
            post,
            marks,
            before: vec![Marks::new(); graph.len()],
        };
        of_map.solve();
        of_map
    }

    fn solve(&mut self) {
        let order = &self.graph.order;
        let mut queued = vec![true; order.len()];
        let mut work: BinaryHeap<std::cmp::Reverse<usize>> =
            (0..order.len()).map(std::cmp::Reverse).collect();
        while let Some(std::cmp::Reverse(i)) = work.pop() {
            queued[i] = false;
            let node = order[i];
            let after = self.transfer(node);
            if after.is_empty() {
                continue;
            }
            for &to in self.graph.cfg.succs(node) {
                let mut grew = false;
                for (&at, &marks) in &after {
                    let old = self.before[to].entry(at).or_insert(0);
                    grew |= *old | marks != *old;
                    *old |= marks;
                }
                let at = self.graph.position[to];
                if grew && !queued[at] {
                    queued[at] = true;
                    work.push(std::cmp::Reverse(at));
                }
            }
        }
    }

    fn transfer(&self, node: usize) -> Marks {
        let mut marks = self.before[node].clone();
        self.graph.flows(node, &mut |flow| {
            let all = flow
                .from
                .iter()
                .fold(0, |all, part| all | marks_of(&marks, part));
            if flow.strong && !marks.is_empty() {
                for at in locations(&flow.to) {
                    marks.remove(&at);
                }
            }
            if all != 0 {
                for at in locations(&flow.to) {
                    *marks.entry(at).or_insert(0) |= all;
                }
            }
        });
        if let Some(&own) = self.marks.get(&node)
            && let Some(reg) = self.result(node)
        {
            marks.insert(
                self.graph.frame(node) as u16 * 256 + reg.index() as u16,
                own,
            );
        }
        marks
    }

    fn result(&self, node: usize) -> Option<Reg> {
        match self.graph.insn(node) {
            Insn::Load { dst, .. }
            | Insn::LoadAcquire { dst, .. }
            | Insn::LoadImm64 { dst, .. } => Some(dst),
            Insn::Atomic { op, src, .. } => fetched(op, src),
            Insn::Call { .. } => Some(Reg::R0),
            _ => None,
        }
    }

    fn reg_marks(&self, node: usize, reg: Reg) -> u64 {
        let part = Part {
            frame: self.graph.frame(node),
            regs: 1 << reg.index(),
            cells: 0,
        };
        marks_of(&self.before[node], &part)
    }

    fn find(&self, found: &mut BTreeSet<Found>) {
        for &store in &self.uses.stores {
            if let Some((value, width)) = stored(&self.graph.insn(store))
                && let Some(load) = self.loaded(store, self.reg_marks(store, value))
                && !becomes_atomic(self.graph, store)
            {
                let update = Finding::Update {
                    map: self.map,
                    width,
                    checked: false,
                };
                self.report(found, store, update, load);
            }
        }
        for &update in &self.uses.updates {
            let value = self.graph.argument(update, 2);
            let marks = value
                .iter()
                .fold(0, |all, part| all | marks_of(&self.before[update], part));
            if let Some(load) = self.first_load(marks & !LOOKUP_MARKS) {
                self.report(found, update, Finding::WriteBack { map: self.map }, load);
            }
        }
        self.behind_branches(found);
        self.locks(found);
    }

    fn report(&self, found: &mut BTreeSet<Found>, node: usize, what: Finding, about: usize) {
        found.insert((self.graph.at(node).pc, what, Some(self.graph.at(about).pc)));
    }

    /// A load of the bytes that `store` writes, in the same value, whose mark is among these.
    fn loaded(&self, store: usize, marks: u64) -> Option<usize> {
        if marks & !LOOKUP_MARKS == 0 {
            return None;
        }
        let value = self.value_marks(store)?;
        self.uses
            .loads
            .iter()
            .chain(&self.uses.atomics)
            .copied()
            .find(|&load| {
                self.marks[&load] & marks != 0
                    && self.value_marks(load).is_some_and(|v| v & value != 0)
                    && overlap(self.graph, load, store)
            })
    }

    fn first_load(&self, marks: u64) -> Option<usize> {
        self.uses
            .loads
            .iter()
            .chain(&self.uses.atomics)
            .copied()
            .find(|load| self.marks[load] & marks != 0)
    }

    /// The lookups that the address of an access comes from.
    fn value_marks(&self, node: usize) -> Option<u64> {
        let base = match self.graph.insn(node) {
            Insn::Load { base, .. }
            | Insn::LoadAcquire { base, .. }
            | Insn::Store { base, .. }
            | Insn::StoreRelease { base, .. }
            | Insn::Atomic { base, .. } => base,
            _ => return None,
        };
        // All addresses of a data section come from one value.
        let data = matches!(
            map_def(self.graph.env.maps, self.map).map(|m| &m.kind),
            Some(warpbpf_object::MapKind::Data { .. })
        );
        Some(if data {
            LOOKUP_MARKS
        } else {
            self.reg_marks(node, base) & LOOKUP_MARKS
        })
    }

    /// What happens only if a test of a loaded value, or of what a lookup found, says so.
    fn behind_branches(&self, found: &mut BTreeSet<Found>) {
        let written = !self.uses.stores.is_empty() || self.adds();
        let mut label = vec![0; self.graph.len()];
        let mut looked_at = 0;
        for &branch in &self.graph.order {
            if !self.graph.is_branch(branch) || self.graph.at(branch).kind == Kind::Again {
                continue;
            }
            let decides = self.graph.decides(branch);
            let marks = decides
                .iter()
                .fold(0, |all, part| all | marks_of(&self.before[branch], part));
            if marks == 0 {
                continue;
            }
            let null = self.null_side(branch);
            if marks & !LOOKUP_MARKS == 0 && (null.is_none() || self.uses.updates.is_empty()) {
                continue;
            }
            let region = region(self.graph, branch, self.post[branch], &mut label);
            looked_at += region.nodes.len();
            if looked_at > EFFORT {
                return;
            }
            for &node in &region.nodes {
                self.behind(branch, node, marks, found);
            }
            if let (Some(null), true) = (null, written) {
                self.inserts(branch, null, &region.nodes, marks, found);
            }
        }
    }

    /// Some atomic operation changes a value.
    fn adds(&self) -> bool {
        self.graph.order.iter().any(|&node| {
            matches!(
                (self.graph.insn(node), self.graph.fact(node)),
                (Insn::Atomic { .. }, InsnFact::Access(Place { region: Region::MapValue { map }, .. }))
                    if *map == self.map
            )
        })
    }

    fn behind(&self, branch: usize, node: usize, marks: u64, found: &mut BTreeSet<Found>) {
        if !self.uses.stores.contains(&node) {
            return;
        }
        let Some((value, width)) = stored(&self.graph.insn(node)) else {
            return;
        };
        // A constant: whoever comes second stores the same.
        if self.is_constant(node, value) || becomes_atomic(self.graph, node) {
            return;
        }
        let update = |checked| Finding::Update {
            map: self.map,
            width,
            checked,
        };
        if let Some(load) = self.loaded(node, marks) {
            let pc = self.graph.at(node).pc;
            let told = |(at, what, _): &Found| *at == pc && *what == update(false);
            if !found.iter().any(told) && self.graph.at(branch).kind == Kind::Insn {
                self.report(found, node, update(true), load);
            }
        }
    }

    /// The last definition of the register before `node`, in the same straight line, is a constant.
    fn is_constant(&self, node: usize, reg: Reg) -> bool {
        let line = Line::before(self.graph, node);
        match line.definition(reg, node) {
            Some(def) => matches!(
                self.graph.insn(def),
                Insn::Alu {
                    op: AluOp::Mov,
                    src: Source::Imm(_),
                    ..
                } | Insn::LoadImm64 { .. }
            ),
            None => false,
        }
    }

    /// Where a null check of a lookup goes if there was nothing.
    fn null_side(&self, branch: usize) -> Option<usize> {
        if !self.graph.map_type(self.map).is_some_and(MapType::is_hash) {
            return None;
        }
        let (
            Insn::Jump { op, target, .. },
            InsnFact::Branch {
                null_check: true, ..
            },
        ) = (self.graph.insn(branch), self.graph.fact(branch))
        else {
            return None;
        };
        let at = self.graph.at(branch);
        let pc = match op {
            JumpOp::Eq => target,
            JumpOp::Ne => at.pc.next(),
            _ => return None,
        };
        Some(self.graph.node(at.instance, pc))
    }

    fn inserts(
        &self,
        branch: usize,
        null: usize,
        region: &[usize],
        marks: u64,
        found: &mut BTreeSet<Found>,
    ) {
        let any = |&update: &usize| {
            matches!(self.graph.fact(update), InsnFact::Call(call)
                if matches!(call.args[3], ArgFact::Scalar { value: Some(BPF_ANY), .. }))
        };
        let updates = || self.uses.updates.iter().copied().filter(any);
        if updates().next().is_none() {
            return;
        }
        let inside: BTreeSet<usize> = region.iter().copied().collect();
        let mut seen = BTreeSet::new();
        let mut work = vec![null];
        while let Some(node) = work.pop() {
            if inside.contains(&node) && seen.insert(node) {
                work.extend(self.graph.cfg.succs(node));
            }
        }
        let lookup = self
            .uses
            .lookups
            .iter()
            .copied()
            .find(|l| self.marks[l] & marks != 0)
            .unwrap_or(branch);
        for update in updates().filter(|u| seen.contains(u)) {
            self.report(found, update, Finding::Insert { map: self.map }, lookup);
        }
    }

    fn locks(&self, found: &mut BTreeSet<Found>) {
        let tries: Vec<usize> = self
            .uses
            .atomics
            .iter()
            .copied()
            .filter(|&n| self.blind(n))
            .collect();
        if tries.is_empty() {
            return;
        }
        let loops = Loops::new(&self.graph.cfg, &DomTree::new(&self.graph.cfg));
        for node in tries {
            let own = self.marks[&node];
            let exits = |&branch: &usize| {
                let waits = self
                    .graph
                    .decides(branch)
                    .iter()
                    .any(|part| marks_of(&self.before[branch], part) & own != 0);
                waits
                    && loops.iter().any(|(_, l)| {
                        l.blocks.contains(node)
                            && l.blocks.contains(branch)
                            && self
                                .graph
                                .cfg
                                .succs(branch)
                                .iter()
                                .any(|&to| !l.blocks.contains(to))
                    })
            };
            let waits = self
                .graph
                .order
                .iter()
                .find(|&b| self.graph.is_branch(*b) && exits(b));
            if let Some(&branch) = waits {
                self.report(found, node, Finding::Lock { map: self.map }, branch);
            }
        }
    }

    /// A compare-and-swap whose expected value, or an exchange whose new value, does not come from
    /// the map: it does not bring a value up to date but takes something.
    fn blind(&self, node: usize) -> bool {
        match self.graph.insn(node) {
            Insn::Atomic {
                op: AtomicOp::CmpXchg,
                ..
            } => self.reg_marks(node, Reg::R0) & !LOOKUP_MARKS == 0,
            Insn::Atomic {
                op: AtomicOp::Xchg,
                src,
                ..
            } => self.is_constant(node, src),
            _ => false,
        }
    }
}

/// The register that a store stores.
fn stored(insn: &Insn) -> Option<(Reg, Width)> {
    match insn {
        Insn::Store {
            src: Source::Reg(src),
            width,
            ..
        }
        | Insn::StoreRelease { src, width, .. } => Some((*src, *width)),
        _ => None,
    }
}
