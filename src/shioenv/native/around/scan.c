#define _GNU_SOURCE
#include "scan.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "protocol.h"
#include "sha256.h"

enum { DEPTH_MAX = 128 };            /* three descriptors per level */
#define BEFORE_TOTAL_MAX (64u << 20) /* bytes read of what was there before: digests tell renamed from new */
#define HOLES_TOTAL_MAX (64u << 20)  /* zeros that no disk holds: hashed up to here, then left out */
#define RECORDS_MAX (32u << 20)      /* bytes of records: what is past them is truncated */
enum { SIZES = 4096 };               /* bits that tell which sizes the upper layer's files have */
enum { REMEMBERED = 256 };           /* files with several names, hashed once */
#define WHOLE_FILE_MAX (64u << 20)   /* larger files are sparse: only their data is hashed */

struct scan {
    struct buffer *out;
    uint64_t mark;
    char path[DEPTH_MAX * 256 + 256];
    size_t length;
    int depth;
    uint64_t read_before, read_holes;
    bool truncated, same_content;
    int upper;
    bool sizes_known;
    uint64_t sizes[SIZES / 64];
    struct { uint64_t inode; uint8_t digest[32]; } remembered[REMEMBERED];
};

void buffer_add(struct buffer *buffer, const void *bytes, size_t length)
{
    if (buffer->length + length > buffer->room) {
        buffer->room = (buffer->length + length) * 2;
        buffer->bytes = realloc(buffer->bytes, buffer->room);
        if (!buffer->bytes) abort();
    }
    memcpy(buffer->bytes + buffer->length, bytes, length);
    buffer->length += length;
}

/* SHA-256 of a file's content; of a file with too large holes, of its size and data alone. */
static bool digest_file(struct scan *scan, int directory, const char *name, const struct stat *entry,
                        uint8_t digest[32])
{
    uint64_t size = (uint64_t)entry->st_size, data = (uint64_t)entry->st_blocks * 512;
    uint64_t holes = size > data ? size - data : 0;
    bool whole = size <= WHOLE_FILE_MAX && scan->read_holes + holes <= HOLES_TOTAL_MAX;
    int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    static uint8_t block[1 << 16];
    struct sha256 hash;
    sha256_start(&hash);
    ssize_t n;
    if (whole) {
        scan->read_holes += holes;
        while ((n = read(fd, block, sizeof block)) > 0) sha256_add(&hash, block, (size_t)n);
    } else {
        sha256_add(&hash, &size, sizeof size);
        off_t at = 0, end;
        while ((at = lseek(fd, at, SEEK_DATA)) >= 0 && (end = lseek(fd, at, SEEK_HOLE)) >= 0) {
            sha256_add(&hash, &at, sizeof at);
            for (; at < end; at += n) {
                size_t want = end - at < (off_t)sizeof block ? (size_t)(end - at) : sizeof block;
                if ((n = pread(fd, block, want, at)) <= 0) break;
                sha256_add(&hash, block, (size_t)n);
            }
            if (at < end) break;
        }
    }
    close(fd);
    sha256_end(&hash, digest);
    return true;
}

static void add_u32(struct buffer *out, uint32_t value) { buffer_add(out, &value, sizeof value); }

static bool digest_entry(struct scan *scan, int directory, const char *name, const struct stat *entry,
                         uint8_t digest[32])
{
    size_t slot = entry->st_ino % REMEMBERED;
    bool shared = entry->st_nlink > 1;
    if (shared && scan->remembered[slot].inode == entry->st_ino) {
        memcpy(digest, scan->remembered[slot].digest, 32);
        return true;
    }
    if (!digest_file(scan, directory, name, entry, digest)) return false;
    if (shared) {
        scan->remembered[slot].inode = entry->st_ino;
        memcpy(scan->remembered[slot].digest, digest, 32);
    }
    return true;
}

static int enter(int directory, const char *name)
{
    return openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

static bool dot(const char *name) { return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2])); }

