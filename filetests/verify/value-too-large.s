; Key and value of a hash go to a function of the device as parameters.
; map array from entries=1 value=1024
; map hash table entries=16 key=8 value=1024
    *(u64 *)(r10 - 8) = 1
    r1 = map[1]
    r2 = r10
    r2 += -8
    r3 = map[0][0] + 0
    r4 = 0
    call 2  ; error[value-too-large]: `bpf_map_update_elem` passes 1032 bytes of key and value of map `table` to a function of the device, which takes 1008 at most
    r0 = 0
    exit
