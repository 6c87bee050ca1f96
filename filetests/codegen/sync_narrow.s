; map array value=16
; Acquire and release of any width.
    r1 = map[0][0] + 0
    r2 = load_acquire((u8 *)(r1 + 1))
    r3 = load_acquire((u16 *)(r1 + 2))
    r2 += r3
    r3 = load_acquire((u32 *)(r1 + 4))
    r2 += r3
    store_release((u8 *)(r1 + 8), r2)
    store_release((u16 *)(r1 + 10), r2)
    store_release((u32 *)(r1 + 12), r2)
    r0 = 0
    exit
