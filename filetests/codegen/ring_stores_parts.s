; Bytes and halves become words; a hole stays; what is read or discarded is written in time.
; map ring bytes=65536 shards=2
    r6 = *(u32 *)(r1 + 24)
    r1 = map[0]
    r2 = 39
    r3 = 0
    call 131
    if r0 == 0 goto out
    *(u8 *)(r0 + 0) = r6
    *(u8 *)(r0 + 1) = 2
    *(u16 *)(r0 + 2) = r6
    *(u32 *)(r0 + 4) = r6
    *(u64 *)(r0 + 8) = 1
    *(u64 *)(r0 + 8) = r6
    r1 = *(u32 *)(r0 + 4)
    *(u32 *)(r0 + 16) = r1
    *(u32 *)(r0 + 24) = 3
    *(u32 *)(r0 + 28) = 4
    *(u32 *)(r0 + 32) = r6
    *(u16 *)(r0 + 36) = 5
    *(u8 *)(r0 + 38) = 6
    r1 = r0
    r2 = 0
    if r6 > 7 goto discard
    call 132
    goto out
discard:
    call 133
out:
    r0 = 0
    exit
