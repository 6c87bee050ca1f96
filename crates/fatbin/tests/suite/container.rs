//! Hand-made and damaged containers: each error with its place, and no panic on anything.

use proptest::prelude::*;
use warpbpf_fatbin::{
    Compression, Cubin, CubinError, EntryKind, FatbinError, ImageKind, choose, cubin_len, entries,
    fatbin_len, flags, sniff,
};

struct Made {
    kind: u16,
    arch: u32,
    flags: u64,
    stored: Vec<u8>,
    length: u64,
}

impl Made {
    fn ptx(arch: u32, text: &str) -> Made {
        Made {
            kind: 1,
            arch,
            flags: 0x11,
            stored: text.as_bytes().to_vec(),
            length: 0,
        }
    }
}

fn fatbin(parts: &[Made]) -> Vec<u8> {
    let mut body = Vec::new();
    for part in parts {
        let padded = part.stored.len().next_multiple_of(8);
        let packed = if part.flags & (flags::LZ4 | flags::ZSTD) != 0 {
            part.stored.len() as u32
        } else {
            0
        };
        body.extend(part.kind.to_le_bytes());
        body.extend(0x101u16.to_le_bytes());
        body.extend(64u32.to_le_bytes());
        body.extend((padded as u64).to_le_bytes());
        body.extend(packed.to_le_bytes());
        body.extend(0u32.to_le_bytes());
        body.extend([0, 0, 9, 0]);
        body.extend(part.arch.to_le_bytes());
        body.extend([0; 8]);
        body.extend(part.flags.to_le_bytes());
        body.extend([0; 8]);
        body.extend(part.length.to_le_bytes());
        body.extend(&part.stored);
        body.resize(body.len() + padded - part.stored.len(), 0);
    }
    let mut whole = Vec::new();
    whole.extend(0xba55_ed50u32.to_le_bytes());
    whole.extend(1u16.to_le_bytes());
    whole.extend(16u16.to_le_bytes());
    whole.extend((body.len() as u64).to_le_bytes());
    whole.extend(body);
    whole
}

fn first_payload(bytes: &[u8]) -> Result<Vec<u8>, FatbinError> {
    entries(bytes)?[0].payload().map(|bytes| bytes.into_owned())
}

#[test]
fn a_text_comes_back_without_padding() {
    let bytes = fatbin(&[Made::ptx(90, ".version 9.0\n")]);
    assert_eq!(first_payload(&bytes), Ok(b".version 9.0\n".to_vec()));
    let read = entries(&bytes).expect("reads");
    assert_eq!(
        (read[0].kind, read[0].arch, read[0].suffix, read[0].version),
        (EntryKind::Ptx, 90, None, (9, 0))
    );
    assert_eq!(
        (read[0].offset, read[0].compression, read[0].name),
        (16, Compression::None, None)
    );
}

#[test]
fn unknown_kinds_pass_through() {
    let bytes = fatbin(&[Made {
        kind: 64,
        arch: 75,
        flags: 0,
        stored: vec![1, 2, 0],
        length: 0,
    }]);
    assert_eq!(
        entries(&bytes).expect("reads")[0].kind,
        EntryKind::Other(64)
    );
    assert_eq!(first_payload(&bytes), Ok(vec![1, 2, 0, 0, 0, 0, 0, 0]));
}

