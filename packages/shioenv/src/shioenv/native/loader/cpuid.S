/* Table lookup that replaces `cpuid` in the loader of a built system. Not linked into any program: the build of a system
 * (system/processor.py) copies this code into the loader, followed by the rows of the declared processor, and replaces every
 * `cpuid` of the loader by a jump to it.
 *
 * Input: leaf in eax, subleaf in ecx, return address in rdx. Output: eax, ebx, ecx and edx, as from `cpuid`. A row is a leaf, a
 * subleaf or -1 for any, eax, ebx, ecx and edx. The last row has leaf -1 and matches everything. The return address is stored
 * below the red zone of 128 bytes, which the caller may be using; no signal handler is set so early in a process. */
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
