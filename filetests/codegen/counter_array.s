; `(*v)++` on a shared array: no bounds check for a constant key, no null check, one addition, which ptxas makes one per group of lanes.
; map array value=8 entries=1
    *(u32 *)(r10 - 4) = 0
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 == 0 goto out
    r1 = *(u64 *)(r0 + 0)
    r1 += 1
    *(u64 *)(r0 + 0) = r1
out:
    r0 = 0
    exit
