; Strings: of the application into the stack, compared, formatted, sent; the name of the application.
; map rodata .rodata bytes=78252d35647c25737c25236c6c780025642525006e616d6500
    r6 = r1
    r1 = r10
    r1 += -32
    r2 = 16
    r3 = *(u64 *)(r6 + 104)
    call 115
    r1 = r10
    r1 += -32
    r2 = 16
    r3 = map[0][0] + 21
    call 182
    *(u64 *)(r10 - 56) = r0
    *(u64 *)(r10 - 48) = 7
    *(u64 *)(r10 - 40) = 8
    r1 = r10
    r1 += -16
    r2 = 16
    r3 = map[0][0] + 0
    r4 = r10
    r4 += -56
    r5 = 24
    call 165
    r1 = map[0][0] + 16
    r2 = 5
    r3 = r10
    r3 += -56
    r4 = 24
    call 177
    r1 = r10
    r1 += -16
    r2 = 16
    call 16
    r7 = *(u64 *)(r10 - 8)
    r1 = map[0][0] + 16
    r2 = 5
    r3 = 0
    r4 = 8
    r5 = 0
    call 6
    r1 = r7
    r0 = 0
    exit
