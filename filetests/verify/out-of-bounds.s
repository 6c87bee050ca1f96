; The lane as an index of eight bytes each: 32 lanes do not fit into 64 bytes.
; map array big value=64 entries=16
    r6 = *(u32 *)(r1 + 48)
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    r6 <<= 3
    r0 += r6
    r0 = *(u64 *)(r0 + 0)  ; error[out-of-bounds]: read of 8 bytes at offset 0..=248 in steps of 8 of a value of map `big`, which has 64 bytes
    exit
