; map array value=8 entries=4
; A key, a stack's address and the context, each on one path only: none of them is 0.
    r6 = *(u32 *)(r1 + 24)
    r6 &= 1
    *(u64 *)(r10 - 8) = r6
    r7 = 0
    if r6 == 0 goto context
    r7 = r1
context:
    if r7 == 0 goto each
    r8 = 0
    if r6 == 0 goto stack
    r8 = r10
    r8 += -8
stack:
    if r8 == 0 goto each
    *(u64 *)(r10 - 8) = 1
each:
    r1 = map[0]
    r2 = subprog[callback]
    r3 = r10
    r3 += -8
    r4 = 0
    call 164
    r0 = 0
    exit
callback:
    r4 = *(u64 *)(r4 + 0)
    r8 = 0
    if r4 == 0 goto merge
    r8 = r2
merge:
    if r8 == 0 goto out
    r1 = *(u32 *)(r8 + 0)
    lock *(u64 *)(r3 + 0) += r1
out:
    r0 = 0
    exit
