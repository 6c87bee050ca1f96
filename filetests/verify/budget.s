; Straight-line code that is too long for the budget.
; budget 3
    r0 = 0
    r0 += 1
    r0 += 1
    exit  ; error[budget]: one invocation may execute 4 instructions on this path; the budget is 3
