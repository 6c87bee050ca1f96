; A value of another multiprocessor's copy: more than one thread may do this.
; map percpu_array values value=8 entries=4
    *(u32 *)(r10 - 4) = 3
    r1 = map[0]
    r2 = r10
    r2 += -4
    r3 = 1
    call 195
    if r0 == 0 goto out
    r1 = *(u64 *)(r0 + 0)
    r1 *= 3
    *(u64 *)(r0 + 0) = r1  ; warning[lost-update]: a value of map `values`, which all threads share, is loaded, changed and stored in separate steps: what other threads store in between is lost
out:
    r0 = 0
    exit
