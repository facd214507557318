#define _GNU_SOURCE
#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common.h"
#include "../library/devices.h"
#include "sha256.h"

#define BLOCK 4096  /* bytes of a block of tmpfs */

struct name { uint64_t order; char text[NAME_MAX + 1]; };

/* A file with several names: its identity in the source, and its path in the copy. */
struct linked { dev_t device; ino_t inode; char *path; };

static struct {
    int top;                  /* the destination directory */
    struct timespec instant;
    bool whole;
    struct linked *linked;
    size_t n_linked;
    char path[PATH_MAX];      /* current path from the top: "/etc/passwd" */
    char left_below[PATH_MAX];
} filling;

uint64_t filled_sum;

static int in_order(const void *a, const void *b)
{
    const struct name *left = a, *right = b;
    if (left->order != right->order) return left->order < right->order ? -1 : 1;
    return strcmp(left->text, right->text);
}

/* List the entries of a directory in a pseudo-random order that depends only on their names, similar to ext4. A tmpfs lists the
 * newest entry first. */
static size_t list_names(int directory, struct name **names)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) die("read %s of the system", filling.path);
    size_t n = 0, room = 0;
    struct dirent *entry;
    *names = NULL;
    while ((errno = 0, entry = readdir(list))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (n == room) *names = realloc(*names, (room = 2 * room + 16) * sizeof **names);
        if (!*names) die("list %s of the system", filling.path);
        struct name *name = &(*names)[n++];
        uint8_t digest[32];
        struct sha256 hash;
        sha256_start(&hash);
        sha256_add(&hash, entry->d_name, strlen(entry->d_name));
        sha256_end(&hash, digest);
        memcpy(&name->order, digest, sizeof name->order);
        strcpy(name->text, entry->d_name);
    }
    if (errno) die("read %s of the system", filling.path);
    closedir(list);
    if (n) qsort(*names, n, sizeof **names, in_order);
    return n;
}

/* If another name of the file was copied before, link this one to it and return true. */
static bool link_to_known(const struct stat *status, int to, const char *name)
{
    for (size_t i = 0; i < filling.n_linked; i++) {
        const struct linked *known = &filling.linked[i];
        if (known->inode != status->st_ino || known->device != status->st_dev) continue;
        CHECK(linkat(filling.top, known->path, to, name, 0), "link %s", filling.path);
        return true;
    }
    filling.linked = realloc(filling.linked, (filling.n_linked + 1) * sizeof *filling.linked);
    char *path = strdup(filling.path + 1);
    if (!filling.linked || !path) die("remember %s", filling.path);
    filling.linked[filling.n_linked++] = (struct linked){status->st_dev, status->st_ino, path};
    return false;
}

/* Copy data and holes of a file. */
static void copy_data(int in, int out, const char *path)
{
    static char bytes[1 << 17];
    off_t at = 0, end;
    while ((at = lseek(in, at, SEEK_DATA)) >= 0 && (end = lseek(in, at, SEEK_HOLE)) >= 0)
        for (ssize_t n; at < end; at += n) {
            size_t wanted = end - at < (off_t)sizeof bytes ? (size_t)(end - at) : sizeof bytes;
            n = pread(in, bytes, wanted, at);
            if (n <= 0 || pwrite(out, bytes, (size_t)n, at) != n) die("copy %s of the system", path);
        }
}

/* Whether to copy the data of a file because its disk usage does not match its size (holes, or compression on the host). Otherwise
 * the overlay would show that disk usage once the file was read. */
static bool is_copied(const struct stat *status)
{
    off_t blocks = (status->st_size + BLOCK - 1) / BLOCK * (BLOCK / 512);
    return filling.whole || status->st_blocks != blocks;
}

/* A created regular file to be finished: the source of its data, if copied, and its attributes. */
struct unfinished { int fd, source; struct stat status; char *path; };

static void finish_file(const struct unfinished *file)
{
    const struct stat *status = &file->status;
    int fd = file->fd;
    if (file->source >= 0) {
        copy_data(file->source, fd, file->path);
        close(file->source);
    } else {
        CHECK(fsetxattr(fd, "user.overlay.metacopy", "", 0, 0), "mark %s (overlay)", file->path);
        CHECK(fsetxattr(fd, "user.overlay.redirect", file->path, strlen(file->path), 0),
              "direct %s (overlay)", file->path);
    }
    CHECK(ftruncate(fd, status->st_size), "size %s", file->path);
    bool owned = status->st_uid || status->st_gid;
    if (owned) CHECK(fchown(fd, status->st_uid, status->st_gid), "chown %s", file->path);
    if (owned || status->st_mode & 07000) CHECK(fchmod(fd, status->st_mode & 07777), "chmod %s", file->path);
    struct timespec read = filling.instant;
    if (!strcmp(file->path, "/dev/kmsg")) read.tv_nsec = KERNEL_LOG_MARK;
    CHECK(futimens(fd, (struct timespec[]){read, status->st_mtim}), "date %s", file->path);
    close(fd);
    free(file->path);
}

