/* What the parts of the answers share: the facts that the build of a system fills in, and how the kernel and the
 * library's own functions are called. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))
/* Another name of the same function. */
#define ALSO(function, name) extern __typeof__(function) name __attribute__((alias(#function), visibility("default")))

/* Filled in by the build. The last ones say where the library's own functions are, seen from here. */
struct facts {
    int64_t instant, boot;  /* seconds since 1970; 0 where the clock is the host's */
    int64_t device;         /* of the root disk, or 0 */
    int64_t blocks, files;  /* that the system takes of it */
    int64_t loads[3];       /* over one, five and fifteen minutes, times 65536 */
    int64_t memory, free, shared, buffers, swap;  /* bytes */
    int64_t processors;
    int64_t __errno_location, clock_gettime, fdopen, fopen, fstatvfs, getdents64, open, __open_2, openat, __openat_2,
        pthread_cond_timedwait, readdir, readdir_r, recvmsg, setmntent, statvfs, sysconf;
};
extern __attribute__((visibility("hidden"))) const struct facts facts;
/* Behind the code, each with its final NUL: the kernel's release, its version, the mounts that every machine has, and the
 * sockets of its processes: family, port, peer's port and number. */
extern __attribute__((visibility("hidden"))) const char answers_end[];

#define ORIGINAL(name) ((__typeof__(&name))((uintptr_t)&facts + (uintptr_t)facts.name))
extern int *__errno_location(void);

static inline long call(long number, long first, long second, long third, long fourth, long fifth)
{
    register long r10 __asm__("r10") = fourth, r8 __asm__("r8") = fifth, r9 __asm__("r9") = 0;
    long result;
    __asm__ volatile("syscall" : "=a"(result)
                     : "a"(number), "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

/* As the library's functions answer. */
static inline int answer(long result)
{
    if (result >= 0) return (int)result;
    *ORIGINAL(__errno_location)() = (int)-result;
    return -1;
}

static inline bool same(const char *one, const char *other)
{
    while (*one && *one == *other) one++, other++;
    return *one == *other;
}

/* An inode's number as it is shown. What comes from the layers below has the layer's number in the highest bits;
 * those of the layer above are small ones, counted from the first file that was made in a run. */
static inline uint64_t shown_inode(uint64_t inode)
{
    return inode >> 62 ? (inode & ~0ull >> 2) + (inode >> 62 << 20) : inode;
}

/* As the list of mounts says, and of what is never mounted: as a machine that has booted has them. */
enum { SYS_DEVICE = 20, PROC_DEVICE = 21, QUEUES_DEVICE = 25, SOCKETS = 8, PIPES = 13 };

/* Whether it is the number of what is no disk, which the kernel takes from what all of the host is free. */
static inline bool is_unnamed(uint64_t device) { return device && !(device >> 8 & 0xfff) && !(device >> 32); }
