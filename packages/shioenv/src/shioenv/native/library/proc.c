/* Files of /proc that are replaced by a pipe with other text, by their names: lists of mounts (mounts.h), attributes of
 * processes, sockets (lines.h), and control groups, whose hierarchies would be the host's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <mntent.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include "lines.h"
#include "mounts.h"
#include "proc.h"

#ifdef __x86_64__

#define O_LARGE 0100000  /* the kernel's value */

/* Such a pipe is marked by the signal number that it would use for asynchronous I/O (F_SETSIG). */
enum { FIRST_MARK = 56 };

enum kind { STATUS = N_FORMS, LIMITS, TCP, TCP6, CGROUP, STAT, N_KINDS };  /* after the forms of the list of mounts */
static const char kinds[N_KINDS + 1][12] = {
    [MOUNTS] = "mounts", [MOUNTINFO] = "mountinfo", [MOUNTSTATS] = "mountstats", [STATUS] = "status", [LIMITS] = "limits",
    [TCP] = "tcp", [TCP6] = "tcp6", [CGROUP] = "cgroup", [STAT] = "stat", [N_KINDS] = "mtab",
};

static const char *last_part(const char *path)
{
    const char *last = path;
    for (; *path; path++)
        if (*path == '/') last = path + 1;
    return last;
}

static int kind_of(const char *name)
{
    for (int kind = 0; kind <= N_KINDS; kind++)
        if (same(name, kinds[kind])) return kind;
    return -1;
}

/* ---- what is shown ------------------------------------------------------------------------------- */

/* Working memory for one file, too large for a stack. It is part of the size that a process sees of itself. */
struct work { char text[192 << 10]; struct output shown; struct mounts mounts; };
_Static_assert((sizeof(struct work) + 4095) / 4096 == 87, "a process's own `status` shows this size");

/* Map this memory; return its address or a negative error. */
static long make_room(void)
{
    return call(SYS_mmap, 0, sizeof(struct work), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
}

static void show_file(struct work *work, int kind)
{
    struct output *shown = &work->shown;
    switch (kind) {
    case STATUS: show_status(shown, work->text); break;
    case LIMITS: show_limits(shown, work->text); break;
    case STAT: show_stat(shown, work->text); break;
    case TCP: show_sockets(shown, work->text, 4); break;
    case TCP6: show_sockets(shown, work->text, 6); break;
    case CGROUP: show(shown, "0::/\n"); break;
    default:
        read_mounts(&work->mounts, (enum form)kind, work->text);
        show_mounts(shown, &work->mounts);
    }
}

/* ---- handing it on ------------------------------------------------------------------------------- */

enum { LONGEST_PATH = 32 };

/* Append to a path; return its end. */
static char *append(char *end, const char *text)
{
    while ((*end = *text++)) end++;
    return end;
}

/* The path of this process's file of a kind. */
static const char *path_of_own(int kind, char path[LONGEST_PATH])
{
    append(append(path, kind == TCP || kind == TCP6 ? "/proc/self/net/" : "/proc/self/"), kinds[kind]);
    return path;
}

static void read_text(int fd, struct work *work)
{
    for (size_t length = 0, room = sizeof work->text - 1; length < room;) {
        long n = call(SYS_read, fd, (long)work->text + (long)length, (long)(room - length), 0, 0);
        if (n <= 0) break;
        length += (size_t)n;
    }
}

static void read_own(int kind, struct work *work)
{
    char path[LONGEST_PATH];
    int own = (int)call(SYS_openat, AT_FDCWD, (long)path_of_own(kind, path), O_RDONLY | O_CLOEXEC, 0, 0);
    if (own >= 0) read_text(own, work), call(SYS_close, own, 0, 0, 0, 0);
}

/* Replace a descriptor of the kernel's file by a pipe with the text to show. Return the descriptor, or -1 with an error that
 * open(2) can have. */
static int hand_on(int fd, int kind, int flags)
{
    long error = make_room();
    if (error > -4096 && error < 0) return call(SYS_close, fd, 0, 0, 0, 0), answer(error);
    struct work *work = (struct work *)error;
    read_text(fd, work);
    if (!*work->text) read_own(kind, work);  /* process 1 is outside the namespaces: show this process's mounts */
    show_file(work, kind);
    int ends[2];
    error = call(SYS_pipe2, (long)ends, O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
    if (!error) {
        call(SYS_write, ends[1], (long)work->shown.text, (long)work->shown.length, 0, 0);
        call(SYS_close, ends[1], 0, 0, 0, 0);
        call(SYS_fcntl, ends[0], F_SETFL, flags & O_NONBLOCK, 0, 0);
        call(SYS_fcntl, ends[0], F_SETSIG, FIRST_MARK + kind, 0, 0);
        error = call(SYS_dup3, ends[0], fd, flags & O_CLOEXEC, 0, 0);
        call(SYS_close, ends[0], 0, 0, 0, 0);
    }
    call(SYS_munmap, (long)work, sizeof *work, 0, 0, 0);
    if (error < 0) return call(SYS_close, fd, 0, 0, 0, 0), answer(error);
    return fd;
}

uint64_t listed_device(uint64_t device)
{
    long room = make_room();
    if (room > -4096 && room < 0) return device;
    struct work *work = (struct work *)room;
    read_own(MOUNTINFO, work);
    read_mounts(&work->mounts, MOUNTINFO, work->text);
    device = device_in(&work->mounts, device);
    call(SYS_munmap, room, sizeof *work, 0, 0, 0);
    return device;
}

uint64_t linked_socket(int directory, const char *path)
{
    static const char start[] = "socket:[";
    char target[32];
    if (!path || !find(path, "fd/")) return 0;
    long length = call(SYS_readlinkat, directory, (long)path, (long)target, sizeof target - 1, 0);
    if (length <= 0) return 0;
    target[length] = 0;
    const char *digits = target + sizeof start - 1;
    return begins(target, start) ? number(&digits) : 0;
}

/* The kind of the file that was opened, or -1. */
static int opened_kind(int fd, int named)
{
    struct statfs system;
    if (call(SYS_fstatfs, fd, (long)&system, 0, 0, 0) || system.f_type != PROC_SUPER_MAGIC) return -1;
    char link[48], digits[DIGITS], path[128];
    append(append(link, "/proc/self/fd/"), decimal((uint64_t)fd, digits));
    long length = call(SYS_readlink, (long)link, (long)path, sizeof path - 1, 0, 0);
    if (length > 0) path[length] = 0, named = kind_of(last_part(path));  /* unless /proc is not mounted in its place */
    return named < N_KINDS ? named : length > 0 ? -1 : MOUNTS;
}

/* If the host's kernel has no modules, /proc/modules does not exist; the declared list is in /sys. */
static bool is_list_of_modules(const char *path)
{
    return *ORIGINAL(__errno_location)() == ENOENT && path && same(path, "/proc/modules");
}

static const char modules[] = "/sys/kernel/modules";

static int after_opening(int fd, const char *path, int flags)
{
    if (fd < 0 && is_list_of_modules(path)) return ORIGINAL(open)(modules, flags);
    int named = fd < 0 || !path || flags & (O_ACCMODE | O_CREAT | O_PATH | O_DIRECTORY) ? -1 : kind_of(last_part(path));
    int kind = named < 0 ? -1 : opened_kind(fd, named);
    return kind < 0 ? fd : hand_on(fd, kind, flags);
}

void stat_list(int fd, struct stat *file)
{
    long kind = call(SYS_fcntl, fd, F_GETSIG, 0, 0, 0) - FIRST_MARK;
    if (kind < 0 || kind >= N_KINDS) return;
    char path[LONGEST_PATH];
    struct stat found;
    if (call(SYS_newfstatat, AT_FDCWD, (long)path_of_own(kind, path), (long)&found, 0, 0)) return;
    *file = found;
    file->st_mode = S_IFIFO | (found.st_mode & 07777);  /* otherwise programs would seek in it */
}

/* ---- opening ------------------------------------------------------------------------------------- */

EXPORT int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);  /* not passed unless a file may be created; otherwise unused */
    va_end(more);
    return after_opening(ORIGINAL(open)(path, flags, mode), path, flags);
}

