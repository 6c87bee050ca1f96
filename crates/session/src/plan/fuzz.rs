//! A file that is said to be an executable.

use warpbpf_fuzz::{Bounds, Target};

use crate::plan::executable::images;

/// An ELF file of a program with this in the section where its fatbins are.
fn executable(fatbins: &[u8]) -> Vec<u8> {
    let names = b"\0.shstrtab\0.nv_fatbin\0";
    let mut bytes = vec![0u8; 64];
    let mut table = vec![0u8; 64];
    for (name, kind, data) in [(1u32, 3u32, &names[..]), (11, 1, fatbins)] {
        table.extend(name.to_le_bytes());
        table.extend(kind.to_le_bytes());
        table.extend([0; 16]);
        table.extend((bytes.len() as u64).to_le_bytes());
        table.extend((data.len() as u64).to_le_bytes());
        table.extend([0; 24]);
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    let start = bytes.len() as u64;
    bytes.extend(table);
    bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    bytes[16..24].copy_from_slice(&[3, 0, 62, 0, 1, 0, 0, 0]);
    bytes[40..48].copy_from_slice(&start.to_le_bytes());
    bytes[52..64].copy_from_slice(&[64, 0, 56, 0, 0, 0, 64, 0, 3, 0, 1, 0]);
    bytes
}

#[test]
fn executables() {
    let ptx = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p) { ret; }\n\0\0\0\0";
    let mut fatbin = warpbpf_fatbin::FATBIN_MAGIC.to_le_bytes().to_vec();
    fatbin.extend([1, 0, 16, 0]);
    fatbin.extend((64 + ptx.len() as u64).to_le_bytes());
    let mut header = [0u8; 64];
    header[..8].copy_from_slice(&[1, 0, 1, 1, 64, 0, 0, 0]);
    header[8..16].copy_from_slice(&(ptx.len() as u64).to_le_bytes());
    header[24..32].copy_from_slice(&[0, 0, 8, 0, 90, 0, 0, 0]);
    fatbin.extend(header);
    fatbin.extend(ptx);
    let mut two = fatbin.clone();
    two.resize(two.len().next_multiple_of(8), 0);
    two.extend(&fatbin);
    let seeds = vec![
        executable(&fatbin),
        executable(&two),
        fatbin.clone(),
        ptx.to_vec(),
    ];
    assert!(seeds.iter().all(|seed| images(seed).is_ok()));
    let words: &[&[u8]] = &[b".nv_fatbin\0", &[0x50, 0xed, 0x55, 0xba], &fatbin];
    let bounds = Bounds {
        bytes: 64 << 20,
        ..Bounds::default()
    };
    Target::new("executables", seeds)
        .words(words)
        .bounds(bounds)
        .run(|bytes| {
            for image in images(bytes).unwrap_or_default() {
                let _ = crate::plan::image::kernel_names(image, (9, 0));
                let _ = crate::plan::image::inspect(image, (9, 0));
            }
        });
}
