#define _GNU_SOURCE
#include "nodes.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../inside/rows.h"
#include "common.h"
#include "filters.h"
#include "forkserver.h"
#include "notices.h"
#include "runs.h"

enum { MOST_AREAS = 256, MAP_BYTES = 1 << 16, MOST_BYTES = 32 << 20, PIECES = 512 };

/* Areas of a process's memory. Two processes have the same area if the lines in /proc/PID/maps are equal, apart from numbers of
 * files. */
enum kind { FIXED, ANONYMOUS, HEAP, STACK };
struct area { uint64_t start, end; enum kind kind; bool copied; uint64_t line; };
struct areas { unsigned count; struct area list[MOST_AREAS]; };

static uint64_t hash_of(const char *text, size_t length)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
    return hash;
}

static bool read_areas(pid_t process, struct areas *areas)
{
    static char text[MAP_BYTES];
    char path[64];
    snprintf(path, sizeof path, "%d/maps", (int)process);
    int fd = openat(host_proc, path, O_RDONLY | O_CLOEXEC);
    size_t length = 0;
    for (ssize_t n = 1; fd >= 0 && n > 0 && length < sizeof text - 1; length += n < 0 ? 0 : (size_t)n)
        n = read(fd, text + length, sizeof text - 1 - length);
    close_fd(&fd);
    text[length] = 0;
    areas->count = 0;
    if (length == sizeof text - 1) return false;
    for (char *line = text; *line;) {
        size_t here = strcspn(line, "\n");
        struct area area = {0};
        char permissions[5] = "", name[32] = "";
        uint64_t inode = 0;
        int numbers = 0, name_at = 0;  /* where the file's device and inode begin, and what follows them; machines differ in these */
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s %*x %n%*s %" SCNu64 "%n", &area.start, &area.end, permissions, &numbers,
                   &inode, &name_at) != 4 || areas->count == MOST_AREAS)
            return false;
        name_at += (int)strspn(line + name_at, " ");
        const char *at = memchr(line, '[', here);
        if (at && !inode) snprintf(name, sizeof name, "%.*s", (int)(here - (size_t)(at - line)), at);
        area.kind = !strcmp(name, "[heap]") ? HEAP : !strcmp(name, "[stack]") ? STACK : FIXED;
        if (!inode && (!*name || !strncmp(name, "[anon", 5)) && !strcmp(permissions, "rw-p")) area.kind = ANONYMOUS;
        area.copied = permissions[1] == 'w' && permissions[3] == 'p';
        area.line = hash_of(line, (size_t)numbers) ^ hash_of(line + name_at, here - (size_t)name_at) * 31;
        areas->list[areas->count++] = area;
        line += here + (line[here] == '\n');
    }
    return areas->count > 0;
}

static uint64_t page_of(uint64_t address) { return address / PAGE * PAGE; }

/* The part of an area that belongs to a node: of a stack, the part in use. */
static uint64_t start_in(const struct node *node, const struct area *area)
{
    uint64_t used = page_of(node->stack - 256);
    return area->kind == STACK && used > area->start ? used : area->start;
}

/* Where a process waits in a system call: stack pointer and instruction. */
static bool read_place(pid_t process, uint64_t *stack, uint64_t *place)
{
    char text[256];
    read_proc(text, sizeof text, "%d/syscall", (int)process);
    return sscanf(text, "%*d %*x %*x %*x %*x %*x %*x %" SCNx64 " %" SCNx64, stack, place) == 2;
}

void read_attributes(pid_t shell, char text[ATTRIBUTES])
{
    static const char *const kept[] = {
        "Name:", "Uid:", "Gid:", "Groups:", "Threads:", "SigPnd:", "ShdPnd:", "SigBlk:", "Cap", "NoNewPrivs:", "Seccomp:", "Speculation",
        "NSpgid:", "NSsid:",
    };
    static const char *const files[] = {"oom_score_adj", "coredump_filter", "timerslack_ns", "personality"};
    char lines[4096];
    size_t length = 0;
    read_proc(lines, sizeof lines, "%d/status", (int)shell);
    for (const char *line = lines; *line; line += strcspn(line, "\n"), line += *line == '\n')
        for (unsigned i = 0; i < sizeof kept / sizeof *kept; i++) {
            if (strncmp(line, kept[i], strlen(kept[i])) || length >= ATTRIBUTES / 2) continue;
            const char *end = line + strcspn(line, "\n"), *from = line;
            while (*line == 'N' && line[1] == 'S' && memchr(from, '\t', (size_t)(end - from)))
                from = (const char *)memchr(from, '\t', (size_t)(end - from)) + 1;  /* an id in the innermost namespace */
            length += (size_t)snprintf(text + length, ATTRIBUTES - length, "%.*s\n", (int)(end - from) % 256, from);
        }
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        read_proc(lines, 64, "%d/%s", (int)shell, files[i]);
        length += (size_t)snprintf(text + length, ATTRIBUTES - length, "%s\n", lines);
    }
    struct sched_param parameters = {0};
    sched_getparam(shell, &parameters);
    snprintf(text + length, ATTRIBUTES - length, "%d %d %d %ld", getpriority(PRIO_PROCESS, (id_t)shell), sched_getscheduler(shell),
             parameters.sched_priority, syscall(SYS_ioprio_get, 1, shell));
}

