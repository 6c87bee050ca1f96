; The same where no lane waits for another.
; apart
; map ring bytes=65536 shards=132
    r6 = r1
    r1 = map[0]
    r2 = 16
    r3 = 0
    call 131
    if r0 == 0 goto out
    r1 = *(u32 *)(r6 + 24)
    *(u64 *)(r0 + 0) = r1
    *(u64 *)(r0 + 8) = 7
    r1 = r0
    r2 = 0
    call 132
out:
    r0 = 0
    exit
