/* Usage of the root disk, including the system's files, which the upper layer does not count; entries of directories. */
#include <dirent.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

#include "facts.h"
#include "proc.h"

#ifdef __x86_64__

enum { EXT4_MAGIC = 0xef53, OVERLAY_MAGIC = 0x794c7630 };

/* Whether it is the root file system: the supervisor names each overlay "shioenv-overlay!", and the kernel folds the name. */
static bool is_root(const void *fsid)
{
    static const char name[16] = "shioenv-overlay!";
    uint64_t first, second, id;
    __builtin_memcpy(&first, name, 8);
    __builtin_memcpy(&second, name + 8, 8);
    __builtin_memcpy(&id, fsid, 8);
    return id == (first ^ second);
}

/* Convert the values of the root file system to those of the machine, and return its type. `path` is the argument of the call, or
 * NULL: some directories of this file system are separate file systems on the machine. */
static uint32_t declare_disk(const char *path, fsblkcnt_t *blocks, fsblkcnt_t *left, fsblkcnt_t *available, fsfilcnt_t *files)
{
    static const char machine[][5] = {"/sys", "/dev", "/run"};
    for (int i = 0; path && i < 3; i++) {
        int at = 0;
        while (at < 4 && path[at] == machine[i][at]) at++;
        if (at < 4 || (path[at] && path[at] != '/')) continue;
        if (i) *blocks = *left;  /* in memory and empty */
        else *blocks = *left = *available = 0;
        return i ? TMPFS_MAGIC : SYSFS_MAGIC;
    }
    *blocks += (uint64_t)facts.blocks;
    *files += (uint64_t)facts.files;
    return EXT4_MAGIC;
}

/* Many file systems are identified by their device number. */
static uint64_t declared_id(uint64_t id) { return facts.device && is_unnamed(id) ? listed_device(id) : id; }

static int declared_statfs(long result, const char *path, struct statfs *disk)
{
    if (result) return answer(result);
    if (disk->f_type == OVERLAY_MAGIC && is_root(&disk->f_fsid))
        disk->f_type = declare_disk(path, &disk->f_blocks, &disk->f_bfree, &disk->f_bavail, &disk->f_files);
    else if (disk->f_type == TMPFS_MAGIC && !disk->f_blocks) {  /* without a size: the replacement of /sys and the like */
        disk->f_type = SYSFS_MAGIC;
        disk->f_files = disk->f_ffree = 0;
        __builtin_memset(&disk->f_fsid, 0, sizeof disk->f_fsid);
    }
    uint64_t id;
    __builtin_memcpy(&id, &disk->f_fsid, sizeof id);
    id = declared_id(id);
    __builtin_memcpy(&disk->f_fsid, &id, sizeof id);
    return 0;
}

EXPORT int statfs(const char *path, struct statfs *disk)
{
    return declared_statfs(call(SYS_statfs, (long)path, (long)disk, 0, 0, 0), path, disk);
}

EXPORT int fstatfs(int fd, struct statfs *disk)
{
    return declared_statfs(call(SYS_fstatfs, fd, (long)disk, 0, 0, 0), NULL, disk);
}

static int declared_statvfs(int result, const char *path, struct statvfs *disk)
{
    if (result) return result;
    if (!is_root(&disk->f_fsid)) {
        bool stands = !disk->f_blocks && !is_unnamed(disk->f_fsid);  /* replaces /sys or the like: the identifier is random */
        if (!disk->f_blocks) disk->f_files = disk->f_ffree = disk->f_favail = 0;
        disk->f_fsid = stands ? 0 : declared_id(disk->f_fsid);
        return 0;
    }
    uint32_t type = declare_disk(path, &disk->f_blocks, &disk->f_bfree, &disk->f_bavail, &disk->f_files);
    /* called f_type since glibc 2.39 */
    uint32_t *named = (uint32_t *)((char *)&disk->f_namemax + sizeof disk->f_namemax);
    if (*named == OVERLAY_MAGIC) *named = type;
    return 0;
}

EXPORT int statvfs(const char *restrict path, struct statvfs *restrict disk)
{
    return declared_statvfs(ORIGINAL(statvfs)(path, disk), path, disk);
}

EXPORT int fstatvfs(int fd, struct statvfs *disk) { return declared_statvfs(ORIGINAL(fstatvfs)(fd, disk), NULL, disk); }

static void declare_entry(struct dirent *entry)
{
    entry->d_ino = shown_inode(entry->d_ino);
    if (entry->d_type == DT_SOCK) entry->d_type = DT_UNKNOWN;  /* it may be a device, which `stat` shows */
}

EXPORT struct dirent *readdir(DIR *directory)
{
    struct dirent *entry = ORIGINAL(readdir)(directory);
    if (entry) declare_entry(entry);
    return entry;
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
EXPORT int readdir_r(DIR *restrict directory, struct dirent *restrict entry, struct dirent **restrict result)
{
    int error = ORIGINAL(readdir_r)(directory, entry, result);
    if (!error && *result) declare_entry(*result);
    return error;
}

extern ssize_t getdents64(int fd, void *entries, size_t size);

EXPORT ssize_t getdents64(int fd, void *entries, size_t size)
{
    ssize_t length = ORIGINAL(getdents64)(fd, entries, size);
    for (ssize_t at = 0; at < length;) {
        struct dirent *entry = (struct dirent *)((char *)entries + at);
        declare_entry(entry);
        at += entry->d_reclen;
    }
    return length;
}

ALSO(statfs, statfs64);
ALSO(fstatfs, fstatfs64);
ALSO(statvfs, statvfs64);
ALSO(fstatvfs, fstatvfs64);
ALSO(readdir, readdir64);
ALSO(readdir_r, readdir64_r);
#endif
