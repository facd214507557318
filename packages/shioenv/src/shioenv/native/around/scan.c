#define _GNU_SOURCE
#include "scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "protocol.h"
#include "sha256.h"

enum { DEPTH_MAX = 128 };            /* four descriptors per level */
#define BEFORE_TOTAL_MAX (64u << 20) /* bytes read of previous contents; their digests distinguish renamed from new files */
#define HOLES_TOTAL_MAX (64u << 20)  /* zeros in holes: hashed up to this many bytes, then skipped */
#define RECORDS_MAX (32u << 20)      /* maximum bytes of records; further ones are truncated */
/* The highest bits of an overlay inode number identify the layer, with numbers chosen by the overlay. */
#define INODE_BITS 0x00ffffffffffffffull
enum { SIZES = 4096 };               /* bits of a filter for the sizes of the upper layer's files */
#define WHOLE_FILE_MAX (64u << 20)   /* larger files are sparse, and only their data is hashed */

/* A file with several names, which is hashed once. */
struct known { dev_t device; ino_t inode; bool used; uint8_t digest[32]; };

struct scan {
    struct buffer *out;
    char path[DEPTH_MAX * 256 + 256];
    size_t length;
    int depth;
    uint64_t read_before, read_holes;
    bool same_content;
    int upper;
    bool sizes_known;
    uint64_t sizes[SIZES / 64];
    struct known *known;             /* open addressing; `room` is a power of two */
    size_t n_known, room;
    int64_t deadline;                /* in this thread's processor time */
    bool over;
    struct scan_end end;
};

