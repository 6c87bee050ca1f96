; One instruction that reads the stack on one path and a map on the other.
; map array counts value=8 entries=16
    r6 = *(u32 *)(r1 + 48)
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    *(u64 *)(r10 - 16) = 1
    r1 = r0
    if r6 > 3 goto +2
    r1 = r10
    r1 += -16
    r0 = *(u64 *)(r1 + 0)  ; error[mixed]: this instruction works on the stack of the entry function on one path and on a value of map `counts` on another
    exit
