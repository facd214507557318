/* Rename directories of the system, which overlayfs refuses in a user namespace (EXDEV): programs would copy and remove them, and
 * report that. Here a new directory is created, and the old one's entries are renamed into it one by one, which the kernel
 * permits for all but directories. Files keep their inodes and open descriptors. At an obstacle (a mount, other users' files,
 * a full disk) everything is moved back, and the kernel's error is returned. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "facts.h"

#ifdef __x86_64__

enum { DEEPEST = 100, LISTED = 1024, PATIENCE = 100000 };

struct entry { uint64_t inode, offset; uint16_t length; uint8_t type; char name[]; };

static bool is_directory(int parent, const char *name, struct stat *status)
{
    return !call(SYS_newfstatat, parent, (long)name, (long)status, AT_SYMLINK_NOFOLLOW, 0) && S_ISDIR(status->st_mode);
}

/* Copy owner, permissions and times. Directories with extended attributes, which would be lost, are not moved. */
static bool take_attributes(int directory, const struct stat *status)
{
    struct timespec times[2] = {status->st_atim, status->st_mtim};
    return !call(SYS_fchown, directory, status->st_uid, status->st_gid, 0, 0) &&
           !call(SYS_fchmod, directory, status->st_mode & 07777, 0, 0, 0) &&
           !call(SYS_utimensat, directory, 0, (long)times, 0, 0);
}

static void set_attributes(int parent, const char *name, const struct stat *status)
{
    int fd = (int)call(SYS_openat, parent, (long)name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, 0);
    if (fd < 0) return;
    take_attributes(fd, status);
    call(SYS_close, fd, 0, 0, 0, 0);
}

static bool move(int from_parent, const char *from, int to_parent, const char *to, int depth);

/* Move all entries of a directory to another. Return whether none is left. */
static bool move_content(int from, int to, int depth)
{
    _Alignas(struct entry) char list[LISTED];
    for (int rounds = 0; rounds < PATIENCE; rounds++) {
        bool any = false;
        call(SYS_lseek, from, 0, 0, 0, 0);
        for (long n; (n = call(SYS_getdents64, from, (long)list, sizeof list, 0, 0));) {
            if (n < 0) return false;
            for (long at = 0; at < n;) {
                const struct entry *entry = (const struct entry *)(list + at);
                at += entry->length;
                if (same(entry->name, ".") || same(entry->name, "..")) continue;
                any = true;
                if (!move(from, entry->name, to, entry->name, depth)) return false;
            }
        }
        if (!any) return true;
    }
    return false;
}

/* Recreate a directory under another name; an existing one is left over from an earlier attempt. */
static bool move_directory(int from_parent, const char *from, int to_parent, const char *to, int depth)
{
    struct stat status;
    if (depth > DEEPEST || !is_directory(from_parent, from, &status)) return false;
    int old = (int)call(SYS_openat, from_parent, (long)from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, 0);
    if (old < 0) return false;
    char attributes[256];  /* with a size of 0, overlayfs would count its own attributes as well */
    bool done = !call(SYS_flistxattr, old, (long)attributes, sizeof attributes, 0, 0);
    long made = done ? call(SYS_mkdirat, to_parent, (long)to, 0700, 0, 0) : -1;
    int new = made && made != -EEXIST ? -1
            : (int)call(SYS_openat, to_parent, (long)to, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0, 0);
    done = new >= 0 && move_content(old, new, depth + 1) && take_attributes(new, &status) &&
           !call(SYS_unlinkat, from_parent, (long)from, AT_REMOVEDIR, 0, 0);
    if (!done) take_attributes(old, &status);  /* for the remaining part */
    if (new >= 0) call(SYS_close, new, 0, 0, 0, 0);
    call(SYS_close, old, 0, 0, 0, 0);
    return done;
}

static bool move(int from_parent, const char *from, int to_parent, const char *to, int depth)
{
    long result = call(SYS_renameat2, from_parent, (long)from, to_parent, (long)to, 0);
    if (result != -EXDEV && result != -ENOTEMPTY && result != -EEXIST) return !result;
    return move_directory(from_parent, from, to_parent, to, depth);
}

/* Rename a directory that the kernel refused to rename, replacing an empty one if it exists. Return 0 or the kernel's error. */
static long rename_directory(int from_parent, const char *from, int to_parent, const char *to)
{
    struct stat before, replaced;
    uint64_t all = ~0ull, mask;
    if (!is_directory(from_parent, from, &before)) return -EXDEV;
    bool replaces = is_directory(to_parent, to, &replaced);
    call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&all, (long)&mask, sizeof mask, 0);  /* a rename is not interrupted */
    long refused = replaces ? call(SYS_unlinkat, to_parent, (long)to, AT_REMOVEDIR, 0, 0) : 0;
    if (!refused && !move_directory(from_parent, from, to_parent, to, 0)) {
        refused = -EXDEV;
        struct stat left;
        if (is_directory(to_parent, to, &left)) move_directory(to_parent, to, from_parent, from, 0);
        set_attributes(from_parent, from, &before);
        if (replaces && !call(SYS_mkdirat, to_parent, (long)to, 0700, 0, 0)) set_attributes(to_parent, to, &replaced);
    }
    call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof mask, 0);
    return refused;
}

EXPORT int renameat2(int from_parent, const char *from, int to_parent, const char *to, unsigned flags)
{
    long result = call(SYS_renameat2, from_parent, (long)from, to_parent, (long)to, (long)flags);
    if (result == -EXDEV && !(flags & ~(unsigned)RENAME_NOREPLACE)) result = rename_directory(from_parent, from, to_parent, to);
    return answer(result);
}

EXPORT int renameat(int from_parent, const char *from, int to_parent, const char *to)
{
    return renameat2(from_parent, from, to_parent, to, 0);
}

EXPORT int rename(const char *from, const char *to) { return renameat2(AT_FDCWD, from, AT_FDCWD, to, 0); }
#endif
