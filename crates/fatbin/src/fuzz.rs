//! Any bytes as a container of CUDA code: it comes from an application, which owes us nothing.

use warpbpf_fuzz::{Bounds, Target};

use crate::{
    Cubin, EntryKind, choose, choose_unpacked, cubin_len, embedded_ptx, entries, fatbin_len, join,
    sniff,
};

/// A fatbin of such entries: kind, machine, flags, payload.
fn fatbin(all: &[(u16, u32, u64, &[u8])]) -> Vec<u8> {
    let mut body = Vec::new();
    for (kind, arch, flags, payload) in all {
        let padded = payload.len().next_multiple_of(8);
        body.extend(kind.to_le_bytes());
        body.extend(0x101u16.to_le_bytes());
        body.extend(64u32.to_le_bytes());
        body.extend((padded as u64).to_le_bytes());
        body.extend([0; 8]);
        body.extend([0, 0, 9, 0]);
        body.extend(arch.to_le_bytes());
        body.extend([0; 8]);
        body.extend(flags.to_le_bytes());
        body.extend([0; 16]);
        body.extend(*payload);
        body.resize(body.len() + padded - payload.len(), 0);
    }
    let mut bytes = crate::FATBIN_MAGIC.to_le_bytes().to_vec();
    bytes.extend([1, 0, 16, 0]);
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(body);
    bytes
}

#[test]
fn fatbins() {
    let ptx = b".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() { ret; }\n\0";
    let seeds = vec![
        fatbin(&[
            (1, 90, 0x11, ptx),
            (2, 90, 0x11, b"\x7fELF\x02\x01\x01\x33"),
        ]),
        fatbin(&[(1, 80, 0x11, ptx)]),
        fatbin(&[]),
    ];
    let words: &[&[u8]] = &[
        b"\x7fELF\x02\x01",
        &[0x50, 0xed, 0x55, 0xba],
        ptx,
        &[0x28, 0xb5, 0x2f, 0xfd],
    ];
    // What an entry says that it has when it is decompressed is believed up to a limit.
    let bounds = Bounds {
        bytes: 64 << 20,
        ..Bounds::default()
    };
    Target::new("fatbin", seeds)
        .words(words)
        .bounds(bounds)
        .run(|bytes| {
            // Answers of every kind are fine; a panic is not.
            let _ = (sniff(bytes), fatbin_len(bytes), cubin_len(bytes));
            let Ok(found) = entries(bytes) else { return };
            let _ = (
                choose(&found, (9, 0)),
                choose_unpacked(&found, (8, 0), None),
            );
            for entry in &found {
                if let Ok(payload) = entry.payload()
                    && entry.kind == EntryKind::Elf
                {
                    let _ = Cubin::parse(&payload);
                }
            }
        });
}

/// A cubin with as little as there can be in one: a kernel without code.
fn cubin() -> Vec<u8> {
    const HEADER: usize = 64;
    let names = b"\0.shstrtab\0.symtab\0.text.k\0.nv.info.k\0k\0";
    let at = |name: &[u8]| {
        names
            .windows(name.len())
            .position(|w| w == name)
            .unwrap_or(0) as u32
    };
    let mut symbols = vec![0u8; 24];
    symbols.extend(at(b"k\0").to_le_bytes());
    symbols.extend([0x12, 0x10, 3, 0]);
    symbols.extend([0; 8]);
    symbols.extend(16u64.to_le_bytes());
    let info = [
        4u8, 0x17, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x21, 0, 3, 0x19, 8, 0,
    ];
    let contents: [(&[u8], u32, &[u8]); 4] = [
        (b".shstrtab\0", 3, names),
        (b".symtab\0", 2, &symbols),
        (b".text.k\0", 1, &[0; 16]),
        (b".nv.info.k\0", 0x7000_0000, &info),
    ];
    let mut bytes = vec![0u8; HEADER];
    let mut table = vec![0u8; 64];
    for (name, kind, data) in contents {
        let mut row = Vec::new();
        row.extend(at(name).to_le_bytes());
        row.extend(kind.to_le_bytes());
        row.extend([0; 16]);
        row.extend((bytes.len() as u64).to_le_bytes());
        row.extend((data.len() as u64).to_le_bytes());
        row.extend(1u32.to_le_bytes());
        row.extend(if kind == 0x7000_0000 { 3u32 } else { 1 }.to_le_bytes());
        row.extend([0; 16]);
        table.extend(row);
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    let start = bytes.len() as u64;
    bytes.extend(table);
    bytes[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x41");
    bytes[8] = 8;
    bytes[16..20].copy_from_slice(&[2, 0, 190, 0]);
    bytes[40..48].copy_from_slice(&start.to_le_bytes());
    bytes[48..52].copy_from_slice(&(90u32 << 8).to_le_bytes());
    bytes[52..64].copy_from_slice(&[64, 0, 56, 0, 0, 0, 64, 0, 5, 0, 1, 0]);
    bytes
}

#[test]
fn cubins() {
    let seed = cubin();
    assert!(Cubin::parse(&seed).is_ok(), "{:?}", Cubin::parse(&seed));
    let words: &[&[u8]] = &[
        b".nv.info.k\0",
        b".text.k\0",
        b".nv_debug_ptx_txt",
        &[4, 0x17, 12, 0],
    ];
    Target::new("cubin", vec![seed]).words(words).run(|bytes| {
        let _ = cubin_len(bytes);
        let _ = embedded_ptx(bytes);
        if let Ok(cubin) = Cubin::parse(bytes) {
            for kernel in &cubin.kernels {
                assert!(cubin.kernel(&kernel.name).is_some());
            }
        }
        let _ = join(bytes, &[bytes]);
    });
}
