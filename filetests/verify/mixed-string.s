; The string is part of the code that is made.
; map rodata .rodata bytes=616200
    r2 = *(u32 *)(r1 + 48)
    r1 = map[0][0] + 0
    if r2 == 0 goto on
    r1 += 1
on:
    call 501  ; error[mixed]: this instruction works on the string "b" on one path and on the string "ab" on another
    r0 = 0
    exit
