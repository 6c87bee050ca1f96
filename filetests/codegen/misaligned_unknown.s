; memory 32
; Without a known offset only what the offset's lowest bits say is aligned.
    r3 = *(u8 *)(r1 + 0)
    r3 &= 14
    r3 += r1
    r0 = *(u32 *)(r3 + 0)
    *(u64 *)(r3 + 8) = r0
    exit