static unsigned size_bit(off_t size) { return (unsigned)(((uint64_t)size * 0x9e3779b97f4a7c15u) >> 52); }

/* Notes the size of every file below a directory of the upper layer. */
static void note_sizes(struct scan *scan, int directory, int depth)
{
    DIR *list = directory < 0 ? NULL : fdopendir(directory);
    struct dirent *child;
    struct stat status;
    while (list && (child = readdir(list))) {
        if (dot(child->d_name) || fstatat(directory, child->d_name, &status, AT_SYMLINK_NOFOLLOW)) continue;
        unsigned bit = size_bit(status.st_size);
        if (S_ISREG(status.st_mode)) scan->sizes[bit / 64] |= 1ull << bit % 64;
        if (S_ISDIR(status.st_mode) && depth < DEPTH_MAX) note_sizes(scan, enter(directory, child->d_name), depth + 1);
    }
    if (list) closedir(list);
}

/* Whether a removed file may be found again under another name: if not, nobody asks what it held. */
static bool may_be_elsewhere(struct scan *scan, off_t size)
{
    if (!scan->sizes_known) note_sizes(scan, enter(scan->upper, "."), 0);
    scan->sizes_known = true;
    unsigned bit = size_bit(size);
    return scan->sizes[bit / 64] >> bit % 64 & 1;
}

/* `twin` is what the merged tree has by this name, where that is known to hold something else. */
static void emit(struct scan *scan, char kind, int directory, const char *name, const struct stat *entry,
                 const struct stat *twin)
{
    struct buffer *out = scan->out;
    if (out->length > RECORDS_MAX) {
        scan->truncated = true;
        return;
    }
    buffer_add(out, &kind, 1);
    add_u32(out, (uint32_t)scan->length);
    buffer_add(out, scan->path, scan->length);
    struct change change = {
        .mode = entry->st_mode, .uid = entry->st_uid, .gid = entry->st_gid, .links = (uint32_t)entry->st_nlink,
        .size = (uint64_t)entry->st_size, .seconds = entry->st_mtim.tv_sec,
        .nanoseconds = (uint32_t)entry->st_mtim.tv_nsec, .inode = entry->st_ino ^ (kind == 'B' ? scan->mark : 0),
        .major = major(entry->st_rdev), .minor = minor(entry->st_rdev),
    };
    buffer_add(out, &change, sizeof change);
    char target[4096];
    ssize_t target_length = S_ISLNK(entry->st_mode) ? readlinkat(directory, name, target, sizeof target) : 0;
    if (target_length < 0) target_length = 0;
    add_u32(out, (uint32_t)target_length);
    buffer_add(out, target, (size_t)target_length);
    uint8_t digest[32], has_digest = 0;
    bool wanted = S_ISREG(entry->st_mode);
    if (kind == 'B' && wanted) {
        uint64_t size = (uint64_t)entry->st_size;
        wanted = !twin && may_be_elsewhere(scan, entry->st_size);
        wanted = wanted && (scan->read_before += size) <= BEFORE_TOTAL_MAX;
    }
    if (wanted && !scan->same_content) has_digest = digest_entry(scan, directory, name, entry, digest);
    buffer_add(out, &has_digest, 1);
    if (has_digest) buffer_add(out, digest, sizeof digest);
}

