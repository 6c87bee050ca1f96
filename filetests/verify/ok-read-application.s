; Reads of the application's memory into the stack, a value, and as many bytes as a number says. The stack is written then.
; map array values value=64 entries=4
; budget 2700
    r6 = r1
    r1 = r10
    r1 += -16
    r2 = 16
    r3 = *(u64 *)(r6 + 104)
    call 113
    r7 = *(u64 *)(r10 - 8)
    r8 = r0
    *(u32 *)(r10 - 20) = 3
    r2 = r10
    r2 += -20
    r1 = map[0]
    call 1
    if r0 == 0 goto out
    r9 = r0
    r1 = r9
    r2 = r7
    r2 &= 63
    r3 = r7
    call 4
    r1 = r9
    r2 = 64
    r3 = r7
    r4 = 2
    call 520
    r1 = r9
    r2 = 0
    r3 = 0
    call 112
    r1 = r8
out:
    r0 = 0
    exit
