; A pointer into one lane's stack, left in a map for others.
; map array counts value=8 entries=16
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    *(u64 *)(r0 + 0) = r10  ; error[pointer-stored]: the pointer in `r10` (a pointer to r10+0 of the stack) would be stored to offset 0 of a value of map `counts`
    r0 = 0
    exit
