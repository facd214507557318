/* What the loader of a built system asks in place of the processor. Not linked into anything: the build of a system
 * (system/processor.py) puts this code into the loader, the declared processor's rows behind its last byte, and makes every
 * `cpuid` of the loader lead here.
 *
 * Asked with the leaf in eax, the subleaf in ecx and the way back in rdx; answers in eax, ebx, ecx and edx, as
 * `cpuid` does. A row is a leaf, a subleaf or -1 for any, eax, ebx, ecx and edx. The last row's leaf is -1: it answers what no
 * other row does. The way back lies behind the red zone of 128 bytes, since whoever asks may be using that: no handler of a
 * signal is set so early in a process. */
#define ANY $-1
#define ROW 24
    .text
    mov %rdx, -136(%rsp)
    lea rows(%rip), %rbx
row:
    cmpl ANY, (%rbx)
    je found
    cmp (%rbx), %eax
    jne next
    cmpl ANY, 4(%rbx)
    je found
    cmp 4(%rbx), %ecx
    je found
next:
    add $ROW, %rbx
    jmp row
found:
    mov 8(%rbx), %eax
    mov 16(%rbx), %ecx
    mov 20(%rbx), %edx
    mov 12(%rbx), %ebx
    jmp *-136(%rsp)
    .balign 4
rows:
