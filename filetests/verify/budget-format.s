; What a format costs is known from its text.
; map rodata .rodata bytes=256c6c7520256c6c7520253930306400
; budget 8000
    *(u64 *)(r10 - 8) = 1
    *(u64 *)(r10 - 16) = 1
    *(u64 *)(r10 - 24) = 1
    r1 = r10
    r1 += -40
    r2 = 16
    r3 = map[0][0] + 0
    r4 = r10
    r4 += -24
    r5 = 24
    call 165  ; error[budget]: one invocation may execute 9202 instructions on this path; the budget is 8000
    r0 = 0
    exit