/* A second thread finishes files while the first one creates the next, because opening a sandbox waits for thousands of files. Only
 * the first thread does what depends on an order: inode numbers and directory entries. Each thread waits for many files at a time,
 * since waking a thread takes longer than finishing a file. */
enum { MOST_UNFINISHED = 256, WORTH_WAKING = 64 };
static struct {
    pthread_t thread;
    bool helps, last;
    pthread_mutex_t lock;
    pthread_cond_t more, room;
    unsigned made, finished;
    struct unfinished files[MOST_UNFINISHED];
} second = {.lock = PTHREAD_MUTEX_INITIALIZER, .more = PTHREAD_COND_INITIALIZER, .room = PTHREAD_COND_INITIALIZER};

static void *finish_files(void *unused)
{
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&second.lock);
        while (second.made - second.finished < WORTH_WAKING && !second.last)
            pthread_cond_wait(&second.more, &second.lock);
        unsigned until = second.made;
        pthread_mutex_unlock(&second.lock);
        if (until == second.finished) return NULL;
        for (unsigned at = second.finished; at != until; at++) finish_file(&second.files[at % MOST_UNFINISHED]);
        pthread_mutex_lock(&second.lock);
        second.finished = until;
        pthread_cond_signal(&second.room);
        pthread_mutex_unlock(&second.lock);
    }
}

static void start_second(void)
{
    /* makes the kernel enlarge the descriptor table now; once threads share it, that waits for all processors */
    int far = fcntl(filling.top, F_DUPFD_CLOEXEC, 2 * MOST_UNFINISHED);
    if (far >= 0) close(far);
    second.last = false;
    second.helps = !pthread_create(&second.thread, NULL, finish_files, NULL);
}

static void finish_later(struct unfinished file)
{
    if (!second.helps) {
        finish_file(&file);
        return;
    }
    pthread_mutex_lock(&second.lock);
    while (second.made - second.finished == MOST_UNFINISHED) pthread_cond_wait(&second.room, &second.lock);
    second.files[second.made++ % MOST_UNFINISHED] = file;
    if (second.made - second.finished == WORTH_WAKING) pthread_cond_signal(&second.more);
    pthread_mutex_unlock(&second.lock);
}

static void end_second(void)
{
    if (!second.helps) return;
    pthread_mutex_lock(&second.lock);
    second.last = true;
    pthread_cond_signal(&second.more);
    pthread_mutex_unlock(&second.lock);
    pthread_join(second.thread, NULL);
}

static void fill_file(int from, int to, const char *name, const struct stat *status)
{
    if (status->st_nlink > 1 && link_to_known(status, to, name)) return;
    struct unfinished file = {
        .fd = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, status->st_mode & 0777),
        .source = -1, .status = *status, .path = strdup(filling.path),
    };
    CHECK(file.fd, "create %s", filling.path);
    if (!file.path) die("remember %s", filling.path);
    if (is_copied(status)) {
        file.source = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        CHECK(file.source, "open %s of the system", filling.path);
    } else strcpy(filling.left_below, filling.path);
    finish_later(file);
}

/* Create a socket in place of a link that describes a device (system/image.py), because device nodes cannot be created here.
 * Opening a socket fails like opening a device without a driver (ENXIO). Programs see a device, because the library
 * (library/answers.c) reads its numbers from unused attributes. */
static bool fill_device(int to, const char *name, const char *target, const struct stat *status)
{
    char kind;
    unsigned major, minor, mode;
    if (sscanf(target, "device: %c %u %u %o", &kind, &major, &minor, &mode) != 4) return false;
    CHECK(mknodat(to, name, S_IFSOCK, 0), "create %s", filling.path);
    CHECK(fchmodat(to, name, mode & 0777, 0), "chmod %s", filling.path);
    CHECK(fchownat(to, name, status->st_uid, status->st_gid, AT_SYMLINK_NOFOLLOW), "chown %s", filling.path);
    struct timespec read = filling.instant;
    if (kind != 's') read.tv_nsec = DEVICE_MARK(kind == 'b', major, minor);
    CHECK(utimensat(to, name, (struct timespec[]){read, status->st_mtim}, AT_SYMLINK_NOFOLLOW), "date %s", filling.path);
    return true;
}