static int64_t processor_time(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Record a failed read (errno), which makes the result unreliable. */
static void fail(struct scan *scan)
{
    if (!scan->end.error) scan->end.error = errno ? errno : EIO;
}

/* Whether to stop, because a read failed or a bound is reached. */
static bool is_over(struct scan *scan)
{
    if (scan->end.error || scan->over) return true;
    if (processor_time() > scan->deadline) scan->over = scan->end.out_of_time = true;
    if (scan->out->length > RECORDS_MAX) scan->over = true;
    scan->end.truncated |= scan->over;
    return scan->over;
}

void buffer_add(struct buffer *buffer, const void *bytes, size_t length)
{
    if (!length) return;  /* the address may be NULL then */
    if (buffer->length + length > buffer->room) {
        buffer->room = (buffer->length + length) * 2;
        buffer->bytes = realloc(buffer->bytes, buffer->room);
        if (!buffer->bytes) abort();
    }
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
}

/* Open a file so that reading it leaves no trace: later lines of a shell can see access times. */
static int open_unseen(int directory, const char *name, int flags)
{
    int fd = openat(directory, name, flags | O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOATIME);
    return fd < 0 && errno == EPERM ? openat(directory, name, flags | O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : fd;
}

static int open_content(int directory, const char *name)
{
    return open_unseen(directory, name, O_NONBLOCK);
}

bool numbers_kept;

/* The inode number in records, by which renames are recognised. For a file of the lower layer (`kind` 'B') it is the file's own,
 * even if another one was stored while it was in an upper layer. */
static uint64_t number_of(char kind, int content, const char *name, const struct stat *entry)
{
    uint64_t number = entry->st_ino;
    int fd = kind == 'A' && numbers_kept && S_ISREG(entry->st_mode) ? open_content(content, name) : -1;
    if (fd < 0) return number;
    if (fgetxattr(fd, NUMBER_BEFORE, &number, sizeof number) != sizeof number) number = entry->st_ino;
    close(fd);
    return number;
}

/* Compute the SHA-256 of a file's content, or of only size and data if its holes are too large. False if the scan ends before
 * that. */
static bool digest_file(struct scan *scan, int directory, const char *name, const struct stat *entry,
                        uint8_t digest[32])
{
    uint64_t size = (uint64_t)entry->st_size, data = (uint64_t)entry->st_blocks * 512;
    uint64_t holes = size > data ? size - data : 0;
    bool whole = size <= WHOLE_FILE_MAX && scan->read_holes + holes <= HOLES_TOTAL_MAX;
    int fd = open_content(directory, name);
    if (fd < 0) {
        fail(scan);
        return false;
    }
    static uint8_t block[1 << 16];
    struct sha256 hash;
    sha256_start(&hash);
    ssize_t n = 0;
    if (whole) {
        scan->read_holes += holes;
        while (!is_over(scan) && (n = read(fd, block, sizeof block)) > 0) sha256_add(&hash, block, (size_t)n);
    } else {
        sha256_add(&hash, &size, sizeof size);
        off_t at = 0, end;
        while ((at = lseek(fd, at, SEEK_DATA)) >= 0 && (end = lseek(fd, at, SEEK_HOLE)) >= 0) {
            sha256_add(&hash, &at, sizeof at);
            for (; at < end; at += n) {
                size_t want = end - at < (off_t)sizeof block ? (size_t)(end - at) : sizeof block;
                if (is_over(scan) || (n = pread(fd, block, want, at)) <= 0) break;
                sha256_add(&hash, block, (size_t)n);
            }
            if (at < end) break;
        }
        if (at < 0 && errno != ENXIO) n = -1;  /* otherwise there is no more data */
    }
    if (n < 0) fail(scan);
    close(fd);
    sha256_end(&hash, digest);
    return !is_over(scan);
}

static void add_u32(struct buffer *out, uint32_t value) { buffer_add(out, &value, sizeof value); }

/* The slot of a file in the table, used or not. */
static struct known *place_of(struct known *known, size_t room, dev_t device, ino_t inode)
{
    size_t at = (inode * 0x9e3779b97f4a7c15u ^ device * 0xc2b2ae3d27d4eb4fu) >> 20 & (room - 1);
    while (known[at].used && (known[at].inode != inode || known[at].device != device)) at = (at + 1) & (room - 1);
    return &known[at];
}

static void make_room(struct scan *scan)
{
    if (scan->n_known * 2 < scan->room) return;
    size_t room = scan->room ? scan->room * 2 : 256;
    struct known *larger = calloc(room, sizeof *larger);
    if (!larger) abort();
    for (size_t at = 0; at < scan->room; at++) {
        const struct known *each = &scan->known[at];
        if (each->used) *place_of(larger, room, each->device, each->inode) = *each;
    }
    free(scan->known);
    scan->known = larger;
    scan->room = room;
}

/* Get the digest of a file, which is read once even if it has several names. Inode numbers are only unique within a layer. */
static bool digest_entry(struct scan *scan, int directory, const char *name, const struct stat *entry,
                         uint8_t digest[32])
{
    if (entry->st_nlink < 2) return digest_file(scan, directory, name, entry, digest);
    make_room(scan);
    struct known *known = place_of(scan->known, scan->room, entry->st_dev, entry->st_ino);
    if (!known->used) {
        if (!digest_file(scan, directory, name, entry, known->digest)) return false;
        known->device = entry->st_dev;
        known->inode = entry->st_ino;
        known->used = true;
        scan->n_known++;
    }
    memcpy(digest, known->digest, 32);
    return true;
}

static int enter(int directory, const char *name)
{
    return open_unseen(directory, name, O_DIRECTORY);
}

static bool dot(const char *name) { return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])); }

static unsigned size_bit(off_t size) { return (unsigned)(((uint64_t)size * 0x9e3779b97f4a7c15u) >> 52); }

/* Open a directory stream, which owns the descriptor. */
static DIR *list_of(struct scan *scan, int directory)
{
    DIR *list = directory < 0 ? NULL : fdopendir(directory);
    if (list) return list;
    fail(scan);
    if (directory >= 0) close(directory);
    return NULL;
}

/* Return the next name in a directory; NULL at its end, and if the scan is over. */
static const char *next_name(struct scan *scan, DIR *list)
{
    if (!list || is_over(scan)) return NULL;
    struct dirent *child;
    do errno = 0, child = readdir(list);
    while (child && dot(child->d_name));
    if (!child && errno) fail(scan);
    return child ? child->d_name : NULL;
}

/* Get the status of a name; false if it does not exist. */
static bool look_at(struct scan *scan, int directory, const char *name, struct stat *entry)
{
    if (!fstatat(directory, name, entry, AT_SYMLINK_NOFOLLOW)) return true;
    if (errno != ENOENT) fail(scan);
    return false;
}

