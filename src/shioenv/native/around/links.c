#define _GNU_SOURCE
#include <stdbool.h>

#include "links.h"

#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common.h"
#include "configuration.h"
#include "mounts.h"
#include "scan.h"

/* The two names of a call, as its process gave them. */
struct names {
    int from_directory, to_directory, flags;
    char from[PATH_MAX], to[PATH_MAX];
};

/* A text in the memory of a process, which ends on the page where it ends. */
static bool read_text(pid_t process, uint64_t address, char text[PATH_MAX])
{
    enum { PAGE = 4096 };
    for (size_t length = 0; length < PATH_MAX;) {
        size_t left = PAGE - (address + length) % PAGE, room = PATH_MAX - length;
        struct iovec here = {text + length, left < room ? left : room};
        struct iovec there = {(void *)(uintptr_t)(address + length), here.iov_len};
        ssize_t n = process_vm_readv(process, &here, 1, &there, 1, 0);
        if (n <= 0) return false;
        if (memchr(text + length, 0, (size_t)n)) return true;
        length += (size_t)n;
    }
    return false;
}

static bool read_names(pid_t process, const struct seccomp_data *call, struct names *names)
{
    bool at = call->nr == SYS_linkat;
    names->from_directory = at ? (int)call->args[0] : AT_FDCWD;
    names->to_directory = at ? (int)call->args[2] : AT_FDCWD;
    names->flags = at ? (int)call->args[4] : 0;
    return !(names->flags & ~(AT_SYMLINK_FOLLOW | AT_EMPTY_PATH)) &&
           read_text(process, call->args[at ? 1 : 0], names->from) && read_text(process, call->args[at ? 3 : 1], names->to);
}

/* What a process has in /proc by this name; nothing is opened but the place. */
static int open_of(pid_t process, const char *name, int number)
{
    char path[64];
    snprintf(path, sizeof path, name, (int)process, number);
    return openat(host_proc, path, O_PATH | O_CLOEXEC);
}

/* This process's root and directory become that process's, so that names lead where they lead there; or what they were,
 * which comes back. */
static bool go_to(int root, int directory) { return !fchdir(root) && !chroot(".") && !fchdir(directory); }

