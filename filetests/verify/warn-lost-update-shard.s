; A copy per multiprocessor is shared by the threads of that multiprocessor.
; map percpu_array counts value=8 entries=16
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
    r1 <<= 1
    *(u64 *)(r0 + 0) = r1  ; warning[lost-update]: a value of map `counts`, which all threads share, is loaded, changed and stored in separate steps: what other threads store in between is lost
    r0 = 0
    exit
