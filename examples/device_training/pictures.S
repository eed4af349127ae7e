/* The examples to learn from, in flash. */
    .section .rodata.pictures, "a"
    .globl pictures, pictures_end
    .type pictures, %object
pictures:
    .incbin "pictures.bin"
pictures_end:
    .byte 0
    .size pictures, . - pictures
#ifdef __linux__ /* the stack is not executable */
    .section .note.GNU-stack, "", %progbits
#endif
