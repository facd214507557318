#define _GNU_SOURCE
#include "layer_copy.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common.h"

enum { MOST_NAMES = 1024, MOST_BYTES = 4 << 20, MOST_GAP = 8192, MOST_DEPTH = 64, MOST_ATTRIBUTES = 4096 };

/* A name in a directory. The name follows, then attributes, and the content: a link's target, or pieces of a file. */
struct record {
    uint64_t number, parent;  /* inode numbers; a parent of 0 is the layer's root */
    uint64_t size, device;
    struct timespec modified;
    uint32_t mode, uid, gid, links;
    uint32_t name_length, attributes_length, content_length, padding;
};
struct piece { uint64_t offset, length; };
struct attribute { uint32_t name_length, length; };

static bool is_whiteout(const struct record *record) { return S_ISCHR(record->mode) && !record->device; }

/* ---- copying ------------------------------------------------------------------------------------- */

static unsigned n_names;

static bool copy_attributes(int fd, struct buffer *out)
{
    static char names[MOST_ATTRIBUTES], value[MOST_ATTRIBUTES];
    ssize_t length = flistxattr(fd, names, sizeof names);
    if (length < 0) return false;
    for (const char *name = names; name < names + length; name += strlen(name) + 1) {
        if (strncmp(name, "user.", 5) && strncmp(name, "system.posix_acl_", 17)) return false;
        ssize_t size = fgetxattr(fd, name, value, sizeof value);
        if (size < 0) return false;
        struct attribute attribute = {(uint32_t)strlen(name) + 1, (uint32_t)size};
        buffer_add(out, &attribute, sizeof attribute);
        buffer_add(out, name, attribute.name_length);
        buffer_add(out, value, attribute.length);
    }
    return true;
}

static bool copy_content(int fd, off_t size, struct buffer *out)
{
    static uint8_t bytes[1 << 16];
    for (off_t at = 0; at < size;) {
        off_t from = lseek(fd, at, SEEK_DATA), to = from < 0 ? -1 : lseek(fd, from, SEEK_HOLE);
        if (from < 0 && errno == ENXIO) return true;
        if (to < 0 || (uint64_t)(to - from) + out->length > MOST_BYTES) return false;
        struct piece piece = {(uint64_t)from, (uint64_t)(to - from)};
        buffer_add(out, &piece, sizeof piece);
        for (off_t done = from; done < to;) {
            size_t most = to - done < (off_t)sizeof bytes ? (size_t)(to - done) : sizeof bytes;
            ssize_t n = pread(fd, bytes, most, done);
            if (n <= 0) return false;
            buffer_add(out, bytes, (size_t)n);
            done += n;
        }
        at = to;
    }
    return true;
}

static bool copy_directory(int fd, uint64_t parent, struct layer_copy *copy, unsigned depth);

static bool copy_name(int directory, uint64_t parent, const char *name, struct layer_copy *copy, unsigned depth)
{
    struct stat status;
    if (++n_names > MOST_NAMES || fstatat(directory, name, &status, AT_SYMLINK_NOFOLLOW)) return false;
    bool has_content = S_ISREG(status.st_mode), opens = has_content || S_ISDIR(status.st_mode);
    int fd = opens ? openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC) : -1;
    if (opens && fd < 0) return false;
    bool copied = !S_ISDIR(status.st_mode) || copy_directory(fd, status.st_ino, copy, depth + 1);
    struct buffer *out = &copy->bytes;
    size_t start = out->length;
    struct record record = {
        .number = status.st_ino, .parent = parent, .size = S_ISDIR(status.st_mode) ? 0 : (uint64_t)status.st_size,
        .device = status.st_rdev, .modified = status.st_mtim,
        .mode = status.st_mode, .uid = status.st_uid, .gid = status.st_gid,
        .links = S_ISDIR(status.st_mode) ? 1 : (uint32_t)status.st_nlink, .name_length = (uint32_t)strlen(name) + 1,
    };
    if (is_whiteout(&record)) record.number = 0, record.links = 1;  /* overlays have one inode for all */
    buffer_add(out, &record, sizeof record);
    buffer_add(out, name, record.name_length);
    size_t at = out->length;
    copied = copied && (fd < 0 || copy_attributes(fd, out));
    record.attributes_length = (uint32_t)(out->length - at);
    at = out->length;
    char target[PATH_MAX];
    ssize_t length = S_ISLNK(status.st_mode) ? readlinkat(directory, name, target, sizeof target) : 0;
    if (length < 0 || length == sizeof target) copied = false;
    else buffer_add(out, target, (size_t)length);
    copied = copied && (!has_content || copy_content(fd, status.st_size, out));
    record.content_length = (uint32_t)(out->length - at);
    memcpy(out->bytes + start, &record, sizeof record);
    buffer_add(&copy->read_times, &status.st_atim, sizeof status.st_atim);
    close_fd(&fd);
    return copied && out->length <= MOST_BYTES;
}

