; Each path has a constant string, and not the same.
    r6 = *(u32 *)(r1 + 48)
    *(u64 *)(r10 - 8) = 97
    if r6 == 0 goto on
    *(u8 *)(r10 - 8) = 98
    *(u8 *)(r10 - 7) = 0
on:
    r1 = r10
    r1 += -8
    call 501  ; error[mixed]: this instruction works on the string "b" on one path and on the string "a" on another
    r0 = 0
    exit
