; A string of a value: as many bytes as the size says must be there.
; map array values value=16 entries=4
    r1 = r10
    r1 += -32
    r2 = 32
    r3 = map[0][0] + 0
    call 115  ; error[argument-memory]: argument 3 of `bpf_probe_read_kernel_str` must be an address, or 32 bytes that can be read: read of 32 bytes at offset 0 of a value of map `values`, which has 16 bytes
    r0 = 0
    exit
