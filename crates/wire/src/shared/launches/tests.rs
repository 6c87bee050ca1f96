//! Launches between a writer and readers that live, die and lie.

use proptest::prelude::*;

use super::*;

fn row(kind: LaunchKind, context: u32, kernel: &str, programs: &[&str]) -> LaunchRow {
    LaunchRow {
        kind,
        context,
        generation: u64::from(kind == LaunchKind::With),
        kernel: kernel.into(),
        programs: programs.iter().map(|p| (*p).to_owned()).collect(),
    }
}

fn both() -> (LaunchWriter, LaunchReader) {
    let (writer, fd) = LaunchWriter::create().unwrap();
    let reader = LaunchReader::open(&fd).unwrap();
    (writer, reader)
}

fn launch(writer: &LaunchWriter, row: &LaunchRow, launches: u64) {
    writer
        .row(row.clone())
        .fetch_add(launches, Ordering::Relaxed);
}

#[test]
fn launches_are_there_at_once_and_stay() {
    let (writer, reader) = both();
    assert_eq!(reader.look(), Launches::default());
    let with = row(LaunchKind::With, 0, "kernel", &["a", "b"]);
    let elsewhere = row(LaunchKind::With, 1, "kernel", &["a", "b"]);
    let uninstrumented = row(LaunchKind::Uninstrumented, 0, "kernel", &[]);
    for (row, launches) in [
        (&with, 3),
        (&elsewhere, 4),
        (&uninstrumented, 5),
        (&with, 6),
    ] {
        launch(&writer, row, launches);
    }
    assert_eq!([0, 1, 2].map(|context| writer.launches(context)), [9, 4, 0]);
    drop(writer);
    let rows = vec![(with, 9), (elsewhere, 4), (uninstrumented, 5)];
    assert_eq!(reader.look().rows, rows);
}

#[test]
fn who_begins_anew_leaves_what_was_there_to_its_readers() {
    let (writer, reader) = both();
    let with = row(LaunchKind::With, 0, "k", &[]);
    let counter = writer.row(with.clone());
    counter.fetch_add(3, Ordering::Relaxed);
    let again = LaunchReader::open(writer.renew().unwrap()).unwrap();
    assert_eq!(again.look(), Launches::default());
    assert_eq!(writer.launches(0), 0);
    // Somebody has the counter still, which is another one's now.
    let other = row(LaunchKind::With, 0, "other", &[]);
    counter.fetch_add(1, Ordering::Relaxed);
    launch(&writer, &other, 1);
    assert_eq!(again.look().rows, [(other, 2)]);
    assert_eq!(reader.look().rows, [(with, 3)]);
}

#[test]
fn what_was_counted_after_the_last_copy_is_missing() {
    let (writer, reader) = both();
    let with = |context| row(LaunchKind::With, context, "k", &[]);
    let missing = |launches, kernels_ran, late| Missing {
        launches,
        kernels_ran,
        late,
    };
    assert_eq!(reader.look().missing(), missing(0, Some(false), 0));
    launch(&writer, &with(0), 7);
    // Nothing could run at a copy that was never made.
    assert_eq!(reader.look().missing(), missing(7, Some(false), 0));
    let copy = |launches, kernels_ran| LastCopy {
        launches,
        kernels_ran,
    };
    writer.copied(0, copy(0, None));
    assert_eq!(reader.look().missing(), missing(7, Some(false), 0));
    writer.copied(0, copy(5, None));
    assert_eq!(reader.look().missing(), missing(2, None, 0));
    launch(&writer, &with(3), 1);
    launch(&writer, &row(LaunchKind::Chosen, 3, "k", &["a"]), 1);
    writer.copied(0, copy(7, Some(false)));
    assert_eq!(reader.look().missing(), missing(1, Some(false), 0));
    writer.copied(3, copy(1, Some(true)));
    assert_eq!(reader.look().missing(), missing(0, Some(true), 0));
    writer.copied(0, copy(7, None));
    assert_eq!(reader.look().missing(), missing(0, Some(true), 0));
    writer.late().fetch_add(2, Ordering::Relaxed);
    // Who says that more came home than was launched gains nothing.
    writer.copied(0, copy(u64::MAX >> 2, None));
    assert_eq!(reader.look().missing(), missing(0, Some(true), 2));
}