static void fill_other(int from, int to, const char *name, const struct stat *status)
{
    if (S_ISLNK(status->st_mode)) {
        char target[PATH_MAX];
        ssize_t length = readlinkat(from, name, target, sizeof target - 1);
        CHECK(length, "read the link %s of the system", filling.path);
        target[length] = 0;
        if (fill_device(to, name, target, status)) return;
        CHECK(symlinkat(target, to, name), "link %s", filling.path);
    } else {
        CHECK(mknodat(to, name, status->st_mode & S_IFMT, 0), "create %s", filling.path);
        CHECK(fchmodat(to, name, status->st_mode & 07777, 0), "chmod %s", filling.path);
    }
    if (status->st_uid || status->st_gid)
        CHECK(fchownat(to, name, status->st_uid, status->st_gid, AT_SYMLINK_NOFOLLOW), "chown %s", filling.path);
    CHECK(utimensat(to, name, (struct timespec[]){filling.instant, status->st_mtim}, AT_SYMLINK_NOFOLLOW),
          "date %s", filling.path);
}

/* Set the attributes of a directory; done last, because creating entries changes its times. */
static void finish_directory(int directory, const struct stat *status)
{
    CHECK(fchown(directory, status->st_uid, status->st_gid), "chown %s", filling.path);
    CHECK(fchmod(directory, status->st_mode & 07777), "chmod %s", filling.path);
    CHECK(futimens(directory, (struct timespec[]){filling.instant, status->st_mtim}), "date %s", filling.path);
}

/* Add the current file to the tree's checksum: the sum, in any order, of the first eight bytes of a hash of each path and its
 * attributes. `tree_sum` of system/contents.py computes the same for the built tree. */
static void add_to_sum(const struct stat *status)
{
    const struct __attribute__((packed)) { uint32_t mode, uid, gid, nanoseconds; int64_t size, seconds; } attributes = {
        status->st_mode, status->st_uid, status->st_gid, (uint32_t)status->st_mtim.tv_nsec,
        S_ISDIR(status->st_mode) ? 0 : status->st_size, status->st_mtim.tv_sec,
    };
    uint8_t digest[32];
    uint64_t first;
    struct sha256 hash;
    sha256_start(&hash);
    sha256_add(&hash, filling.path, strlen(filling.path) + 1);
    sha256_add(&hash, &attributes, sizeof attributes);
    sha256_end(&hash, digest);
    memcpy(&first, digest, sizeof first);
    filled_sum += first;
}

static void fill_directory(int from, int to, bool (*wanted)(const char *name))
{
    struct name *names;
    size_t n = list_names(from, &names), length = strlen(filling.path);
    for (size_t i = 0; i < n; i++) {
        const char *name = names[i].text;
        if (wanted && !wanted(name)) continue;
        if (length + strlen(name) + 2 > sizeof filling.path) { errno = ENAMETOOLONG; die("fill %s", filling.path); }
        sprintf(filling.path + length, "/%s", name);
        struct stat status;
        CHECK(fstatat(from, name, &status, AT_SYMLINK_NOFOLLOW), "look at %s of the system", filling.path);
        add_to_sum(&status);
        /* a device is mounted over it; the directory entry must not look like that of a regular file */
        if (S_ISREG(status.st_mode) && !status.st_size && !strncmp(filling.path, "/dev/", 5))
            status.st_mode = S_IFSOCK | (status.st_mode & 0777);
        if (S_ISDIR(status.st_mode)) {
            CHECK(mkdirat(to, name, 0700), "create %s", filling.path);
            int inner_from = openat(from, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            int inner_to = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (inner_from < 0 || inner_to < 0) die("open %s of the system", filling.path);
            fill_directory(inner_from, inner_to, NULL);
            /* an opaque top hides the entries of lower layers */
            if (filling.whole && !length)
                CHECK(fsetxattr(inner_to, "user.overlay.opaque", "y", 1, 0), "mark %s (opaque)", filling.path);
            finish_directory(inner_to, &status);
            close(inner_from);
            close(inner_to);
        } else if (S_ISREG(status.st_mode)) fill_file(from, to, name, &status);
        else fill_other(from, to, name, &status);
        filling.path[length] = 0;
    }
    free(names);
}

static int open_directory(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fd, "open %s", path);
    return fd;
}

const char *fill_tree(const char *from, const char *to, const struct timespec *instant, bool whole,
                      bool (*wanted)(const char *name))
{
    int source = open_directory(from);
    struct stat status;
    CHECK(fstat(source, &status), "look at %s", from);
    filling.top = open_directory(to);
    filling.instant = *instant;
    filling.whole = whole;
    filled_sum = 0;
    umask(0);
    start_second();
    fill_directory(source, filling.top, wanted);
    end_second();
    finish_directory(filling.top, &status);
    umask(022);
    close(source);
    close(filling.top);
    return filling.left_below;
}

void fill_names(const char *from, const char *to)
{
    int source = open_directory(from), target = open_directory(to);
    struct name *names;
    size_t n = list_names(source, &names);
    for (size_t i = 0; i < n; i++) {
        int fd = openat(target, names[i].text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        CHECK(fd, "create %s", names[i].text);
        close(fd);
    }
    free(names);
    close(source);
    close(target);
}