uint64_t processors_of(pid_t shell)
{
    cpu_set_t processors;
    CPU_ZERO(&processors);
    sched_getaffinity(shell, sizeof processors, &processors);
    return hash_of((const char *)&processors, sizeof processors);
}

bool ask_shell(uint32_t what)
{
    shared->call_answer = what;
    answer_line(notices);
    for (int tries = 0; !resident.call && tries < 1000; tries++) {
        struct pollfd ready = {notices, POLLIN, 0};
        if (poll(&ready, 1, 5) > 0) attend_notice(notices);
    }
    return resident.call;
}

/* Read or write areas of a process's memory. */
static bool read_memory(pid_t process, uint64_t from, void *bytes, size_t length)
{
    struct iovec here = {bytes, length}, there = {(void *)(uintptr_t)from, length};
    return process_vm_readv(process, &here, 1, &there, 1, 0) == (ssize_t)length;
}

bool copy_shell(struct node *node)
{
    if (!read_place(resident.shell, &node->stack, &node->place) || !ask_shell(LINE_DESCRIBE)) return false;
    node->state = shared->node;
    node->state.n_areas = 0;
    node->state.heap_end = 0;
    node->areas = malloc(sizeof *node->areas);
    if (!node->areas || !read_areas(resident.shell, node->areas)) return false;
    size_t length = 0, at = 0;
    for (unsigned i = 0; i < node->areas->count; i++) {
        const struct area *area = &node->areas->list[i];
        if (area->copied) length += area->end - start_in(node, area);
        if (area->kind == HEAP) node->state.heap_end = area->end;
        if (length > MOST_BYTES) return false;
    }
    node->bytes = malloc(length);
    node->length = length;
    for (unsigned i = 0; node->bytes && i < node->areas->count; i++) {
        const struct area *area = &node->areas->list[i];
        uint64_t start = start_in(node, area);
        if (!area->copied) continue;
        if (!read_memory(resident.shell, start, node->bytes + at, area->end - start)) return false;
        at += area->end - start;
    }
    return node->bytes;
}

static bool change_area(struct node_state *state, uint64_t start, uint64_t end, bool mapped)
{
    if (start >= end) return true;
    if (state->n_areas == NODE_AREAS) return false;
    state->areas[state->n_areas].start = start;
    state->areas[state->n_areas].length = end - start;
    state->areas[state->n_areas++].mapped = mapped;
    return true;
}

/* Map or unmap those parts of the anonymous areas of `these` that no area of `others` has. */
static bool differ(struct node_state *state, const struct areas *these, const struct areas *others, bool mapped)
{
    for (unsigned i = 0; i < these->count; i++) {
        if (these->list[i].kind != ANONYMOUS) continue;
        uint64_t at = these->list[i].start, end = these->list[i].end;
        for (unsigned j = 0; j < others->count && at < end; j++) {  /* in ascending order */
            const struct area *other = &others->list[j];
            if (other->end <= at || other->start >= end) continue;
            if (!change_area(state, at, other->start, mapped)) return false;
            at = other->end;
        }
        if (!change_area(state, at, end, mapped)) return false;
    }
    return true;
}

/* Whether all other areas are the same. */
static bool has_same_files(const struct areas *these, const struct areas *others)
{
    for (unsigned i = 0; i < these->count; i++) {
        bool found = these->list[i].kind != FIXED;
        for (unsigned j = 0; j < others->count && !found; j++) found = these->list[i].line == others->list[j].line;
        if (!found) return false;
    }
    return true;
}

/* Pieces of a node's memory to be written to a shell. */
struct pieces { struct iovec here[PIECES], there[PIECES]; unsigned count; size_t length; };

static bool write_pieces(struct pieces *pieces)
{
    ssize_t n = !pieces->count ? 0 : process_vm_writev(resident.shell, pieces->here, pieces->count, pieces->there, pieces->count, 0);
    bool written = n == (ssize_t)pieces->length;
    pieces->count = 0;
    pieces->length = 0;
    return written;
}