#[test]
fn kernels_without_room_are_counted_together() {
    let (writer, reader) = both();
    let of = |number: u64| row(LaunchKind::With, 2, &format!("k{number}"), &[]);
    for number in 0..MOST_ROWS + 3 {
        launch(&writer, &of(number), 1);
    }
    launch(&writer, &row(LaunchKind::Skipped, 0, "k0", &[]), 4);
    launch(&writer, &row(LaunchKind::Chosen, 2, "k0", &["a"]), 1);
    // A row that there was before still is.
    launch(&writer, &of(1), 1);
    let all = MOST_ROWS + 4;
    assert_eq!(writer.launches(2), all);
    let launches = reader.look();
    let rows: Vec<_> = (0..MOST_ROWS)
        .map(|number| (of(number), 1 + u64::from(number == 1)))
        .collect();
    assert_eq!(launches.rows, rows);
    assert_eq!(launches.contexts, [(2, 3, LastCopy::of(0))]);
    assert_eq!(
        (launches.other, launches.missing().launches),
        ([0, 4, 0], all)
    );
}

#[test]
fn names_without_room_are_counted_together() {
    let (writer, reader) = both();
    let long = |name: char, bytes| {
        let kernel: String = std::iter::repeat_n(name, bytes).collect();
        row(LaunchKind::With, 0, &kernel, &[])
    };
    let most = TEXT_BYTES as usize;
    launch(&writer, &long('a', most - 8), 1);
    launch(&writer, &long('b', 9), 2);
    launch(&writer, &long('c', 8), 3);
    let launches = reader.look();
    let rows = [(long('a', most - 8), 1), (long('c', 8), 3)];
    assert_eq!(launches.rows, rows);
    assert_eq!(launches.contexts, [(0, 2, LastCopy::of(0))]);
}

#[test]
fn what_is_no_such_memory_is_refused() {
    let refused = |fd: OwnedFd| LaunchReader::open(&fd).unwrap_err().to_string();
    let (_, other) = crate::SharedWriter::create(&[], 0).unwrap();
    let bytes = fstat(&other).unwrap().st_size;
    assert_eq!(
        refused(other),
        format!("the shared area is not one of this warpbpf: it has {bytes} bytes")
    );
    let (words, empty) = sealed(c"test", TOTAL).unwrap();
    let empty = given(empty).unwrap();
    assert!(refused(empty.try_clone().unwrap()).ends_with("its magic is wrong"));
    words.word(0).store(MAGIC, Ordering::Relaxed);
    words.word(8).store(7, Ordering::Relaxed);
    assert!(refused(empty).ends_with("its version is 7, this is 1"));
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let unsealed = rustix::fs::memfd_create(c"test", flags).unwrap();
    assert!(refused(unsealed).ends_with("its file may shrink"));
}

#[test]
fn rows_that_are_none_are_left_out() {
    let (writer, reader) = both();
    let good = row(LaunchKind::With, 1, "good", &[]);
    let bad = [
        (8, 5),
        (8, MOST_CONTEXTS << 32),
        (24, 1 | 4 << 32),
        (24, TEXT_BYTES | 1 << 32),
        (24, (u64::from(u32::MAX)) << 32),
        (24, (TEXT_BYTES - 8) | (16 << 32)),
    ];
    for (number, (behind, value)) in bad.into_iter().enumerate() {
        let row = row(LaunchKind::With, 0, &format!("bad{number}"), &[]);
        launch(&writer, &row, 1);
        let at = ROWS + ROW_STRIDE * number as u64 + behind;
        writer.words.word(at).store(value, Ordering::Relaxed);
    }
    launch(&writer, &good, 2);
    writer.words.word(USED).store(u64::MAX, Ordering::Relaxed);
    let launches = reader.look();
    // What was never written is a row of a kernel without a name, with no launches.
    let [first, rest @ ..] = launches.rows.as_slice() else {
        panic!("no row is left");
    };
    assert_eq!(first, &(good, 2));
    assert!(
        rest.iter()
            .all(|(row, n)| (row.kernel.as_str(), *n) == ("", 0))
    );
    // Texts that lie on each other are not copied again and again.
    let whole = TEXT_BYTES << 32;
    for number in 0..MOST_ROWS {
        let at = ROWS + ROW_STRIDE * number;
        for (behind, value) in [(0, u64::MAX), (8, 0), (24, whole)] {
            writer
                .words
                .word(at + behind)
                .store(value, Ordering::Relaxed);
        }
    }
    let launches = reader.look();
    assert_eq!(launches.rows.len(), 1);
    // More than that nobody counts.
    assert_eq!(launches.missing().launches, MANY);
}

proptest! {
    #[test]
    fn whatever_is_there_is_read(words in proptest::collection::vec((0..TOTAL / 8, any::<u64>()), 0..200)) {
        let (writer, reader) = both();
        for (at, value) in words {
            writer.words.word(at * 8).store(value, Ordering::Relaxed);
        }
        writer.words.word(USED).fetch_or(31, Ordering::Relaxed);
        let launches = reader.look();
        prop_assert!(launches.rows.len() as u64 <= MOST_ROWS);
        let text: usize = launches.rows.iter().map(|(row, _)| row.kernel.len()).sum();
        prop_assert!(text as u64 <= TEXT_BYTES);
        launches.missing();
    }
}
