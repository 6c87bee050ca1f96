; A lookup whose answer is not compared with NULL.
; map hash table key=4 value=8 entries=16
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    r1 = *(u64 *)(r0 + 0)  ; error[maybe-null]: `r0` may be null here: it is a pointer to a value of map `table`, or null
    r1 += 1
    *(u64 *)(r0 + 0) = r1
    r0 = 0
    exit