/* Write those pages of an area that differ. */
static bool write_area(uint64_t start, uint8_t *bytes, size_t length, struct pieces *pieces)
{
    static uint8_t present[1 << 20];
    for (size_t done = 0, part; done < length; done += part) {
        part = length - done < sizeof present ? length - done : sizeof present;
        if (!read_memory(resident.shell, start + done, present, part)) return false;
        for (size_t at = 0; at < part; at += PAGE) {
            if (!memcmp(present + at, bytes + done + at, PAGE)) continue;
            if (at && pieces->count && (uint8_t *)pieces->here[pieces->count - 1].iov_base +
                                           pieces->here[pieces->count - 1].iov_len == bytes + done + at) {
                pieces->here[pieces->count - 1].iov_len += PAGE;
                pieces->there[pieces->count - 1].iov_len += PAGE;
            } else {
                if (pieces->count == PIECES && !write_pieces(pieces)) return false;
                pieces->here[pieces->count] = (struct iovec){bytes + done + at, PAGE};
                pieces->there[pieces->count++] = (struct iovec){(void *)(uintptr_t)(start + done + at), PAGE};
            }
            pieces->length += PAGE;
        }
    }
    return true;
}

bool become_node(const struct node *node)
{
    static struct areas areas;
    static struct pieces pieces;
    uint64_t stack = 0, place = 0;
    if (!read_place(resident.shell, &stack, &place) || stack != node->stack || place != node->place) return false;
    if (!read_areas(resident.shell, &areas)) return false;
    struct node_state *state = &shared->node;
    *state = node->state;
    if (!has_same_files(node->areas, &areas) || !has_same_files(&areas, node->areas) ||
        !differ(state, node->areas, &areas, true) || !differ(state, &areas, node->areas, false))
        return false;
    if (!ask_shell(LINE_PREPARE)) return false;
    pieces.count = 0;
    pieces.length = 0;
    size_t at = 0;
    for (unsigned i = 0; i < node->areas->count; i++) {
        const struct area *area = &node->areas->list[i];
        uint64_t start = start_in(node, area);
        if (!area->copied) continue;
        if (!write_area(start, node->bytes + at, area->end - start, &pieces)) return false;
        at += area->end - start;
    }
    if (!write_pieces(&pieces)) return false;
    struct server_request number = {.op = SERVER_NUMBER, .pid = node->last_number, .flags = SHELL_PID};
    send_with(server_socket, &number, sizeof number, NULL, 0);
    return !hear_server().error;
}

const struct layer_copy *content_of(const struct node *node) { return node->layer.bytes.length ? &node->layer : NULL; }

void forget_node(struct node *node)
{
    forget_layer(&node->layer);
    free(node->areas);
    free(node->bytes);
    node->areas = NULL;
    node->bytes = NULL;
}

/* Parts of a node's file, after the node itself. */
enum { AREAS, MEMORY, FILES, READ_TIMES, N_PARTS };

static void find_parts(const struct node *node, const void *parts[N_PARTS], size_t lengths[N_PARTS])
{
    parts[AREAS] = node->areas, lengths[AREAS] = sizeof *node->areas;
    parts[MEMORY] = node->bytes, lengths[MEMORY] = node->length;
    parts[FILES] = node->layer.bytes.bytes, lengths[FILES] = node->layer.bytes.length;
    parts[READ_TIMES] = node->layer.read_times.bytes, lengths[READ_TIMES] = node->layer.read_times.length;
}

int write_node(const struct node *node)
{
    const void *parts[N_PARTS];
    size_t lengths[N_PARTS];
    find_parts(node, parts, lengths);
    struct iovec vectors[1 + N_PARTS] = {{(void *)(uintptr_t)node, sizeof *node}};
    size_t total = sizeof *node;
    for (int i = 0; i < N_PARTS; i++) {
        vectors[1 + i] = (struct iovec){(void *)(uintptr_t)parts[i], lengths[i]};
        total += lengths[i];
    }
    int file = memfd_create("node", MFD_CLOEXEC);
    if (file >= 0 && writev(file, vectors, 1 + N_PARTS) != (ssize_t)total) close_fd(&file);
    return file;
}

bool map_node(int file, struct node *node, struct mapping *mapping)
{
    struct stat status;
    const void *parts[N_PARTS];
    size_t lengths[N_PARTS], at = sizeof *node;
    if (fstat(file, &status) || (size_t)status.st_size < at) return false;
    mapping->length = (size_t)status.st_size;
    mapping->bytes = mmap(NULL, mapping->length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (mapping->bytes == MAP_FAILED) return false;
    memcpy(node, mapping->bytes, sizeof *node);
    find_parts(node, parts, lengths);
    for (int i = 0; i < N_PARTS; at += lengths[i++]) parts[i] = mapping->bytes + at;
    node->areas = (void *)(uintptr_t)parts[AREAS];
    node->bytes = (void *)(uintptr_t)parts[MEMORY];
    node->layer.bytes.bytes = (void *)(uintptr_t)parts[FILES];
    node->layer.read_times.bytes = (void *)(uintptr_t)parts[READ_TIMES];
    return at == mapping->length;
}

void unmap_node(struct mapping *mapping) { munmap(mapping->bytes, mapping->length); }