/* Record the size of every file below a directory of the upper layer. */
static void note_sizes(struct scan *scan, int directory, int depth)
{
    DIR *list = list_of(scan, directory);
    const char *name;
    struct stat status;
    while ((name = next_name(scan, list))) {
        if (!look_at(scan, directory, name, &status)) continue;
        unsigned bit = size_bit(status.st_size);
        if (S_ISREG(status.st_mode)) scan->sizes[bit / 64] |= 1ull << bit % 64;
        if (S_ISDIR(status.st_mode) && depth < DEPTH_MAX) note_sizes(scan, enter(directory, name), depth + 1);
    }
    if (list) closedir(list);
}

/* Whether a removed file may have another name now; if not, its digest is not needed. */
static bool may_be_elsewhere(struct scan *scan, off_t size)
{
    if (!scan->sizes_known) note_sizes(scan, enter(scan->upper, "."), 0);
    scan->sizes_known = true;
    unsigned bit = size_bit(size);
    return scan->sizes[bit / 64] >> bit % 64 & 1;
}

/* Append a record. Content is read in the directory `content`. `twin` is the status of this name in the merged tree, if that is
 * known to have different content. */
static void emit(struct scan *scan, char kind, int directory, int content, const char *name, const struct stat *entry,
                 const struct stat *twin)
{
    struct buffer *out = scan->out;
    buffer_add(out, &kind, 1);
    add_u32(out, (uint32_t)scan->length);
    buffer_add(out, scan->path, scan->length);
    struct change change = {
        .mode = entry->st_mode, .uid = entry->st_uid, .gid = entry->st_gid, .links = (uint32_t)entry->st_nlink,
        .size = (uint64_t)entry->st_size, .seconds = entry->st_mtim.tv_sec,
        .nanoseconds = (uint32_t)entry->st_mtim.tv_nsec, .inode = number_of(kind, content, name, entry) & INODE_BITS,
        .major = major(entry->st_rdev), .minor = minor(entry->st_rdev),
    };
    buffer_add(out, &change, sizeof change);
    char target[4096];
    ssize_t target_length = S_ISLNK(entry->st_mode) ? readlinkat(directory, name, target, sizeof target) : 0;
    if (target_length < 0) {
        fail(scan);
        target_length = 0;
    }
    add_u32(out, (uint32_t)target_length);
    buffer_add(out, target, (size_t)target_length);
    uint8_t digest[32], has_digest = 0;
    bool wanted = S_ISREG(entry->st_mode);
    scan->end.linked |= kind == 'A' && wanted && entry->st_nlink > 1;
    if (kind == 'B' && wanted) {
        uint64_t size = (uint64_t)entry->st_size;
        wanted = !twin && may_be_elsewhere(scan, entry->st_size);
        wanted = wanted && (scan->read_before += size) <= BEFORE_TOTAL_MAX;
    }
    if (wanted && !scan->same_content) has_digest = digest_entry(scan, content, name, entry, digest);
    buffer_add(out, &has_digest, 1);
    if (has_digest) buffer_add(out, digest, sizeof digest);
}

/* Append "/name" to the current path; false, and marked as truncated, if it would be too long. */
static bool push(struct scan *scan, const char *name)
{
    size_t length = strlen(name);
    if (scan->depth >= DEPTH_MAX || scan->length + length + 1 > sizeof scan->path) {
        scan->end.truncated = true;
        return false;
    }
    scan->path[scan->length] = '/';
    memcpy(scan->path + scan->length + 1, name, length);
    scan->length += length + 1;
    scan->depth++;
    return true;
}

static void pop(struct scan *scan, size_t length)
{
    scan->length = length;
    scan->depth--;
}

/* Append records of a tree that exists on one side only; `content` is the directory for reading the files' content. */
static void emit_tree(struct scan *scan, char kind, int directory, int content, const char *name,
                      const struct stat *entry, const struct stat *twin)
{
    size_t length = scan->length;
    if (is_over(scan) || !push(scan, name)) return;
    emit(scan, kind, directory, content, name, entry, twin);
    if (S_ISDIR(entry->st_mode)) {
        int fd = enter(directory, name), inside = content == directory ? fd : enter(content, name);
        if (inside < 0) fail(scan);
        DIR *list = list_of(scan, fd);
        const char *child;
        struct stat status;
        while ((child = next_name(scan, list)))
            if (look_at(scan, fd, child, &status)) emit_tree(scan, kind, fd, inside, child, &status, NULL);
        if (inside >= 0 && inside != fd) close(inside);
        if (list) closedir(list);
    }
    pop(scan, length);
}

