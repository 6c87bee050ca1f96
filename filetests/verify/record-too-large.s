; A record that no piece of the ring can hold.
; map ring events entries=65536
    r1 = map[0]
    r2 = 100000
    r3 = 0
    call 131  ; error[record-too-large]: a record of 100000 bytes does not fit into map `events`: at most 8184
    r0 = 0
    exit