/* Appends "/name" to the current path; false (and marked truncated) where it would be too long. */
static bool push(struct scan *scan, const char *name)
{
    size_t length = strlen(name);
    if (scan->depth >= DEPTH_MAX || scan->length + length + 1 > sizeof scan->path) {
        scan->truncated = true;
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

/* A whole tree that exists on one side only. */
static void emit_tree(struct scan *scan, char kind, int directory, const char *name, const struct stat *entry,
                      const struct stat *twin)
{
    size_t length = scan->length;
    if (!push(scan, name)) return;
    emit(scan, kind, directory, name, entry, twin);
    int fd = S_ISDIR(entry->st_mode) ? enter(directory, name) : -1;
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *child;
    struct stat status;
    while (list && (child = readdir(list)))
        if (!dot(child->d_name) && !fstatat(fd, child->d_name, &status, AT_SYMLINK_NOFOLLOW))
            emit_tree(scan, kind, fd, child->d_name, &status, NULL);
    if (list) closedir(list);
    pop(scan, length);
}

static bool is_opaque(int directory)
{
    char value;
    return fgetxattr(directory, "user.overlay.opaque", &value, 1) == 1 && value == 'y';
}

/* Whether both are one regular file of which only attributes changed: programs may have set its times back. */
static bool is_same_content(int lower, int merged, const char *name, const struct stat *before, const struct stat *after)
{
    if (!S_ISREG(before->st_mode) || !S_ISREG(after->st_mode) || before->st_size != after->st_size) return false;
    static char ours[1 << 16], theirs[1 << 16];
    int flags = O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, a = openat(lower, name, flags), b = openat(merged, name, flags);
    ssize_t n = -1, m = -1;
    if (a >= 0 && b >= 0)
        while ((n = read(a, ours, sizeof ours)) > 0)
            if ((m = read(b, theirs, sizeof theirs)) != n || memcmp(ours, theirs, (size_t)n)) break;
    if (a >= 0) close(a);
    if (b >= 0) close(b);
    return n == 0;
}

static void compare(struct scan *scan, int lower, int upper, int merged);

static void compare_entry(struct scan *scan, int lower, int upper, int merged, const char *name)
{
    struct stat in_upper, before, after;
    if (fstatat(upper, name, &in_upper, AT_SYMLINK_NOFOLLOW)) return;
    bool was = !fstatat(lower, name, &before, AT_SYMLINK_NOFOLLOW);
    bool is = !fstatat(merged, name, &after, AT_SYMLINK_NOFOLLOW);
    bool both_directories = was && is && S_ISDIR(before.st_mode) && S_ISDIR(after.st_mode);
    int inside = both_directories ? enter(upper, name) : -1;
    if (inside < 0 || is_opaque(inside)) {
        scan->same_content = was && is && is_same_content(lower, merged, name, &before, &after);
        if (was) emit_tree(scan, 'B', lower, name, &before, is ? &after : NULL);
        if (is) emit_tree(scan, 'A', merged, name, &after, NULL);
        scan->same_content = false;
        if (inside >= 0) close(inside);
        return;
    }
    size_t length = scan->length;
    if (push(scan, name)) {
        emit(scan, 'B', lower, name, &before, NULL);
        emit(scan, 'A', merged, name, &after, NULL);
        int inside_lower = enter(lower, name), inside_merged = enter(merged, name);
        compare(scan, inside_lower, inside, inside_merged);
        if (inside_lower >= 0) close(inside_lower);
        if (inside_merged >= 0) close(inside_merged);
        pop(scan, length);
    }
    close(inside);
}

/* Only names that exist in the upper layer can differ: it holds everything a run touched. */
static void compare(struct scan *scan, int lower, int upper, int merged)
{
    int fd = enter(upper, ".");
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *child;
    while (list && (child = readdir(list)))
        if (!dot(child->d_name)) compare_entry(scan, lower, upper, merged, child->d_name);
    if (list) closedir(list);
}

bool scan_changes(int lower, int upper, int merged, uint64_t mark, struct buffer *out)
{
    static struct scan scan;
    memset(&scan, 0, sizeof scan);
    scan.out = out;
    scan.mark = mark;
    scan.upper = upper;
    struct stat before, after;
    if (!fstat(lower, &before) && !fstat(merged, &after)) {
        scan.path[scan.length++] = '/';
        emit(&scan, 'B', lower, ".", &before, NULL);
        emit(&scan, 'A', merged, ".", &after, NULL);
        scan.length = 0;
    }
    compare(&scan, lower, upper, merged);
    return scan.truncated;
}
