; A loop that would end, but not soon enough for a probe in every thread.
    r1 = 0
again:
    r1 += 1  ; error[loop-budget]: the loop may not end, or not soon: after 2048 rounds the budget of 4096 instructions is used up
    if r1 != 100000 goto again
    r0 = 0
    exit
