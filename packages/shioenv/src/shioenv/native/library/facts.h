/* Shared declarations: values that the build of a system fills in, and calls of the kernel and of the library's own
 * functions. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define EXPORT __attribute__((visibility("default")))
/* Export the function under another name as well. */
#define ALSO(function, name) extern __typeof__(function) name __attribute__((alias(#function), visibility("default")))

/* Filled in by the build. The last ones are the offsets of the library's own functions from this structure. */
struct facts {
    int64_t instant, boot;  /* seconds since 1970; 0 if the clock is the host's */
    int64_t device;         /* of the root disk, or 0 */
    int64_t blocks, files;  /* that the system uses of it */
    int64_t loads[3];       /* over one, five and fifteen minutes, times 65536 */
    int64_t memory, free, shared, buffers, swap;  /* bytes */
    int64_t processors;
    int64_t __errno_location, clock_gettime, fdopen, fopen, fstatvfs, getdents64, open, __open_2, openat, __openat_2,
        pthread_cond_timedwait, readdir, readdir_r, recvmsg, setmntent, statvfs, sysconf;
};
extern __attribute__((visibility("hidden"))) const struct facts facts;
/* After the code, each ended by a NUL: the kernel's release, its version, the mounts of every machine, and the sockets of its
 * processes (family, port, port of the peer, and inode number). */
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

/* Convert the kernel's result to that of a library function, which sets errno. */
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

/* The inode number that programs see. Files of lower layers have the layer's number in the highest bits. Numbers of the upper
 * layer are small: they count from the first file that a run created. */
static inline uint64_t shown_inode(uint64_t inode)
{
    return inode >> 62 ? (inode & ~0ull >> 2) + (inode >> 62 << 20) : inode;
}

/* Device numbers as in the list of mounts; those of file systems that are never mounted are those after booting. */
enum { SYS_DEVICE = 20, PROC_DEVICE = 21, QUEUES_DEVICE = 25, SOCKETS = 8, PIPES = 13 };

/* Whether it is an anonymous device number, which the kernel assigns from one range for the whole host. */
static inline bool is_unnamed(uint64_t device) { return device && !(device >> 8 & 0xfff) && !(device >> 32); }
