; Each 8 bytes count: 320 and 8 times 72 for the call, 4 before it.
; budget 899
    r1 = r10
    r1 += -64
    r2 = 64
    r3 = 4096
    call 113  ; error[budget]: one invocation may execute 900 instructions on this path; the budget is 899
    r0 = 0
    exit