/* Copy the names in a directory, the last one first: a file system in memory lists the newest name first. */
static bool copy_directory(int fd, uint64_t parent, struct layer_copy *copy, unsigned depth)
{
    int own = depth > MOST_DEPTH ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC);
    DIR *list = own < 0 ? NULL : fdopendir(own);
    if (!list) {
        close_fd(&own);
        return false;
    }
    char *names[MOST_NAMES];
    unsigned count = 0;
    bool copied = true;
    for (struct dirent *entry; copied && (entry = readdir(list));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        copied = count < MOST_NAMES && (names[count] = strdup(entry->d_name));
        count += copied;
    }
    closedir(list);
    while (count) {
        copied = copied && copy_name(fd, parent, names[--count], copy, depth);
        if (!copied) while (count) free(names[--count]);
        else free(names[count]);
    }
    return copied;
}

bool copy_layer(int upper, struct layer_copy *copy)
{
    copy->bytes.length = copy->read_times.length = 0;
    copy->numbers_kept = numbers_kept;
    n_names = 0;
    static const struct attribute none;
    if (fstat(upper, &copy->root) || !copy_attributes(upper, &copy->bytes)) return false;
    buffer_add(&copy->bytes, &none, sizeof none);
    return copy_directory(upper, 0, copy, 0);
}

bool is_layer_of(int upper, const struct layer_copy *copy)
{
    static struct layer_copy now;
    return copy_layer(upper, &now) && now.bytes.length == copy->bytes.length &&
           !memcmp(now.bytes.bytes, copy->bytes.bytes, now.bytes.length) && now.root.st_mode == copy->root.st_mode &&
           now.root.st_uid == copy->root.st_uid && now.root.st_gid == copy->root.st_gid &&
           !memcmp(&now.root.st_mtim, &copy->root.st_mtim, sizeof now.root.st_mtim);
}

void forget_layer(struct layer_copy *copy)
{
    free(copy->bytes.bytes);
    free(copy->read_times.bytes);
    *copy = (struct layer_copy){0};
}

/* ---- creating ------------------------------------------------------------------------------------ */

struct parsed { struct record record; const uint8_t *name, *attributes, *content; struct timespec read; };

static int by_number(const void *one, const void *other)
{
    const struct parsed *const *a = one, *const *b = other;
    uint64_t x = (*a)->record.number - 1, y = (*b)->record.number - 1;  /* those without a number last */
    return x < y ? -1 : x > y;
}

static const char *staged(uint64_t number)
{
    static char name[32];
    snprintf(name, sizeof name, "%llu", (unsigned long long)number);
    return name;
}

static void set_attributes(int fd, const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        struct attribute attribute;
        memcpy(&attribute, at, sizeof attribute);
        at += sizeof attribute;
        CHECK(fsetxattr(fd, (const char *)at, at + attribute.name_length, attribute.length, 0), "set %s", (const char *)at);
        at += attribute.name_length + attribute.length;
    }
}

static void write_content(int fd, const struct parsed *each)
{
    const uint8_t *end = each->content + each->record.content_length;
    for (const uint8_t *at = each->content; at < end;) {
        struct piece piece;
        memcpy(&piece, at, sizeof piece);
        at += sizeof piece;
        for (size_t done = 0; done < piece.length;) {
            ssize_t n = pwrite(fd, at + done, piece.length - done, (off_t)(piece.offset + done));
            CHECK(n, "write a copied file");
            done += (size_t)n;
        }
        at += piece.length;
    }
    CHECK(ftruncate(fd, (off_t)each->record.size), "set the size of a copied file");
}

