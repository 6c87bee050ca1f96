; A hash on the host is asked for one key at a time. (2 is the host.)
; map hash table entries=1000 key=8 value=8 place=2
    r1 = map[0]
    r2 = subprog[f]
    r3 = 0
    r4 = 0
    call 164  ; error[map-on-host]: `bpf_for_each_map_elem` does not take map `table`, which lies on the host
    r0 = 0
    exit
f:
    r0 = 1
    exit
