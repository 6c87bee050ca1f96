; A register that nothing was written to, on one of two paths.
    r1 = *(u32 *)(r1 + 48)
    if r1 > 3 goto out
    r2 = 1
out:
    r0 = r2  ; error[uninitialised]: `r2` is read but holds nothing: nothing was written to it
    exit
