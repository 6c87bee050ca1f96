; `if (x > v->max) v->max = x`: two threads can pass the test together.
; map array counts value=8 entries=16
    r6 = *(u32 *)(r1 + 48)
    *(u32 *)(r10 - 4) = 3
    r2 = r10
    r2 += -4
    r1 = map[0]
    call 1
    if r0 != 0 goto found
    r0 = 0
    exit
found:
    r1 = *(u64 *)(r0 + 0)
    if r1 >= r6 goto out
    *(u64 *)(r0 + 0) = r6  ; warning[lost-update]: a value of map `counts`, which all threads share, is tested and then stored: another thread can store in between
out:
    r0 = 0
    exit