/* Takes a process's right to files, as far as another user than root has it. */
static bool take_rights(pid_t process)
{
    char path[32], text[4096];
    snprintf(path, sizeof path, "%d/status", (int)process);
    int fd = openat(host_proc, path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    close_fd(&fd);
    text[n < 0 ? 0 : n] = 0;
    const char *users = strstr(text, "\nUid:"), *groups = strstr(text, "\nGid:"), *others = strstr(text, "\nGroups:");
    unsigned user, group;
    if (!users || sscanf(users + 5, "%*u %*u %*u %u", &user) != 1) return false;
    if (!groups || sscanf(groups + 5, "%*u %*u %*u %u", &group) != 1 || !others) return false;
    if (!user) return true;
    gid_t list[64];
    size_t count = 0;
    char *end;
    for (const char *at = others + 8; count < 64; at = end, count++) {
        list[count] = (gid_t)strtoul(at, &end, 10);
        if (end == at || memchr(at, '\n', (size_t)(end - at))) break;
    }
    setgroups(count, list);
    setfsgid(group);
    setfsuid(user);
    return true;
}

static void take_own_rights(void)
{
    setfsuid(0);
    setfsgid(0);
    setgroups(0, NULL);
}

static bool may(int file, int mode)
{
    return !syscall(SYS_faccessat2, file, "", mode, AT_EACCESS | AT_EMPTY_PATH);
}

/* Whether hard links to others' files are let through to who could not read and write them, or not (the host's
 * fs.protected_hardlinks). */
static bool is_protected(void)
{
    char on = '1';
    int fd = openat(host_proc, "sys/fs/protected_hardlinks", O_RDONLY | O_CLOEXEC);
    bool known = fd >= 0 && read(fd, &on, 1) == 1;
    close_fd(&fd);
    return !known || on != '0';
}

/* Whether Linux lets this user link to the file. */
static bool may_link(int file, const struct statx *about)
{
    uid_t user = (uid_t)setfsuid((uid_t)-1);  /* which no user has: it only asks */
    mode_t mode = about->stx_mode;
    if (!user || user == about->stx_uid) return true;
    bool plain = S_ISREG(mode) && !(mode & S_ISUID) && (mode & (S_ISGID | S_IXGRP)) != (S_ISGID | S_IXGRP);
    return (plain && may(file, R_OK | W_OK)) || !is_protected();
}

static bool look(int file, const char *name, int flags, struct statx *about)
{
    return !statx(file, name, flags, STATX_BASIC_STATS | STATX_MNT_ID, about);
}

/* Opens the directory that a name is in: the last part of the name is cut off from it. */
static int open_parent(int directory, char *name)
{
    char *last = strrchr(name, '/');
    if (!last) return openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    last[last == name] = 0;
    return openat(directory, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* The descriptor that a name leads to by way of the process's own entry in /proc, which this process lacks; else -1. */
static int own_descriptor(const struct names *names)
{
    static const char *const ways[] = {"/proc/self/fd/", "/proc/thread-self/fd/", "/dev/fd/"};
    for (size_t i = 0; i < sizeof ways / sizeof *ways && names->flags & AT_SYMLINK_FOLLOW; i++) {
        size_t length = strlen(ways[i]);
        char *end;
        if (strncmp(names->from, ways[i], length)) continue;
        unsigned long number = strtoul(names->from + length, &end, 10);
        if (!*end && end > names->from + length && number <= INT_MAX) return (int)number;
    }
    return -1;
}

/* The file that gets another name, where the kernel will most likely give it that; else -1. What is asked stands in memory
 * that others can change meanwhile: nothing is decided here but whether the file is worth a look. */
static int find_file(pid_t process, struct names *names)
{
    int from = names->from_directory == AT_FDCWD ? -1 : open_of(process, "%d/fd/%d", names->from_directory);
    int to = names->to_directory == AT_FDCWD ? -1 : open_of(process, "%d/fd/%d", names->to_directory);
    bool itself = names->flags & AT_EMPTY_PATH && !*names->from;
    int descriptor = own_descriptor(names);
    int file = itself ? from : descriptor >= 0 ? open_of(process, "%d/fd/%d", descriptor) :
               openat(from < 0 ? AT_FDCWD : from, names->from,
                      O_PATH | O_CLOEXEC | (names->flags & AT_SYMLINK_FOLLOW ? 0 : O_NOFOLLOW));
    if (itself) from = -1;
    struct statx about, parent, there;
    int start = to < 0 ? AT_FDCWD : to;
    bool likely = file >= 0 && !look(start, names->to, AT_SYMLINK_NOFOLLOW, &there) && errno == ENOENT;
    int directory = likely ? open_parent(start, names->to) : -1;
    likely = directory >= 0 && look(file, "", AT_EMPTY_PATH, &about) && look(directory, "", AT_EMPTY_PATH, &parent) &&
             about.stx_mnt_id == parent.stx_mnt_id && !S_ISDIR(about.stx_mode) && may(directory, W_OK | X_OK) &&
             may_link(file, &about);
    close_fd(&from);
    close_fd(&to);
    close_fd(&directory);
    if (!likely) close_fd(&file);
    return file;
}

static int open_below(int root, const char *path)
{
    struct open_how how = {
        .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    return (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof how);
}

/* A name that nothing in the directory has. */
static bool find_free_name(int directory, unsigned *next, char name[32])
{
    struct stat taken;
    for (unsigned end = *next + 1000; *next < end;) {
        snprintf(name, 32, ".~%u~", (*next)++);
        if (fstatat(directory, name, &taken, AT_SYMLINK_NOFOLLOW) && errno == ENOENT) return true;
    }
    return false;
}

static bool is_same(const struct statx *one, const struct statx *other)
{
    return one->stx_ino == other->stx_ino && one->stx_dev_major == other->stx_dev_major &&
           one->stx_dev_minor == other->stx_dev_minor;
}

static int exchange(int directory, const char *one, const char *other)
{
    return renameat2(directory, one, directory, other, RENAME_EXCHANGE);
}

/* Whether the names were exchanged, and the first one is now what the other one was. Where it is not, another process
 * was faster: the names are exchanged back, so that what it did lasts. */
static bool exchange_if(int directory, const char *one, const char *other, const struct statx *expected)
{
    struct statx found;
    if (exchange(directory, one, other)) return false;
    if (look(directory, one, AT_SYMLINK_NOFOLLOW, &found) && is_same(&found, expected)) return true;
    exchange(directory, one, other);
    return false;
}

/* Makes the name lead to the upper layer's inode: a second name takes its place. In between, the name is a symbolic link
 * to the second one, since the kernel does not rename a name of a file over another one. Returns an errno. */
static int replace_name(int directory, const char *name, const struct statx *file)
{
    char second[32], third[32], target[PATH_MAX];
    struct statx symbolic;
    unsigned next = 0;
    ssize_t length = S_ISLNK(file->stx_mode) ? readlinkat(directory, name, target, sizeof target - 1) : 0;
    if (length < 0 || !find_free_name(directory, &next, second) || !find_free_name(directory, &next, third)) return EIO;
    target[length] = 0;
    if (linkat(directory, name, directory, second, 0)) return errno;
    if (symlinkat(length ? target : second, directory, third)) {
        int error = errno;
        unlinkat(directory, second, 0);
        return error;
    }
    if (look(directory, third, AT_SYMLINK_NOFOLLOW, &symbolic) && exchange_if(directory, third, name, file) &&
        !exchange_if(directory, second, name, &symbolic))
        exchange_if(directory, third, name, &symbolic);
    unlinkat(directory, second, 0);
    unlinkat(directory, third, 0);
    return 0;
}

/* Keeps what tells a file that was renamed from a new one. */
static void keep_number(int upper, const char *path, const char *name, uint64_t number)
{
    int directory = open_below(upper, path);
    int file = directory < 0 ? -1 : openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0) numbers_kept |= !fsetxattr(file, NUMBER_BEFORE, &number, sizeof number, 0);
    close_fd(&file);
    close_fd(&directory);
}

/* Looks for the file in the layer, by the path where its mount has it. An errno. */
static int unite(int file)
{
    char link[32], path[PATH_MAX];
    struct statx wanted, found, parent;
    struct stat times, upper;
    snprintf(link, sizeof link, "self/fd/%d", file);
    ssize_t length = readlinkat(host_proc, link, path, sizeof path - 1);
    if (length <= 0 || *path != '/' || !look(file, "", AT_EMPTY_PATH, &wanted)) return 0;
    path[length] = 0;
    char *last = strrchr(path, '/'), *name = last + 1;
    *last = 0;
    const char *above = path + (last > path);
    int directory = open_below(merged_root, above), error = 0;
    if (directory < 0) return 0;
    if (look(directory, name, AT_SYMLINK_NOFOLLOW, &found) && look(directory, "", AT_EMPTY_PATH, &parent) &&
        is_same(&found, &wanted) && found.stx_mnt_id == parent.stx_mnt_id && !fstat(directory, &times)) {
        int place = open_below(upper_root, above);
        bool united = place >= 0 && !fstatat(place, name, &upper, AT_SYMLINK_NOFOLLOW) && upper.st_ino == found.stx_ino;
        close_fd(&place);
        if (!united) {
            error = replace_name(directory, name, &found);
            futimens(directory, (struct timespec[]){times.st_atim, times.st_mtim});
            if (!error && S_ISREG(found.stx_mode)) keep_number(upper_root, above, name, found.stx_ino);
        }
    }
    close(directory);
    return error;
}

int prepare_link(pid_t process, const struct seccomp_data *call)
{
    static struct names names;
    if (config.plain || !read_names(process, call, &names)) return 0;
    int own[2] = {open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    int its[2] = {open_of(process, "%d/root", 0), open_of(process, "%d/cwd", 0)};
    int file = -1;
    if (own[0] >= 0 && own[1] >= 0 && its[0] >= 0 && its[1] >= 0) {
        if (go_to(its[0], its[1]) && take_rights(process)) file = find_file(process, &names);
        take_own_rights();
        if (!go_to(own[0], own[1])) _exit(125);
    }
    for (int i = 0; i < 2; i++) close_fd(&own[i]), close_fd(&its[i]);
    int error = file >= 0 ? unite(file) : 0;
    close_fd(&file);
    return error;
}
