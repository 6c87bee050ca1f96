; Seven levels of functions, each calling the next one eight times.
; budget 100000000
    call f1
    exit
f1:
    call f2
    call f2
    call f2
    call f2
    call f2
    call f2
    call f2
    call f2
    exit
f2:
    call f3
    call f3
    call f3
    call f3
    call f3
    call f3
    call f3
    call f3
    exit
f3:
    call f4
    call f4
    call f4
    call f4
    call f4
    call f4
    call f4
    call f4
    exit
f4:
    call f5
    call f5
    call f5
    call f5
    call f5
    call f5
    call f5
    call f5
    exit
f5:
    call f6
    call f6
    call f6
    call f6
    call f6
    call f6
    call f6
    call f6
    exit
f6:
    call f7
    call f7  ; error[too-large]: inlining all calls gives more than 65536 instructions
    call f7
    call f7
    call f7
    call f7
    call f7
    call f7
    exit
f7:
    r0 = 0
    exit
