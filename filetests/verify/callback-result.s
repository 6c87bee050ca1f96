; A callback that returns 2.
    r1 = 3
    r2 = subprog[each]
    r3 = 0
    r4 = 0
    call 181
    r0 = 0
    exit
each:
    r0 = 2
    exit  ; error[callback-result]: the callback returns the number 2; it must return 0 to go on or 1 to stop
