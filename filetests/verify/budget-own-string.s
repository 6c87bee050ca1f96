; Each 8 bytes count: 24 and 8 times 30 for the call, 4 before it.
; map array values value=64 entries=4
; budget 267
    r1 = r10
    r1 += -64
    r2 = 64
    r3 = map[0][0] + 0
    call 115  ; error[budget]: one invocation may execute 268 instructions on this path; the budget is 267
    r0 = 0
    exit