EXPORT int openat(int directory, const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return after_opening(ORIGINAL(openat)(directory, path, flags, mode), path, flags);
}

/* Variants called by programs compiled with _FORTIFY_SOURCE. */
extern int __open_2(const char *path, int flags);
extern int __openat_2(int directory, const char *path, int flags);

EXPORT int __open_2(const char *path, int flags) { return after_opening(ORIGINAL(__open_2)(path, flags), path, flags); }

EXPORT int __openat_2(int directory, const char *path, int flags)
{
    return after_opening(ORIGINAL(__openat_2)(directory, path, flags), path, flags);
}

/* If the stream would read such a file, return true and set it, or NULL for an error. */
static bool open_list(const char *path, const char *mode, int flags, FILE **stream)
{
    int named = kind_of(last_part(path));
    if (named < 0 || *mode != 'r' || find(mode, "+")) return false;
    int fd = (int)call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_LARGE | flags, 0, 0);
    int kind = fd < 0 ? -1 : opened_kind(fd, named);
    if (kind < 0) {
        if (fd >= 0) call(SYS_close, fd, 0, 0, 0, 0);
        return false;  /* the library's own function reports the error */
    }
    fd = hand_on(fd, kind, flags);
    *stream = fd < 0 ? NULL : ORIGINAL(fdopen)(fd, mode);
    if (fd >= 0 && !*stream) call(SYS_close, fd, 0, 0, 0, 0);
    return true;
}

EXPORT FILE *fopen(const char *restrict path, const char *restrict mode)
{
    FILE *stream;
    if (open_list(path, mode, find(mode, "e") ? O_CLOEXEC : 0, &stream)) return stream;
    stream = ORIGINAL(fopen)(path, mode);
    return !stream && is_list_of_modules(path) ? ORIGINAL(fopen)(modules, mode) : stream;
}

EXPORT FILE *setmntent(const char *path, const char *mode)
{
    FILE *stream;
    return open_list(path, mode, O_CLOEXEC, &stream) ? stream : ORIGINAL(setmntent)(path, mode);
}

ALSO(open, open64);
ALSO(openat, openat64);
ALSO(open, __open);
ALSO(open, __open64);
ALSO(__open_2, __open64_2);
ALSO(__openat_2, __openat64_2);
ALSO(fopen, fopen64);
ALSO(setmntent, __setmntent);
#endif
