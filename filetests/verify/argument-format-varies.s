; Which format it is must be known.
; map rodata .rodata bytes=616200
    r2 = *(u32 *)(r1 + 48)
    r2 &= 1
    r1 = map[0][0] + 0
    r1 += r2
    call 501  ; error[argument]: argument 1 of `bpf_gpu_puts` must be a constant string (in `.rodata`, or of constants that were stored on the stack); `r1` is a pointer to offset 0..=1 of a value of map `.rodata`
    r0 = 0
    exit
