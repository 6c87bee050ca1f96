//! Every algorithm against a version that is too simple to be wrong, on random graphs.

use std::collections::BTreeSet;

use proptest::prelude::*;
use warpbpf_flow::{Analysis, BitSet, Cfg, Direction, DomTree, Loops, solve};

fn graph() -> impl Strategy<Value = Cfg> {
    (1usize..12).prop_flat_map(|n| {
        proptest::collection::vec((0..n, 0..n), 0..24).prop_map(move |edges| Cfg::new(n, 0, edges))
    })
}

/// Blocks that `from` reaches without going through `without`.
fn reach(cfg: &Cfg, from: usize, without: Option<usize>) -> BTreeSet<usize> {
    let mut seen = BTreeSet::new();
    let mut work = vec![from];
    while let Some(b) = work.pop() {
        if Some(b) != without && seen.insert(b) {
            work.extend(cfg.succs(b));
        }
    }
    seen
}

/// `a` dominates `b`: without `a`, `b` cannot be reached.
fn dominates(cfg: &Cfg, a: usize, b: usize) -> bool {
    let live = reach(cfg, 0, None);
    live.contains(&a) && live.contains(&b) && !reach(cfg, 0, Some(a)).contains(&b)
}

/// Reaching blocks: which blocks may have run before.
struct Ran;
impl Analysis<usize> for Ran {
    type Fact = BitSet;
    const DIRECTION: Direction = Direction::Forward;
    fn bottom(&self) -> BitSet {
        BitSet::new()
    }
    fn boundary(&self) -> BitSet {
        BitSet::new()
    }
    fn join(&self, into: &mut BitSet, from: &BitSet) -> bool {
        into.union_with(from)
    }
    fn transfer(&self, block: usize, fact: &mut BitSet) {
        fact.insert(block);
    }
}

