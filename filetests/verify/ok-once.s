; Aggregates over the block: behind a branch on the lane whose ways have met, behind a loop, and in a function that is
; called twice; what one gave may decide, but not about another.
    r6 = *(u32 *)(r1 + 48)
    r7 = 0
    if r6 > 3 goto met
    r7 = 1
met:
    r1 = r7
    r2 = r10
    r2 += -8
    call 546
    if r0 == 0 goto others
    r1 = *(u64 *)(r10 - 8)
    if r1 > 5 goto others
    r6 = 0
others:
    r8 = 0
again:
    r8 += 1
    if r8 < 4 goto again
    r1 = r8
    call all
    r1 = r7
    call all
    r0 = 0
    exit
all:
    r2 = r10
    r2 += -8
    call 549
    exit
