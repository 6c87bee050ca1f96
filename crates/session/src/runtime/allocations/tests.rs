//! What is readable, after what has come and gone.
#![expect(
    clippy::single_range_in_vec_init,
    reason = "a table with one range is meant"
)]

use super::*;

const HERE: usize = 0x100;
const ELSEWHERE: usize = 0x200;

fn plain(start: u64, bytes: u64) -> Allocation {
    Allocation {
        kind: Kind::Device,
        name: start,
        range: start..start + bytes,
        context: HERE,
        owner: 0,
    }
}

fn ranges(set: &Allocations) -> Vec<Range<u64>> {
    let readable = set.readable(HERE, 0);
    assert_eq!(readable.left_out, 0);
    readable.ranges
}

#[test]
fn allocations_come_and_go() {
    let mut set = Allocations::default();
    assert_eq!(ranges(&set), []);
    set.add(plain(0x1000, 0x100));
    set.add(plain(0x800, 0x10));
    assert_eq!(ranges(&set), [0x800..0x810, 0x1000..0x1100]);
    assert!(set.take(Kind::Device, 0x1008).is_empty(), "not its start");
    assert!(set.take(Kind::Host, 0x1000).is_empty(), "another kind");
    let taken = set.take(Kind::Device, 0x1000);
    assert_eq!(ranges(&set), [0x800..0x810]);
    set.put_back(taken);
    assert_eq!(ranges(&set), [0x800..0x810, 0x1000..0x1100]);
    assert!(!set.take(Kind::Device, 0x1000).is_empty());
    assert!(set.take(Kind::Device, 0x1000).is_empty());
}

#[test]
fn only_one_context_can_be_read() {
    let mut set = Allocations::default();
    set.add(plain(0x1000, 0x100));
    set.add(Allocation {
        context: ELSEWHERE,
        ..plain(0x3000, 0x100)
    });
    assert_eq!(ranges(&set), [0x1000..0x1100]);
    assert_eq!(set.readable(ELSEWHERE, 0).ranges, [0x3000..0x3100]);
    let taken = set.take_context(HERE);
    assert_eq!(taken.allocations, [plain(0x1000, 0x100)]);
    assert_eq!(ranges(&set), []);
    assert_eq!(set.readable(ELSEWHERE, 0).ranges, [0x3000..0x3100]);
    set.clear();
    assert_eq!(set.readable(ELSEWHERE, 0), Readable::default());
}

#[test]
fn neighbours_become_one_unless_a_word_would_lie_across() {
    let mut set = Allocations::default();
    set.add(plain(0x1000, 0x100));
    set.add(plain(0x1100, 0x100));
    assert_eq!(ranges(&set), [0x1000..0x1200]);
    set.add(plain(0x2000, 3));
    set.add(plain(0x2003, 5));
    assert_eq!(
        ranges(&set),
        [0x1000..0x1200, 0x2000..0x2003, 0x2003..0x2008]
    );
    let _ = set.take(Kind::Device, 0x1000);
    assert_eq!(
        ranges(&set),
        [0x1100..0x1200, 0x2000..0x2003, 0x2003..0x2008]
    );
}

#[test]
fn what_is_given_out_twice_is_given_back_twice() {
    let mut set = Allocations::default();
    let opened = Allocation {
        kind: Kind::Ipc,
        ..plain(0x1000, 0x100)
    };
    set.add(opened.clone());
    set.add(opened);
    set.add(plain(0x1000, 0x40));
    let _ = set.take(Kind::Ipc, 0x1000);
    assert_eq!(ranges(&set), [0x1000..0x1100]);
    let _ = set.take(Kind::Ipc, 0x1000);
    assert_eq!(ranges(&set), [0x1000..0x1040]);
}

#[test]
fn host_memory_has_a_name_of_its_own() {
    let mut set = Allocations::default();
    set.add(Allocation {
        kind: Kind::Host,
        name: 0x5000,
        ..plain(0x9000, 0x100)
    });
    assert_eq!(ranges(&set), [0x9000..0x9100]);
    assert!(set.take(Kind::Host, 0x9000).is_empty());
    assert!(!set.take(Kind::Host, 0x5000).is_empty());
    assert_eq!(ranges(&set), []);
}

