; A record of mixed widths is written by two stores of 16 bytes, header included.
; map ring bytes=2147483647 shards=132
    r6 = r1
    r1 = map[0]
    r2 = 24
    r3 = 0
    call 131
    if r0 == 0 goto out
    r7 = r0
    call 5
    *(u64 *)(r7 + 0) = r0
    r1 = *(u32 *)(r6 + 0)
    *(u32 *)(r7 + 8) = r1
    r1 = *(u32 *)(r6 + 24)
    *(u32 *)(r7 + 12) = r1
    r1 = *(u32 *)(r6 + 60)
    *(u64 *)(r7 + 16) = r1
    r1 = r7
    r2 = 0
    call 132
out:
    r0 = 0
    exit
