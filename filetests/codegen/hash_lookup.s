; A hash lookup calls the prelude with the key's words.
; map hash key=12 value=8 entries=64
    r6 = *(u32 *)(r1 + 24)
    *(u64 *)(r10 - 16) = r6
    *(u32 *)(r10 - 8) = 5
    r1 = map[0]
    r2 = r10
    r2 += -16
    call 1
    if r0 == 0 goto out
    r1 = 1
    lock *(u64 *)(r0 + 0) += r1
out:
    r0 = 0
    exit
