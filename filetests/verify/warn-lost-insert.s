; Counts in a hash; two threads that find nothing both insert a one.
; map hash table key=4 value=8 entries=16
    *(u32 *)(r10 - 4) = 3
    *(u64 *)(r10 - 16) = 1
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 == 0 goto new
    r1 = 1
    lock *(u64 *)(r0 + 0) += r1
    goto out
new:
    r2 = r10
    r2 += -4
    r3 = r10
    r3 += -16
    r1 = map[0]
    r4 = 0
    call 2  ; warning[lost-insert]: two threads that both find nothing in map `table` both insert, and the second one overwrites what the first one has counted
out:
    r0 = 0
    exit
