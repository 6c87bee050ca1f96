//! Formats: Linux's text for each conversion, and no panic for any bytes.

use proptest::prelude::*;
use warpbpf_abi::layout::printk as layout;
use warpbpf_maps::printk::{Format, Message, VERBATIM, format};

#[test]
fn conversions_print_as_in_linux() {
    let minus = -5i64 as u64;
    for (text, args, expected) in [
        ("plain\n", &[][..], "plain\n"),
        ("%d %i %u", &[minus, minus, minus], "-5 -5 4294967291"),
        (
            "%ld %lli %lu",
            &[minus, minus, minus],
            "-5 -5 18446744073709551611",
        ),
        (
            "%x %X %lx",
            &[0xabcd_ef01_2345, 0xabcd, minus],
            "ef012345 ABCD fffffffffffffffb",
        ),
        ("%llx %llX %llu", &[255, 255, 255], "ff FF 255"),
        (
            "%p %px",
            &[0x1000, 0x7f00_0000_0000],
            "0000000000001000 00007f0000000000",
        ),
        ("[%5d|%-5d|%05d]", &[42, 42, minus], "[   42|42   |-0005]"),
        ("[%+d|% d|%08x]", &[42, 42, 0xbeef], "[+42| 42|0000beef]"),
        ("[%-05d]", &[7], "[7    ]"),
        ("%c%c%c", &[b'g' as u64, b'p' as u64, b'u' as u64], "gpu"),
        ("100%% %d%%", &[3], "100% 3%"),
        (
            "[%s] [%5s] %d",
            &[3, 1 << 32 | 4, 2],
            "[other text] [  her] 2",
        ),
        ("%s", &[7 << 32], "<%s is no constant string>"),
        (
            "%pI4 %pK|%d",
            &[1, 2, 3],
            "<%pI4 not supported> <%pK not supported>|3",
        ),
        (
            "%hd %f %lc",
            &[1, 2, 3],
            "1 <%f not supported> <%lc not supported>",
        ),
        ("%llld", &[1], "<%llld not supported>"),
        ("%d %d", &[1], "1 <%d has no argument>"),
        ("end %", &[], "end %"),
        ("%5", &[], "%5"),
        ("%!", &[], "%!"),
        ("cut\0 here %d", &[], "cut"),
    ] {
        assert_eq!(format(args, text.as_bytes(), string), expected, "{text}");
    }
    assert_eq!(format(&[1], b"%99999999999d", string).len(), 1024);
    assert_eq!(format(&[0xc3], b"\xff%c", string), "\u{fffd}\u{fffd}");
}

/// Strings of maps 0 and 1.
fn string(map: u32, offset: u32) -> Option<&'static [u8]> {
    let texts: [&[u8]; 2] = [b"an other text\0x", b"and her\0"];
    texts.get(map as usize)?.get(offset as usize..)
}

fn record(args: u32, arg: &[u64]) -> Vec<u8> {
    let mut record = vec![0; layout::size(arg.len()) as usize];
    let mut put = |at: u64, bytes: &[u8]| {
        record[at as usize..at as usize + bytes.len()].copy_from_slice(bytes)
    };
    put(layout::FORMAT_MAP, &3u32.to_le_bytes());
    put(layout::FORMAT_OFFSET, &16u32.to_le_bytes());
    put(layout::FORMAT_SIZE, &9u32.to_le_bytes());
    put(layout::ARGS, &args.to_le_bytes());
    for (i, arg) in arg.iter().enumerate() {
        put(layout::ARG + i as u64 * 8, &arg.to_le_bytes());
    }
    put(layout::TIME, &123u64.to_le_bytes());
    for i in 0..3u32 {
        put(layout::BLOCK + u64::from(i) * 4, &(i + 1).to_le_bytes());
        put(layout::THREAD + u64::from(i) * 4, &(i + 4).to_le_bytes());
    }
    record
}

#[test]
fn a_record_is_read() {
    let message = Message::read(&record(2, &[7, 8])).unwrap();
    let expected = Message {
        format: Format::At {
            map: 3,
            offset: 16,
            size: 9,
        },
        verbatim: false,
        args: vec![7, 8],
        time: 123,
        block: [1, 2, 3],
        thread: [4, 5, 6],
    };
    assert_eq!(message, expected);
    let formats = |map: u32, offset: u32| match (map, offset) {
        (3, 16) => Some(&b"%d %d %d\0"[..]),
        _ => None,
    };
    assert_eq!(
        message.text(formats).as_deref(),
        Some("7 8 <%d has no argument>")
    );
    assert_eq!(message.text(string), None);
    let twelve: Vec<u64> = (1..=12).collect();
    let message = Message::read(&record(12, &twelve)).unwrap();
    assert_eq!(message.args, twelve);
    let message = Message::read(&record(VERBATIM, &[])).unwrap();
    assert!(message.verbatim);
    let text = message.text(|_, _| Some(&b"100% d\0"[..]));
    assert_eq!(text.as_deref(), Some("100% d"));
}

/// With this format behind the arguments, which says that it has `size` bytes.
fn carrying(args: u32, arg: &[u64], format: &[u8], size: u32) -> Vec<u8> {
    let mut record = record(args, arg);
    record[layout::FORMAT_MAP as usize..][..4].copy_from_slice(&layout::CARRIED.to_le_bytes());
    record[layout::FORMAT_SIZE as usize..][..4].copy_from_slice(&size.to_le_bytes());
    record.extend_from_slice(format);
    record
}

#[test]
fn a_record_carries_its_format() {
    let format = b"%d and %s\0\0\0\0\0\0\0";
    let message = Message::read(&carrying(2, &[7, 3], format, 10)).unwrap();
    assert_eq!(message.format, Format::Carried(b"%d and %s\0".to_vec()));
    assert_eq!(message.text(string).as_deref(), Some("7 and other text"));
    let message = Message::read(&carrying(VERBATIM, &[], b"100% d\0\0", 7)).unwrap();
    assert_eq!(message.text(|_, _| None).as_deref(), Some("100% d"));
    for (format, size) in [(&format[..], 8), (&format[..8], 10), (format, u32::MAX)] {
        assert_eq!(Message::read(&carrying(2, &[7, 3], format, size)), None);
    }
}

#[test]
fn records_of_a_wrong_size_are_none() {
    assert_eq!(Message::read(&record(2, &[0; 2])[1..]), None);
    assert_eq!(Message::read(&record(2, &[0; 3])), None);
    assert_eq!(Message::read(&record(13, &[0; 13])), None);
    assert_eq!(Message::read(&record(u32::MAX - 1, &[0; 3])), None);
    assert_eq!(Message::read(&[0; 47]), None);
}

proptest! {
    #[test]
    fn any_bytes_make_some_text(bytes in proptest::collection::vec(any::<u8>(), 0..40), args in any::<[u64; 3]>()) {
        format(&args, &bytes, string);
    }

    #[test]
    fn any_format_of_our_alphabet_makes_some_text(text in "[%dixXlpcs0-9 +-]{0,20}", args in any::<[u64; 3]>()) {
        prop_assert!(format(&args, text.as_bytes(), string).len() <= 4 * 1024 * 20);
    }
}