static bool is_opaque(int directory)
{
    char value;
    return fgetxattr(directory, "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

/* Whether a regular file has unchanged content, with only attributes changed; its times may have been reset. */
static bool is_same_content(struct scan *scan, int lower, int upper, const char *name, const struct stat *before,
                            const struct stat *after)
{
    if (!S_ISREG(before->st_mode) || !S_ISREG(after->st_mode) || before->st_size != after->st_size) return false;
    static char ours[1 << 16], theirs[1 << 16];
    int a = open_content(lower, name), b = open_content(upper, name);
    ssize_t n = -1, m = -1;
    if (a >= 0 && b >= 0)
        while (!is_over(scan) && (n = read(a, ours, sizeof ours)) > 0)
            if ((m = read(b, theirs, sizeof theirs)) != n || memcmp(ours, theirs, (size_t)n)) break;
    if (n < 0 || (n > 0 && m < 0)) fail(scan);
    if (a >= 0) close(a);
    if (b >= 0) close(b);
    return n == 0;
}

static void compare(struct scan *scan, int lower, int upper, int merged);

static void compare_entry(struct scan *scan, int lower, int upper, int merged, const char *name)
{
    struct stat before, after;
    bool was = look_at(scan, lower, name, &before);
    bool is = look_at(scan, merged, name, &after);
    bool both_directories = was && is && S_ISDIR(before.st_mode) && S_ISDIR(after.st_mode);
    int inside = both_directories ? enter(upper, name) : -1;
    if (both_directories && inside < 0) fail(scan);
    if (is_over(scan)) {
        if (inside >= 0) close(inside);
        return;
    }
    if (!both_directories || is_opaque(inside)) {
        size_t start = scan->out->length;
        scan->same_content = was && is && is_same_content(scan, lower, upper, name, &before, &after);
        if (was) emit_tree(scan, 'B', lower, lower, name, &before, is ? &after : NULL);
        if (is) emit_tree(scan, 'A', merged, upper, name, &after, NULL);
        scan->same_content = false;
        if (was && is && is_over(scan)) scan->out->length = start;  /* one of the two records would mean that it was removed */
        if (inside >= 0) close(inside);
        return;
    }
    size_t length = scan->length;
    if (push(scan, name)) {
        emit(scan, 'B', lower, lower, name, &before, NULL);
        emit(scan, 'A', merged, upper, name, &after, NULL);
        int inside_lower = enter(lower, name), inside_merged = enter(merged, name);
        if (inside_lower < 0 || inside_merged < 0) fail(scan);
        compare(scan, inside_lower, inside, inside_merged);
        if (inside_lower >= 0) close(inside_lower);
        if (inside_merged >= 0) close(inside_merged);
        pop(scan, length);
    }
    close(inside);
}

/* Compare the names in the upper layer, which contains everything that a run changed. */
static void compare(struct scan *scan, int lower, int upper, int merged)
{
    DIR *list = list_of(scan, enter(upper, "."));
    const char *name;
    while ((name = next_name(scan, list))) compare_entry(scan, lower, upper, merged, name);
    if (list) closedir(list);
}

struct scan_end scan_changes(int lower, int upper, int merged, uint32_t processor_ms, struct buffer *out)
{
    static struct scan scan;
    memset(&scan, 0, sizeof scan);
    scan.out = out;
    scan.upper = upper;
    scan.deadline = processor_time() + processor_ms * 1000000ll;
    struct stat before, after;
    if (fstat(lower, &before) || fstat(merged, &after)) fail(&scan);
    else {
        scan.path[scan.length++] = '/';
        emit(&scan, 'B', lower, lower, ".", &before, NULL);
        emit(&scan, 'A', merged, upper, ".", &after, NULL);
        scan.length = 0;
    }
    compare(&scan, lower, upper, merged);
    free(scan.known);
    return scan.end;
}
