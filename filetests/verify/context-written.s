; The context exists in no memory.
    *(u32 *)(r1 + 48) = 1  ; error[context-written]: write of 4 bytes at offset 48 of the context: the context can only be read
    r0 = 0
    exit