#[test]
fn headers_are_checked() {
    assert_eq!(
        fatbin_len(&[0x50, 0xed]),
        Err(FatbinError::ShortHeader { available: 2 })
    );
    assert_eq!(fatbin_len(&[0; 16]), Err(FatbinError::Magic { found: 0 }));
    let mut bytes = fatbin(&[]);
    assert_eq!((fatbin_len(&bytes), entries(&bytes)), (Ok(16), Ok(vec![])));
    bytes[4] = 2;
    assert_eq!(
        fatbin_len(&bytes),
        Err(FatbinError::Version {
            version: 2,
            header_bytes: 16
        })
    );
    bytes[4] = 1;
    bytes[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(
        fatbin_len(&bytes),
        Err(FatbinError::Truncated {
            announced: u64::MAX,
            available: 0
        })
    );
    bytes[8..16].copy_from_slice(&5u64.to_le_bytes());
    assert_eq!(
        entries(&bytes),
        Err(FatbinError::Truncated {
            announced: 5,
            available: 0
        })
    );
}

#[test]
fn errors_name_entry_and_offset() {
    let good = fatbin(&[Made::ptx(90, "12345678"), Made::ptx(80, "12345678")]);
    let second = 16 + 64 + 8;
    let error = |change: fn(&mut [u8])| {
        let mut bytes = good.clone();
        change(&mut bytes[second..]);
        entries(&bytes).expect_err("damaged")
    };
    assert_eq!(
        error(|entry| entry[4] = 200),
        FatbinError::EntryHeader {
            index: 1,
            offset: second,
            header_bytes: 200,
            available: 72
        }
    );
    assert_eq!(
        error(|entry| entry[4] = 8),
        FatbinError::EntryHeader {
            index: 1,
            offset: second,
            header_bytes: 8,
            available: 72
        }
    );
    assert_eq!(
        error(|entry| entry[8] = 9).to_string(),
        "fatbin entry `1` at offset `0x58`: its payload of `9` bytes does not fit (`8` left)"
    );
    assert_eq!(
        error(|entry| entry[41] = 0xa0),
        FatbinError::Compression {
            index: 1,
            offset: second,
            flags: 0xa011
        }
    );
    assert_eq!(
        error(|entry| {
            entry[16] = 9;
            entry[41] = 0x20;
        }),
        FatbinError::EntryPayload {
            index: 1,
            offset: second,
            payload_bytes: 9,
            available: 8
        }
    );
    let mut cut = good[..second + 10].to_vec();
    cut[8..16].copy_from_slice(&((second + 10 - 16) as u64).to_le_bytes());
    assert_eq!(
        entries(&cut),
        Err(FatbinError::EntryHeader {
            index: 1,
            offset: second,
            header_bytes: 64,
            available: 10
        })
    );
}

#[test]
fn damaged_compression_is_named() {
    let text = b".version 9.0 .version 9.0 .version 9.0";
    let lz4 = lz4_flex::block::compress(text);
    let made = |flags, stored: &[u8], length| {
        fatbin(&[Made {
            kind: 1,
            arch: 90,
            flags,
            stored: stored.to_vec(),
            length,
        }])
    };
    assert_eq!(
        first_payload(&made(flags::LZ4, &lz4, 38)),
        Ok(text.to_vec())
    );
    assert_eq!(
        first_payload(&made(flags::LZ4, &lz4, 40))
            .expect_err("short")
            .to_string(),
        "fatbin entry `0` at offset `0x10`: LZ4 data is damaged: it holds `38` bytes instead of `40`"
    );
    let error = first_payload(&made(flags::LZ4, &lz4, 1 << 40)).expect_err("length");
    assert_eq!(
        error,
        FatbinError::Length {
            index: 0,
            offset: 16,
            stored: lz4.len(),
            announced: 1 << 40
        }
    );
    let zstd =
        ruzstd::encoding::compress_to_vec(&text[..], ruzstd::encoding::CompressionLevel::Fastest);
    assert_eq!(
        first_payload(&made(flags::ZSTD, &zstd, 38)),
        Ok(text.to_vec())
    );
    assert_eq!(
        first_payload(&made(flags::ZSTD, &zstd, 37))
            .expect_err("long")
            .to_string(),
        "fatbin entry `0` at offset `0x10`: zstd data is damaged: it holds more bytes instead of `37`"
    );
    let error = first_payload(&made(flags::ZSTD, b"not zstd", 38)).expect_err("magic");
    assert!(
        matches!(
            error,
            FatbinError::Damaged {
                index: 0,
                offset: 16,
                method: "zstd",
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn sniffing() {
    assert_eq!(sniff(b""), ImageKind::Unknown);
    assert_eq!(
        sniff(&0x4662_43b1u32.to_le_bytes()),
        ImageKind::FatbinWrapper
    );
    assert_eq!(sniff(&fatbin(&[])), ImageKind::Fatbin);
    assert_eq!(sniff(b"\x7fELF"), ImageKind::Cubin);
    assert_eq!(
        sniff(b"\n// made by hand\n/* so */ .version 8.0"),
        ImageKind::PtxText
    );
    assert_eq!(sniff(b"// no end"), ImageKind::Unknown);
    assert_eq!(sniff(b"/* no end"), ImageKind::Unknown);
    assert_eq!(sniff(b"hello"), ImageKind::Unknown);
}

#[test]
fn nothing_to_choose_from() {
    assert_eq!(
        choose(&[], (9, 0)).why_no_ptx.as_deref(),
        Some("the file holds neither machine code nor PTX")
    );
}

#[test]
fn sass_without_a_readable_cubin_counts_as_made_from_its_own_number() {
    let sass = Made {
        kind: 2,
        arch: 90,
        flags: flags::ARCH_SPECIFIC,
        stored: vec![0; 8],
        length: 0,
    };
    let bytes = fatbin(&[sass, Made::ptx(90, "x")]);
    let choice = choose(&entries(&bytes).expect("reads"), (9, 0));
    assert_eq!((choice.sass, choice.ptx), (Some(0), None));
    assert_eq!(
        choice.why_no_ptx.as_deref(),
        Some(
            "the driver runs `sm_90a`, compiled from `compute_90a`, and the file's PTX is for `compute_90` only"
        )
    );
}

#[test]
fn foreign_elves_are_refused() {
    assert!(matches!(
        Cubin::parse(b"hello"),
        Err(CubinError::Elf { .. })
    ));
    let mut elf = [0u8; 64];
    elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    elf[18] = 62;
    elf[20] = 1;
    elf[52] = 64;
    assert_eq!(Cubin::parse(&elf), Err(CubinError::Machine { machine: 62 }));
    assert_eq!(cubin_len(&elf), Some(64));
    elf[32..40].fill(0xff);
    elf[54] = 56;
    elf[56] = 1;
    assert_eq!(cubin_len(&elf), None);
    assert_eq!(cubin_len(b"hello"), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = sniff(&bytes);
        let _ = entries(&bytes);
        let _ = Cubin::parse(&bytes);
        let _ = cubin_len(&bytes);
    }

    #[test]
    fn damaged_fatbins_never_panic(
        at in 4usize..200, value: u8, cut in 0usize..260, method in 0usize..3, text in "[a-c]{0,60}",
    ) {
        let (flags, stored) = match method {
            0 => (0, text.clone().into_bytes()),
            1 => (flags::LZ4, lz4_flex::block::compress(text.as_bytes())),
            _ => (flags::ZSTD, ruzstd::encoding::compress_to_vec(
                text.as_bytes(), ruzstd::encoding::CompressionLevel::Fastest)),
        };
        let made = Made { kind: 1, arch: 90, flags, stored, length: text.len() as u64 };
        let mut bytes = fatbin(&[made, Made::ptx(80, "second")]);
        prop_assert_eq!(first_payload(&bytes), Ok(text.into_bytes()));
        if let Some(byte) = bytes.get_mut(at) {
            *byte = value;
        }
        bytes.truncate(cut.max(bytes.len() / 2));
        if let Ok(read) = entries(&bytes) {
            for entry in &read {
                let _ = entry.payload();
            }
            let _ = choose(&read, (9, 0));
        }
    }
}