/// Blocks that may still run.
struct WillRun;
impl Analysis<usize> for WillRun {
    type Fact = BitSet;
    const DIRECTION: Direction = Direction::Backward;
    fn bottom(&self) -> BitSet {
        BitSet::new()
    }
    fn boundary(&self) -> BitSet {
        BitSet::new()
    }
    fn join(&self, into: &mut BitSet, from: &BitSet) -> bool {
        into.union_with(from)
    }
    fn transfer(&self, block: usize, fact: &mut BitSet) {
        fact.insert(block);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn orders_hold_every_reachable_block_once(cfg in graph()) {
        let rpo = cfg.reverse_post_order();
        prop_assert_eq!(rpo[0], 0);
        prop_assert_eq!(rpo.iter().copied().collect::<BTreeSet<_>>(), reach(&cfg, 0, None));
        prop_assert_eq!(rpo.len(), cfg.reachable().len());
        // An edge that goes backwards in the order closes a cycle.
        for (i, &b) in rpo.iter().enumerate() {
            for &s in cfg.succs(b) {
                let at = rpo.iter().position(|&x| x == s).expect("a successor of a reachable block");
                prop_assert!(at > i || reach(&cfg, s, None).contains(&b));
            }
        }
    }

    #[test]
    fn dominators_agree_with_removal(cfg in graph()) {
        let dom = DomTree::new(&cfg);
        for a in cfg.blocks() {
            for b in cfg.blocks() {
                prop_assert_eq!(dom.dominates(a, b), dominates(&cfg, a, b), "{} over {}", a, b);
            }
            // The immediate dominator is the strict dominator that all other strict dominators
            // dominate.
            let naive = cfg.blocks().find(|&d| d != a && dominates(&cfg, d, a)
                && cfg.blocks().all(|e| e == a || !dominates(&cfg, e, a) || dominates(&cfg, e, d)));
            prop_assert_eq!(dom.idom(a), naive);
            prop_assert_eq!(dom.children(a).iter().copied().collect::<BTreeSet<_>>(),
                cfg.blocks().filter(|&c| dom.idom(c) == Some(a)).collect::<BTreeSet<_>>());
        }
        let frontiers = dom.frontiers(&cfg);
        for a in cfg.blocks() {
            let naive: BitSet = cfg.blocks().filter(|&b| {
                cfg.preds(b).iter().any(|&p| dominates(&cfg, a, p)) && !(a != b && dominates(&cfg, a, b))
            }).collect();
            prop_assert_eq!(&frontiers[a], &naive);
        }
    }

    #[test]
    fn loops_agree_with_their_definition(cfg in graph()) {
        let dom = DomTree::new(&cfg);
        let loops = Loops::new(&cfg, &dom);
        for h in cfg.blocks() {
            let latches: Vec<usize> = cfg.blocks().filter(|&l| cfg.succs(l).contains(&h) && dominates(&cfg, h, l)).collect();
            let found = loops.iter().find(|(_, l)| l.header == h);
            prop_assert_eq!(found.map(|(_, l)| l.latches.clone()).unwrap_or_default(), latches.clone());
            if let Some((id, l)) = found {
                // A block is inside if it reaches a latch without passing the header.
                let naive: BitSet = cfg.blocks().filter(|&b| b == h || (dom.is_reachable(b)
                    && latches.iter().any(|&latch| reach(&cfg, b, Some(h)).contains(&latch)))).collect();
                prop_assert_eq!(&l.blocks, &naive);
                if let Some(parent) = l.parent {
                    prop_assert!(l.blocks.is_subset(&loops.get(parent).blocks));
                    prop_assert!(parent < id);
                }
            }
        }
        for b in cfg.blocks() {
            let around = loops.iter().filter(|(_, l)| l.blocks.contains(b)).count();
            prop_assert!(loops.depth(b) as usize <= around);
            prop_assert_eq!(loops.innermost(b).is_some(), around > 0);
        }
    }

    #[test]
    fn solutions_agree_with_reachability(cfg in graph()) {
        let ran = solve(&cfg, &Ran);
        let will = solve(&cfg, &WillRun);
        let live = reach(&cfg, 0, None);
        for b in cfg.blocks() {
            if !live.contains(&b) {
                prop_assert!(ran.before[b].is_empty() && will.after[b].is_empty());
                continue;
            }
            let before: BitSet = live.iter().copied()
                .filter(|&a| cfg.succs(a).iter().any(|&s| reach(&cfg, s, None).contains(&b))).collect();
            prop_assert_eq!(&ran.before[b], &before);
            let after: BitSet = cfg.succs(b).iter().flat_map(|&s| reach(&cfg, s, None)).collect();
            prop_assert_eq!(&will.after[b], &after);
        }
    }

    #[test]
    fn bit_sets_agree_with_ordered_sets(
        a in proptest::collection::btree_set(0usize..200, 0..40),
        b in proptest::collection::btree_set(0usize..200, 0..40),
        x in 0usize..200,
    ) {
        let (sa, sb): (BitSet, BitSet) = (a.iter().copied().collect(), b.iter().copied().collect());
        prop_assert_eq!(sa.iter().collect::<BTreeSet<_>>(), a.clone());
        prop_assert_eq!(sa.len(), a.len());
        prop_assert_eq!(sa.contains(x), a.contains(&x));
        prop_assert_eq!(sa.is_subset(&sb), a.is_subset(&b));
        prop_assert_eq!(sa == sb, a == b);
        let check = |f: &dyn Fn(&mut BitSet) -> bool, want: BTreeSet<usize>| {
            let mut s = sa.clone();
            let changed = f(&mut s);
            assert_eq!(s.iter().collect::<BTreeSet<_>>(), want);
            assert_eq!(changed, want != a);
        };
        check(&|s| s.union_with(&sb), &a | &b);
        check(&|s| s.intersect_with(&sb), &a & &b);
        check(&|s| s.subtract(&sb), &a - &b);
        check(&|s| s.insert(x), &a | &BTreeSet::from([x]));
        check(&|s| s.remove(x), &a - &BTreeSet::from([x]));
    }
}

#[test]
fn a_full_set_ends_where_it_should() {
    for n in [0, 1, 63, 64, 65, 128] {
        assert_eq!(
            BitSet::<usize>::full(n).iter().collect::<Vec<_>>(),
            (0..n).collect::<Vec<_>>()
        );
    }
    let mut set: BitSet = BitSet::full(70);
    set.clear();
    assert!(set.is_empty() && set == BitSet::new());
}

#[test]
fn two_ways_into_a_cycle_is_no_natural_loop() {
    let cfg = Cfg::new(3, 0, [(0, 1), (0, 2), (1, 2), (2, 1)]);
    let loops = Loops::new(&cfg, &DomTree::new(&cfg));
    assert!(loops.is_empty());
    assert_eq!(loops.irreducible_edges().len(), 1);
}
