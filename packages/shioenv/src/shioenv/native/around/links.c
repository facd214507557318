#define _GNU_SOURCE
#include <stdbool.h>

#include "links.h"

#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common.h"
#include "configuration.h"
#include "mounts.h"
#include "scan.h"

/* The two paths of a call, as passed by its process. */
struct names {
    int from_directory, to_directory, flags;
    char from[PATH_MAX], to[PATH_MAX];
};

/* Read a text in the memory of a process; pages after its end are not accessed. */
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

/* Open an entry of a process in /proc, as a path only. */
static int open_of(pid_t process, const char *name, int number)
{
    char path[64];
    snprintf(path, sizeof path, name, (int)process, number);
    return openat(host_proc, path, O_PATH | O_CLOEXEC);
}

/* Set this process's root and working directory to that process's, so that paths resolve as they do there, or back to its own. */
static bool go_to(int root, int directory) { return !fchdir(root) && !chroot(".") && !fchdir(directory); }

/* Take a process's permissions on files, as far as it is not root. */
static bool take_rights(const char *text)
{
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
    end_with_caller();  /* the kernel resets the signal when credentials change */
}

static bool may(int file, int mode)
{
    return !syscall(SYS_faccessat2, file, "", mode, AT_EACCESS | AT_EMPTY_PATH);
}

/* Whether hard links to other users' files require read and write permission (the host's fs.protected_hardlinks). */
static bool is_protected(void)
{
    char on[2];
    read_proc(on, sizeof on, "sys/fs/protected_hardlinks");
    return *on != '0';
}

/* Whether Linux permits this user to link to the file. */
static bool may_link(int file, const struct statx *about)
{
    uid_t user = (uid_t)setfsuid((uid_t)-1);  /* an invalid id: this only queries */
    mode_t mode = about->stx_mode;
    if (!user || user == about->stx_uid) return true;
    bool plain = S_ISREG(mode) && !(mode & S_ISUID) && (mode & (S_ISGID | S_IXGRP)) != (S_ISGID | S_IXGRP);
    return (plain && may(file, R_OK | W_OK)) || !is_protected();
}

static bool look(int file, const char *name, int flags, struct statx *about)
{
    return !statx(file, name, flags, STATX_BASIC_STATS | STATX_MNT_ID, about);
}

