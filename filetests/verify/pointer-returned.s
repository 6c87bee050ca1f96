; memory 16
; The address of its memory as the result, which is kept.
    r0 = r1
    exit  ; error[pointer-returned]: `r0` is a pointer to the program's memory at exit; a program returns a number