#[test]
fn variables_go_with_their_module() {
    let mut set = Allocations::default();
    let variable = |start, owner| Allocation {
        kind: Kind::Variable,
        owner,
        ..plain(start, 0x20)
    };
    for _ in 0..3 {
        set.add(variable(0x1000, 7));
    }
    set.add(variable(0x2000, 8));
    set.add(plain(0x3000, 0x20));
    assert_eq!(ranges(&set).len(), 3);
    let taken = set.take_owned(7);
    assert_eq!(taken.allocations, [variable(0x1000, 7)], "known once");
    assert_eq!(ranges(&set), [0x2000..0x2020, 0x3000..0x3020]);
    assert!(set.take_owned(0).is_empty(), "what is not owned stays");
    set.put_back(taken);
    assert_eq!(ranges(&set).len(), 3);
}

#[test]
fn a_mapping_is_readable_where_the_device_may_access_it() {
    let mut set = Allocations::default();
    set.map(0x1000..0x4000);
    assert_eq!(ranges(&set), [], "nobody has access");
    set.open(1, &(0x1000..0x4000));
    assert_eq!(ranges(&set), [], "another device has access");
    set.open(0, &(0x0..0x2000));
    assert_eq!(ranges(&set), [0x1000..0x2000], "no more than is mapped");
    set.open(0, &(0x3000..0x9000));
    assert_eq!(ranges(&set), [0x1000..0x2000, 0x3000..0x4000]);
    let closed = set.close(0, &(0x1800..0x3800));
    assert_eq!(ranges(&set), [0x1000..0x1800, 0x3800..0x4000]);
    set.put_back(closed);
    assert_eq!(ranges(&set), [0x1000..0x2000, 0x3000..0x4000]);
    let gone = set.unmap(&(0x1400..0x3400));
    assert_eq!(ranges(&set), [0x1000..0x1400, 0x3400..0x4000]);
    set.open(0, &(0x1000..0x4000));
    assert_eq!(ranges(&set), [0x1000..0x1400, 0x3400..0x4000]);
    set.put_back(gone);
    assert_eq!(ranges(&set), [0x1000..0x2000, 0x3000..0x4000]);
    set.open(0, &(0x1000..0x4000));
    assert_eq!(ranges(&set), [0x1000..0x4000]);
    let _ = set.unmap(&(0x1000..0x4000));
    set.map(0x1000..0x2000);
    assert_eq!(ranges(&set), [], "a new mapping starts without access");
    set.open(0, &(0x1000..0x2000));
    let _ = set.take_device(0);
    assert_eq!(ranges(&set), []);
}

#[test]
fn pieces_of_one_mapping_next_to_each_other_are_one() {
    let mut set = Allocations::default();
    set.map(0x1000..0x2000);
    set.map(0x2000..0x3000);
    set.open(0, &(0x1000..0x3000));
    assert_eq!(ranges(&set), [0x1000..0x3000]);
    let _ = set.unmap(&(0x1000..0x2000));
    assert_eq!(ranges(&set), [0x2000..0x3000]);
}

#[test]
fn a_full_table_leaves_out_the_highest() {
    let mut set = Allocations::default();
    for i in 0..fence::CAPACITY + 3 {
        set.add(plain(0x1000 + i * 0x20, 0x10));
    }
    let readable = set.readable(HERE, 0);
    assert_eq!(readable.left_out, 3);
    assert_eq!(readable.ranges.len() as u64, fence::CAPACITY);
    assert_eq!(readable.ranges[0], 0x1000..0x1010);
}

#[test]
fn empty_allocations_are_nothing() {
    let mut set = Allocations::default();
    set.add(plain(0x1000, 0));
    set.map(0x1000..0x1000);
    set.open(0, &(0..u64::MAX));
    assert_eq!(ranges(&set), []);
}