/* Open the directory of a path, and cut off the last component of the path. */
static int open_parent(int directory, char *name)
{
    char *last = strrchr(name, '/');
    if (!last) return openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    last[last == name] = 0;
    return openat(directory, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* If a path begins with the process's own entry in /proc, which this process cannot resolve, open the target, and shorten the
 * path to the rest. Else -1. */
static int open_own(pid_t process, char name[PATH_MAX])
{
    static const struct { const char *start, *place; int number; } ways[] = {
        {"/proc/self/cwd", "%d/cwd", 0}, {"/proc/self/root", "%d/root", 0}, {"/proc/self/fd/", "%d/fd/%d", -1},
        {"/proc/thread-self/cwd", "%d/cwd", 0}, {"/proc/thread-self/root", "%d/root", 0},
        {"/proc/thread-self/fd/", "%d/fd/%d", -1}, {"/dev/fd/", "%d/fd/%d", -1},
        {"/dev/stdin", "%d/fd/%d", 0}, {"/dev/stdout", "%d/fd/%d", 1}, {"/dev/stderr", "%d/fd/%d", 2},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        char *rest = name + strlen(ways[i].start);
        if (strncmp(name, ways[i].start, (size_t)(rest - name))) continue;
        int number = ways[i].number < 0 && *rest >= '0' && *rest <= '9' ? (int)strtoul(rest, &rest, 10) : ways[i].number;
        if (number < 0 || (*rest && *rest != '/')) continue;
        int start = open_of(process, ways[i].place, number);
        while (*rest == '/') rest++;
        if (start >= 0) memmove(name, rest, strlen(rest) + 1);
        return start;
    }
    return -1;
}

/* Open the start of a path; `directory` -1 is the process's root or working directory. */
static int open_start(pid_t process, int directory, char name[PATH_MAX])
{
    int own = open_own(process, name);
    return own >= 0 || directory == AT_FDCWD ? own : open_of(process, "%d/fd/%d", directory);
}

/* Open the file to be linked, if the kernel will probably permit the link; else -1. The arguments are in memory that other
 * threads can change meanwhile, so this only decides whether to examine the file. */
static int find_file(pid_t process, struct names *names)
{
    bool itself = names->flags & AT_EMPTY_PATH && !*names->from;
    int from = open_start(process, names->from_directory, names->from);
    int to = open_start(process, names->to_directory, names->to);
    itself |= names->flags & AT_SYMLINK_FOLLOW && from >= 0 && !*names->from;
    int file = itself ? from :
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
        .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,  /* opening it normally would cause an event */
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV,
    };
    return (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof how);
}

/* Find an unused name in the directory. */
static bool find_free_name(int directory, unsigned *next, char name[32])
{
    struct stat taken;
    for (unsigned end = *next + (1u << 20); *next < end;) {
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

/* Exchange two names, and check that the first one is now the expected file. If not, another process was faster; exchange them
 * back to preserve its change, and return false. */
static bool exchange_if(int directory, const char *one, const char *other, const struct statx *expected)
{
    struct statx found;
    if (exchange(directory, one, other)) return false;
    if (look(directory, one, AT_SYMLINK_NOFOLLOW, &found) && is_same(&found, expected)) return true;
    exchange(directory, one, other);
    return false;
}

/* Make the name of a file in use resolve to the upper layer's inode, by replacing it with a second name. In between, the name
 * is a symbolic link to the second one, because rename(2) does nothing for two names of one file. Return an errno. */
static int replace_name(int directory, const char *name, const struct statx *file)
{
    char second[32], third[32], target[PATH_MAX];
    struct statx symbolic;
    unsigned next = 0;
    ssize_t length = S_ISLNK(file->stx_mode) ? readlinkat(directory, name, target, sizeof target - 1) : 0;
    if (length < 0) return 0;  /* another process was faster */
    if (!find_free_name(directory, &next, second) || !find_free_name(directory, &next, third)) return ENOSPC;
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

/* Make the upper layer hold the file, without an effect visible to inputs and without an event: setting an attribute with
 * contradictory flags fails, and setting the same owners causes no event. If this fails, the link fails as well. */
static void copy_up(int directory, const char *name, mode_t mode)
{
    int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (here < 0 || fchdir(directory)) return close_fd(&here);
    int result = S_ISREG(mode) ? lsetxattr(name, "user.none", "", 0, XATTR_CREATE | XATTR_REPLACE) : lchown(name, (uid_t)-1, (gid_t)-1);
    if (result) errno = 0;
    if (fchdir(here)) _exit(125);
    close_fd(&here);
}

/* Whether the name resolves to the upper layer's inode. */
static bool is_of_upper(int directory, const char *above, const char *name)
{
    struct statx shown;
    struct stat upper;
    int place = open_below(upper_root, above);
    bool is_it = place >= 0 && look(directory, name, AT_SYMLINK_NOFOLLOW, &shown) &&
                 !fstatat(place, name, &upper, AT_SYMLINK_NOFOLLOW) && upper.st_ino == shown.stx_ino;
    close_fd(&place);
    return is_it;
}

/* Store the inode number, which distinguishes a renamed file from a new one. */
static void keep_number(int upper, const char *path, const char *name, uint64_t number)
{
    int directory = open_below(upper, path);
    int file = directory < 0 ? -1 : openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file >= 0) numbers_kept |= !fsetxattr(file, NUMBER_BEFORE, &number, sizeof number, 0);
    close_fd(&file);
    close_fd(&directory);
}

/* Decode the escaped blanks of mountinfo. */
static void unescape(char *text)
{
    char *to = text;
    for (const char *from = text; *from; to++)
        if (*from == '\\' && from[1] && from[2] && from[3])
            *to = (char)((from[1] - '0') * 64 + (from[2] - '0') * 8 + from[3] - '0'), from += 4;
        else
            *to = *from++;
    *to = 0;
}

/* Convert a path below a mount point to the path on the mount's file system. */
static bool follow_mount(pid_t process, uint64_t mount, char path[PATH_MAX])
{
    char place[32], *line = NULL;
    size_t room = 0;
    snprintf(place, sizeof place, "%d/mountinfo", (int)process);
    int fd = openat(host_proc, place, O_RDONLY | O_CLOEXEC);
    FILE *list = fd < 0 ? NULL : fdopen(fd, "r");
    if (!list) return close_fd(&fd), false;
    bool followed = false;
    while (!followed && getline(&line, &room, list) > 0) {
        if (strtoull(line, NULL, 10) != mount) continue;
        static char root[PATH_MAX], point[PATH_MAX], whole[2 * PATH_MAX];
        if (sscanf(line, "%*s %*s %*s %4095s %4095s", root, point) != 2) break;
        unescape(root), unescape(point);
        size_t length = point[1] ? strlen(point) : 0;
        if (strncmp(path, point, length) || path[length] != '/') break;
        int n = snprintf(whole, sizeof whole, "%s%s", root[1] ? root : "", path + length);
        followed = n < PATH_MAX;
        if (followed) memcpy(path, whole, (size_t)n + 1);
    }
    free(line);
    fclose(list);
    return followed;
}

/* Open the directory of a path in the layer, if the file is at that path, and split the path in two. Else -1. */
static int open_place(char *path, const struct statx *wanted, struct statx *found, char **name)
{
    char *last = strrchr(path, '/');
    struct statx parent;
    *last = 0;
    *name = last + 1;
    int directory = open_below(merged_root, path + (last > path));
    bool there = directory >= 0 && look(directory, *name, AT_SYMLINK_NOFOLLOW, found) &&
                 look(directory, "", AT_EMPTY_PATH, &parent) && is_same(found, wanted) &&
                 found->stx_mnt_id == parent.stx_mnt_id;
    if (there) return directory;
    *last = '/';
    close_fd(&directory);
    return -1;
}

/* Find the file in the layer by its path on its mount, and prepare it. Return an errno. Closes the descriptor, because the kernel
 * keeps the name of a file in use. */
static int unite(pid_t process, int file)
{
    char link[32], path[PATH_MAX], *name;
    struct statx wanted, found;
    struct stat times;
    snprintf(link, sizeof link, "self/fd/%d", file);
    ssize_t length = readlinkat(host_proc, link, path, sizeof path - 1);
    bool is_known = length > 0 && *path == '/' && look(file, "", AT_EMPTY_PATH, &wanted);
    close(file);
    if (!is_known) return 0;
    path[length] = 0;
    int directory = open_place(path, &wanted, &found, &name), error = 0;
    if (directory < 0 && follow_mount(process, wanted.stx_mnt_id, path))
        directory = open_place(path, &wanted, &found, &name);
    if (directory < 0) return 0;
    const char *above = path + (*path == '/');
    if (!fstat(directory, &times)) {
        bool united = is_of_upper(directory, above, name);
        if (!united) {
            copy_up(directory, name, found.stx_mode);
            forget_names();
            if (!is_of_upper(directory, above, name)) {
                error = replace_name(directory, name, &found);
                utimensat(directory, ".", (struct timespec[]){times.st_atim, times.st_mtim}, 0);
            }
            if (!error && S_ISREG(found.stx_mode)) keep_number(upper_root, above, name, found.stx_ino);
        }
    }
    close(directory);
    return error;
}

/* Whether the process still waits for its answer; until then its id is not reused. */
static bool is_waiting(int listener, const struct seccomp_notif *notice)
{
    return !ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &notice->id);
}

/* Whether the file already has the upper layer's inode, like files created by inputs; most links need no more. Paths through
 * links out of their directory, or through /proc, are not examined; this only decides whether to continue. */
static bool is_above(int listener, const struct seccomp_notif *notice, const struct names *names)
{
    bool absolute = names->from[0] == '/', here = names->from_directory == AT_FDCWD;
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC | (names->flags & AT_SYMLINK_FOLLOW ? 0 : O_NOFOLLOW),
        .resolve = (absolute ? RESOLVE_IN_ROOT : RESOLVE_BENEATH) | RESOLVE_NO_MAGICLINKS,
    };
    struct statx about, layer;
    if (!names->from[0] || has_frozen_layers()) return false;
    int start = open_of((pid_t)notice->pid, absolute ? "%d/root" : here ? "%d/cwd" : "%d/fd/%d", names->from_directory);
    int file = start < 0 || !is_waiting(listener, notice) ? -1 : (int)syscall(SYS_openat2, start, names->from, &how, sizeof how);
    /* Overlay inode numbers of files in lower layers have the file system's number in their upper bits (xino). */
    bool above = file >= 0 && look(file, "", AT_EMPTY_PATH, &about) && look(merged_root, "", AT_EMPTY_PATH, &layer) &&
                 about.stx_dev_major == layer.stx_dev_major && about.stx_dev_minor == layer.stx_dev_minor &&
                 about.stx_ino <= UINT32_MAX;
    close_fd(&start);
    close_fd(&file);
    return above;
}

int prepare_link(int listener, const struct seccomp_notif *notice)
{
    static struct names names;
    static char status[4096];
    pid_t process = (pid_t)notice->pid;
    if (config.plain || !read_names(process, &notice->data, &names) || is_above(listener, notice, &names)) return 0;
    int own[2] = {open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), open(".", O_PATH | O_DIRECTORY | O_CLOEXEC)};
    int its[2] = {open_of(process, "%d/root", 0), open_of(process, "%d/cwd", 0)};
    int file = -1;
    read_proc(status, sizeof status, "%d/status", (int)process);
    if (own[0] >= 0 && own[1] >= 0 && its[0] >= 0 && its[1] >= 0 && is_waiting(listener, notice)) {
        if (go_to(its[0], its[1]) && take_rights(status)) file = find_file(process, &names);
        take_own_rights();
        if (!go_to(own[0], own[1])) _exit(125);
    }
    for (int i = 0; i < 2; i++) close_fd(&own[i]), close_fd(&its[i]);
    return file >= 0 ? unite(process, file) : 0;
}