/* Create a file or directory without a name in its tree. */
static void create(int stage, const struct parsed *each, bool gives_numbers)
{
    const struct record *record = &each->record;
    const char *name = staged(record->number);
    char target[PATH_MAX];
    int fd = -1;
    if (S_ISREG(record->mode)) fd = openat(stage, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    else if (S_ISDIR(record->mode)) {
        CHECK(mkdirat(stage, name, 0700), "create a copied directory");
        fd = openat(stage, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } else if (S_ISLNK(record->mode)) {
        snprintf(target, sizeof target, "%.*s", (int)record->content_length, (const char *)each->content);
        CHECK(symlinkat(target, stage, name), "create a copied link");
    } else CHECK(mknodat(stage, name, record->mode & S_IFMT, record->device), "create a copied node");
    struct stat status;
    CHECK(fstatat(stage, name, &status, AT_SYMLINK_NOFOLLOW), "look at a copied file");
    if (gives_numbers && record->number && status.st_ino != record->number) { errno = ESTALE; die("number copied files"); }
    if (S_ISREG(record->mode)) write_content(fd, each);
    if (fd >= 0) set_attributes(fd, each->attributes, each->content);
    CHECK(fchownat(stage, name, record->uid, record->gid, AT_SYMLINK_NOFOLLOW), "chown a copied file");
    /* the last step, because writing and chown clear bits of the mode */
    if (!S_ISLNK(record->mode)) CHECK(fchmodat(stage, name, record->mode & 07777, 0), "chmod a copied file");
    close_fd(&fd);
}

static void set_times(int directory, const char *name, const struct parsed *each)
{
    struct timespec times[2] = {each->read, each->record.modified};
    CHECK(utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW), "set the times of a copied file");
}

/* Give a file its name. Its directory, and what is in it, were created before, and the directory has no name yet. */
static void place(int upper, int stage, const struct parsed *each)
{
    char from[32], to[NAME_MAX + 64];
    snprintf(from, sizeof from, "%s", staged(each->record.number));
    int directory = each->record.parent ? stage : upper;
    if (each->record.parent) snprintf(to, sizeof to, "%s/%s", staged(each->record.parent), (const char *)each->name);
    else snprintf(to, sizeof to, "%s", (const char *)each->name);
    if (each->record.links > 1) CHECK(linkat(stage, from, directory, to, 0), "link a copied file");
    else CHECK(renameat(stage, from, directory, to), "name a copied file");
    set_times(directory, to, each);
}

void fill_layer(int upper, int stage, const struct layer_copy *copy)
{
    static struct parsed parsed[MOST_NAMES], *order[MOST_NAMES];
    unsigned count = 0;
    const uint8_t *end = copy->bytes.bytes + copy->bytes.length, *at = copy->bytes.bytes;
    mode_t mask = umask(0);
    for (struct attribute attribute; at < end; at += sizeof attribute + attribute.name_length + attribute.length) {
        memcpy(&attribute, at, sizeof attribute);
        if (!attribute.name_length) break;
    }
    set_attributes(upper, copy->bytes.bytes, at);
    for (at += sizeof(struct attribute); at < end; count++) {
        struct parsed *each = order[count] = &parsed[count];
        memcpy(&each->record, at, sizeof each->record);
        memcpy(&each->read, copy->read_times.bytes + count * sizeof each->read, sizeof each->read);
        each->name = at + sizeof each->record;
        each->attributes = each->name + each->record.name_length;
        each->content = each->attributes + each->record.attributes_length;
        at = each->content + each->record.content_length;
    }
    qsort(order, count, sizeof *order, by_number);
    uint64_t last = 0;
    for (unsigned i = 0; i < count && order[i]->record.number; i++) {
        if (order[i]->record.number == last) continue;
        for (unsigned gap = 0; copy->gives_numbers && last + 1 < order[i]->record.number; gap++) {  /* numbers are given in ascending order */
            struct stat status;
            int fd = openat(stage, "gap", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
            if (gap > MOST_GAP || fd < 0 || fstat(fd, &status) || unlinkat(stage, "gap", 0)) die("number copied files");
            last = status.st_ino;
            close(fd);
        }
        create(stage, order[i], copy->gives_numbers);
        last = order[i]->record.number;
    }
    for (unsigned i = 0; i < count; i++) {
        if (!parsed[i].record.number) create(stage, &parsed[i], copy->gives_numbers);
        place(upper, stage, &parsed[i]);
    }
    for (unsigned i = 0; i < count; i++)
        if (parsed[i].record.links > 1) unlinkat(stage, staged(parsed[i].record.number), 0);
    umask(mask);
}
