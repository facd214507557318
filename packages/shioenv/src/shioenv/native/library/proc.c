/* Files of /proc that a pipe with other text is handed on for. A name tells such a file.
 *
 * What a machine has mounted: `mounts`, `mountinfo`, `mountstats`, and `mtab`, which leads there. The kernel lists an overlay,
 * all that covers /proc and the device nodes; who opens that list is given one of the same form, with the root disk, the
 * mounts that every machine has and those of the run.
 *
 * What a process is and may: `status`, in which the declared kernel has no line of a newer one's and nothing filters calls,
 * `limits`, in which no limit keeps another one's declared value, and `stat`. Where the machine has one processor, `status`
 * and `stat` name the first, whichever of the host's it is.
 *
 * Which sockets are there: `tcp` and `tcp6`, in which those of the machine's processes have the numbers that the processes'
 * own files say.
 *
 * Which control groups a process is in: `cgroup`. The host's hierarchies are the host's. */
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

#include "answers.h"
#include "kept_limits.h"

#ifdef __x86_64__

#define O_LARGE 0100000  /* as the kernel calls it */

/* The signal that such a pipe would announce itself by, if it were asked to, tells it from all others. */
enum { FIRST_MARK = 56 };

enum kind { MOUNTS, MOUNTINFO, MOUNTSTATS, STATUS, LIMITS, TCP, TCP6, CGROUP, STAT, N_KINDS };
static const char kinds[N_KINDS + 1][12] = {"mounts", "mountinfo", "mountstats", "status", "limits", "tcp", "tcp6", "cgroup", "stat", "mtab"};

enum { TEXT = 192 << 10, SHOWN = 60 << 10, LINES = 1024, TOKENS = 24, FIRST_OWN = 40 };

/* A mount, as the kernel has it or as it was declared. What one form of the list does not say is NULL. */
struct line {
    const char *id, *parent, *device, *root, *point, *options, *type, *source, *own;
    bool ours;    /* the root disk */
    bool hidden;  /* what stands for something else, or what a declared one is shown for */
    int number;   /* that is shown for the id */
    const struct line *declared;  /* the machine's mount that it is */
};

struct list {
    char text[TEXT], shown[SHOWN], declared[4096];
    struct line lines[LINES], machine[16];
    int n, n_machine, n_own;
    size_t length;    /* of what is shown */
    uint64_t base;    /* the host's number of the machine's root */
    enum kind kind;
};

/* ---- text ---------------------------------------------------------------------------------------- */

static bool begins(const char *text, const char *wanted)
{
    while (*wanted && *text == *wanted) text++, wanted++;
    return !*wanted;
}

static const char *find(const char *in, const char *wanted)
{
    while (*in && !begins(in, wanted)) in++;
    return *in ? in : NULL;
}

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

static uint64_t number(const char **text)
{
    uint64_t value = 0;
    while (**text >= '0' && **text <= '9') value = 10 * value + (uint64_t)(*(*text)++ - '0');
    return value;
}

/* The decimal digits of a number, which begin in `digits`, of 24 bytes. */
static const char *decimal(uint64_t value, char *digits)
{
    char *at = digits + 23;
    *at = 0;
    do *--at = (char)('0' + value % 10);
    while (value /= 10);
    return at;
}

static void show(struct list *list, const char *text)
{
    while (*text && list->length < SHOWN) list->shown[list->length++] = *text++;
}

static void show_with(struct list *list, const char *text, const char *after) { show(list, text), show(list, after); }

static void show_number(struct list *list, uint64_t value, const char *after)
{
    char digits[24];
    show_with(list, decimal(value, digits), after);
}

/* ---- reading the kernel's list ------------------------------------------------------------------- */

/* Cuts the next line at its spaces, which no token holds, though it may be empty. Returns what comes after it. */
static char *cut(char *at, const char **tokens, int *n)
{
    *n = 0;
    for (bool last = false; !last;) {
        if (*n < TOKENS) tokens[(*n)++] = at;
        while (*at && *at != ' ' && *at != '\n') at++;
        last = *at != ' ';
        if (*at) *at++ = 0;
    }
    return at;
}

static bool read_line(enum kind kind, const char **token, int n, struct line *line)
{
    *line = (struct line){0};
    if (kind == MOUNTS && n >= 4) {
        line->source = token[0], line->point = token[1], line->type = token[2], line->options = token[3];
        line->own = line->options;
        return true;
    }
    if (kind == MOUNTSTATS && n >= 8 && same(token[0], "device")) {
        line->source = token[1], line->point = token[4], line->type = token[7], line->own = line->options = "";
        return true;
    }
    int dash = 6;
    while (dash < n && !same(token[dash], "-")) dash++;
    if (kind != MOUNTINFO || dash + 3 >= n) return false;
    line->id = token[0], line->parent = token[1], line->device = token[2], line->root = token[3];
    line->point = token[4], line->options = token[5];
    line->type = token[dash + 1], line->source = token[dash + 2], line->own = token[dash + 3];
    return true;
}

/* A file that a file of another file system is mounted over: a device node, where /dev has them. */
static bool is_node(const char *point)
{
    struct stat file;
    return begins(point, "/dev/") && !call(SYS_newfstatat, AT_FDCWD, (long)point, (long)&file, 0, 0)
           && S_ISCHR(file.st_mode);
}

/* Covers and device nodes, which no machine has mounted. `mountstats` says nothing of how they are mounted. */
static bool stands_for_another(const struct list *list, const struct line *line)
{
    bool memory = same(line->type, "tmpfs"), terse = list->kind == MOUNTSTATS;
    if (same(line->source, "proc") && memory) return terse || find(line->own, "size=0k");
    if (same(line->source, "proc") && same(line->type, "proc")) return same(line->point, "/proc/sys");
    if (same(line->source, "sysfs") && memory) return terse || find(line->own, "size=0k");
    if (same(line->type, "devpts") && same(line->point, "/dev/ptmx")) return true;
    return same(line->type, "devtmpfs") || (memory && is_node(line->point));
}

static bool reads_only(const struct line *line) { return line->options[0] == 'r' && line->options[1] == 'o'; }

/* Which mount of every machine it is, or NULL. */
static struct line *find_declared(struct list *list, const struct line *line)
{
    for (int i = 0; i < list->n_machine; i++) {
        struct line *known = &list->machine[i];
        if (!known->hidden || !same(known->point, line->point)) continue;
        if (line->ours ? same(line->point, "/") : same(known->type, line->type)) return known;
    }
    return NULL;
}

static void read_lines(struct list *list)
{
    const char *token[TOKENS];
    int n;
    const char *from = answers_end;
    for (int strings = 0; strings < 2; from++) strings += !*from;
    size_t length = 0;
    while (length < sizeof list->declared - 1 && (list->declared[length] = from[length])) length++;
    for (char *at = list->declared; *at && list->n_machine < 16;) {
        at = cut(at, token, &n);
        struct line *line = &list->machine[list->n_machine];
        if (!read_line(MOUNTINFO, token, n, line)) continue;
        line->hidden = *line->device == '-';  /* until the kernel is seen to have it */
        line->device += line->hidden;
        line->number = (int)number(&(const char *){line->id});
        list->n_machine++;
    }
    for (char *at = list->text; *at && list->n < LINES;) {
        struct line *line = &list->lines[list->n];
        at = cut(at, token, &n);
        if (!read_line(list->kind, token, n, line)) continue;
        const char *layer = list->kind == MOUNTSTATS ? begins(line->source, "/dev/") ? "" : NULL
                                                     : find(line->own, "upperdir=/layer/upper");
        line->ours = layer && same(line->type, "overlay");
        struct line *declared = find_declared(list, line);
        if (declared) {
            declared->hidden = false;
            line->declared = declared;
            if (line->device && !*declared->device) declared->device = line->device;
            if (reads_only(line)) declared->root = NULL;  /* was mounted anew, to be read only */
            line->number = declared->number;
        }
        line->hidden = declared || stands_for_another(list, line);
        if (!line->hidden) line->number = FIRST_OWN + list->n_own++;
        const char *owner = line->hidden && !declared ? find(line->own, ",uid=") : NULL;
        if (owner && !list->base) owner += 5, list->base = number(&owner);
        list->n++;
    }
}

/* ---- the machine's list -------------------------------------------------------------------------- */

/* Options of a file system. Those of the root disk end before the layers; others' owners are shown as they are in here. */
static void show_options(struct list *list, const struct line *line, const char *options)
{
    const char *end = line->ours ? find(options, ",lowerdir=") : NULL;
    for (const char *at = options; *at && at != end && list->length < SHOWN;) {
        bool owner = (begins(at, ",uid=") || begins(at, ",gid=")) && list->base;
        if (!owner) { list->shown[list->length++] = *at++; continue; }
        const char *digits = at + 5;
        uint64_t id = number(&digits);
        if (id - list->base < 65536) id -= list->base;
        if (id) show(list, at[1] == 'u' ? ",uid=" : ",gid="), show_number(list, id, "");
        at = digits;
    }
}

static int shown_parent(const struct list *list, const struct line *line)
{
    for (int i = 0; i < list->n; i++)
        if (list->lines[i].id && same(list->lines[i].id, line->parent)) return list->lines[i].number;
    return 1;
}

static void show_numbers(struct list *list, uint64_t device)
{
    show_number(list, device >> 8 & 0xfff, ":");
    show_number(list, (device & 0xff) | (device >> 12 & 0xfff00), " ");
}

/* The first mount that is shown of a device, or NULL. */
static const struct line *first_of(const struct list *list, const char *device)
{
    for (int i = 0; i < list->n; i++)
        if ((list->lines[i].declared || list->lines[i].number) && same(list->lines[i].device, device)) return &list->lines[i];
    return NULL;
}

static void show_device(struct list *list, const struct line *line, bool declared)
{
    const struct line *first = declared ? NULL : first_of(list, line->device);
    if (line->ours && facts.device) show_numbers(list, (uint64_t)facts.device);
    else if (first && first->declared) show_with(list, first->declared->device, " ");
    else if (first && first->number && begins(line->device, "0:")) show(list, "0:"), show_number(list, (uint64_t)first->number, " ");
    else show_with(list, line->device, " ");
}

static void show_line(struct list *list, const struct line *line, bool declared)
{
    const char *type = line->ours ? "ext4" : line->type, *options = line->options;
    bool closed = declared && !line->root;  /* declared to be written to, and not any more */
    size_t start = list->length;
    if (list->kind == MOUNTSTATS) {
        show(list, "device "), show_with(list, line->source, " mounted on ");
        show_with(list, line->point, " with fstype "), show_with(list, type, "\n");
    } else if (list->kind == MOUNTS) {
        show_with(list, line->source, " "), show_with(list, line->point, " "), show_with(list, type, " ");
        if (closed) show(list, "ro"), options += 2;
        show_options(list, line, options);
        if (declared) show(list, line->own + 2);
        show(list, " 0 0\n");
    } else {
        show_number(list, (uint64_t)line->number, " ");
        if (declared) show_with(list, line->parent, " ");
        else show_number(list, (uint64_t)shown_parent(list, line), " ");
        show_device(list, line, declared);
        show_with(list, line->root ? line->root : "/", " "), show_with(list, line->point, " ");
        if (closed) show(list, "ro"), options += 2;
        show_with(list, options, " - "), show_with(list, type, " "), show_with(list, line->source, " ");
        show_options(list, line, line->own);
        show(list, "\n");
    }
    if (list->length == SHOWN) list->length = start;  /* what no pipe holds: whole lines alone */
}

static void show_list(struct list *list)
{
    bool whole = false;  /* whoever sees the root disk at / sees what a machine has, others a part of it */
    for (int i = 0; i < list->n_machine; i++) {
        struct line *line = &list->machine[i];
        line->ours = same(line->point, "/");
        whole |= line->ours && !line->hidden;
    }
    for (int i = 0; whole && i < list->n_machine; i++)
        if (!list->machine[i].hidden) show_line(list, &list->machine[i], true);
    for (int i = 0; i < list->n; i++)
        if (!list->lines[i].hidden || (!whole && list->lines[i].number)) show_line(list, &list->lines[i], false);
}

/* ---- a process ----------------------------------------------------------------------------------- */

/* Lines that the declared kernel, 6.1, has not; lines that tell of the sandbox's filters or of the host, as a machine has them;
 * those of processors, where it has one; of nodes of memory, of which Debian's kernel can have 1,024; and those of the limit
 * that may keep the declared ones of open files. */
static const char newer[][20] = {"Kthread:", "untag_mask:", "x86_Thread_features"};
static const char told[][48] = {
    "Seccomp:\t0\n", "Seccomp_filters:\t0\n", "Speculation_Store_Bypass:\tthread vulnerable\n",
    "SpeculationIndirectBranch:\tconditional enabled\n",
};
static const char told_of_one[][24] = {"Cpus_allowed:\t1\n", "Cpus_allowed_list:\t0\n"};
static const char nodes[] = "Mems_allowed:\t", no_nodes[] = "00000000,", first_node[] = "00000001\n";
enum { MORE_NODES = 31 };  /* groups of 32 without one */
static const char core[] = "Max core file size        1 ";  /* stands for 0: then no crash starts the host's own handler */
static const char locks[] = "Max file locks            ", files[] = "Max open files            ", no_limit[] = "unlimited            ";

static const char *after_line(const char *at)
{
    while (*at && *at++ != '\n') {}
    return at;
}

/* A limit in its column, of so many characters as no_limit. */
static void show_limit_of(struct list *list, uint64_t value)
{
    size_t end = list->length + sizeof no_limit - 1;
    show_number(list, value, " ");
    while (list->length < end) show(list, " ");
}

/* Whether it is the line of the same name. */
static bool has_name_of(const char *at, const char *line)
{
    while (*line != ':' && *at == *line) at++, line++;
    return *at == *line;
}

static void show_process(struct list *list)
{
    const char *kept = list->kind == LIMITS ? find(list->text, locks) : NULL;
    uint64_t limits = kept ? (kept += sizeof locks - 1, number(&kept)) : 0;
    for (const char *at = list->text, *end; *at; at = end) {
        end = after_line(at);
        bool hidden = false;
        for (size_t i = 0; i < sizeof newer / sizeof *newer; i++) hidden |= begins(at, newer[i]);
        for (size_t i = 0; i < sizeof told / sizeof *told; i++)
            if (has_name_of(at, told[i])) show(list, told[i]), hidden = true;
        for (size_t i = 0; facts.processors == 1 && i < sizeof told_of_one / sizeof *told_of_one; i++)
            if (has_name_of(at, told_of_one[i])) show(list, told_of_one[i]), hidden = true;
        if (begins(at, nodes)) {
            show(list, nodes);
            for (int i = 0; i < MORE_NODES; i++) show(list, no_nodes);
            show(list, first_node), hidden = true;
        }
        if (begins(at, core)) {
            for (const char *last = at + sizeof core - 3; at < last;) list->shown[list->length++] = *at++;
            show(list, "0"), at++;
        }
        if (IS_KEPT(limits) && begins(at, locks)) {
            show_with(list, locks, no_limit);
            at += sizeof locks + sizeof no_limit - 2;
        }
        if (IS_KEPT(limits) && begins(at, files)) {
            show(list, files), show_limit_of(list, KEPT_SOFT(limits)), show_limit_of(list, KEPT_HARD(limits));
            at += sizeof files + 2 * (sizeof no_limit - 1) - 1;
        }
        while (!hidden && at < end && list->length < SHOWN) list->shown[list->length++] = *at++;
    }
}

enum { PROCESSOR = 37 };  /* words behind the name, which is in parentheses and may hold any character */

static void show_numbers_of_process(struct list *list)
{
    const char *at = list->text, *name = at;
    for (const char *each = at; *each; each++)
        if (*each == ')') name = each;
    for (int word = 0; *at && list->length < SHOWN; at++) {
        bool ends = at > name && *at == ' ';
        list->shown[list->length++] = *at;
        if (!ends || ++word != PROCESSOR || facts.processors != 1) continue;
        show(list, "0");
        while (at[1] > ' ') at++;
    }
}

/* ---- sockets ------------------------------------------------------------------------------------- */

uint64_t declared_inode(int family, uint64_t port, uint64_t peer_port)
{
    const char *row = answers_end;
    for (int strings = 0; strings < 3; row++) strings += !*row;
    while (*row) {
        uint64_t found[4];
        for (int i = 0; i < 4; i++) found[i] = number(&row), row += *row != 0;
        if (found[0] == (uint64_t)family && found[1] == port && found[2] == peer_port) return found[3];
    }
    return 0;
}

/* The port behind the colon of an address in hexadecimal digits, which are passed over. */
static uint64_t port_of(const char **text)
{
    while (**text && **text != ' ' && **text != ':') ++*text;
    uint64_t value = 0;
    for (*text += **text == ':'; **text > ' '; ++*text)
        value = value * 16 + (uint64_t)(**text <= '9' ? **text - '0' : **text - 'A' + 10);
    return value;
}

static const char *word(const char *at)
{
    while (*at == ' ') at++;
    return at;
}

static const char *after_word(const char *at)
{
    at = word(at);
    while (*at > ' ') at++;
    return at;
}

enum { INODE = 9, POINTER = 11 };  /* words of a line, the first is its number */

static void show_sockets(struct list *list)
{
    static const char no_pointer[] = "0000000000000000";
    for (const char *at = list->text, *end; *at; at = end) {
        end = after_line(at);
        size_t start = list->length, width = (size_t)(end - at);
        const char *local = word(after_word(at));
        uint64_t port = port_of(&local);
        const char *peer = word(local);
        uint64_t peer_port = port_of(&peer), inode = declared_inode(list->kind == TCP ? 4 : 6, port, peer_port);
        bool filled = inode && width > 2 && end[-2] == ' ';  /* to a width of its own, whatever the number was */
        for (int i = 0; inode && i <= POINTER; i++) {
            const char *next = after_word(at), *from = word(at);
            while (at < from && list->length < SHOWN) list->shown[list->length++] = *at++;
            if (i == INODE) show_number(list, inode, "");
            else if (i == POINTER) show(list, no_pointer);
            else while (at < next && list->length < SHOWN) list->shown[list->length++] = *at++;
            at = next;
        }
        const char *last = end;
        while (filled && last > at && (last[-1] == ' ' || last[-1] == '\n')) last--;
        while (at < last && list->length < SHOWN) list->shown[list->length++] = *at++;
        while (filled && list->length - start < width - 1 && list->length < SHOWN) list->shown[list->length++] = ' ';
        if (filled) show(list, "\n");
    }
}

/* The number of a socket of the machine's processes that such a path leads to, or 0: a link below /proc/PID/fd. */
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

/* ---- handing it on ------------------------------------------------------------------------------- */

enum { PATH_OF_OWN = 32 };

static const char *path_of_own(enum kind kind, char *path)
{
    static const char of_process[] = "/proc/self/", of_network[] = "/proc/self/net/";
    const char *start = kind == TCP || kind == TCP6 ? of_network : of_process;
    char *at = path;
    for (const char *from = start; *from;) *at++ = *from++;
    for (const char *from = kinds[kind]; (*at++ = *from++);) {}
    return path;
}

static void read_all(int fd, char *text, size_t room)
{
    for (size_t length = 0; length < room;) {
        long n = call(SYS_read, fd, (long)text + (long)length, (long)(room - length), 0, 0);
        if (n <= 0) break;
        length += (size_t)n;
    }
}

/* A descriptor of the kernel's list becomes one of the machine's, at the same number. Returns it, or -1 and the error
 * that opening a file may have. */
static int hand_on(int fd, enum kind kind, int flags)
{
    struct list *list = (struct list *)call(SYS_mmap, 0, sizeof(struct list), PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1);
    long error = (long)list;
    if (error > -4096 && error < 0) return call(SYS_close, fd, 0, 0, 0, 0), answer(error);
    list->kind = kind;
    read_all(fd, list->text, TEXT - 1);
    if (!*list->text) {  /* process 1 stands outside; its mounts are everybody's */
        char path[PATH_OF_OWN];
        int own = (int)call(SYS_openat, AT_FDCWD, (long)path_of_own(kind, path), O_RDONLY | O_CLOEXEC, 0, 0);
        if (own >= 0) read_all(own, list->text, TEXT - 1), call(SYS_close, own, 0, 0, 0, 0);
    }
    if (kind == STATUS || kind == LIMITS) show_process(list);
    else if (kind == STAT) show_numbers_of_process(list);
    else if (kind == TCP || kind == TCP6) show_sockets(list);
    else if (kind == CGROUP) show(list, "0::/\n");
    else read_lines(list), show_list(list);
    int ends[2];
    error = call(SYS_pipe2, (long)ends, O_CLOEXEC | O_NONBLOCK, 0, 0, 0);
    if (!error) {
        call(SYS_write, ends[1], (long)list->shown, (long)list->length, 0, 0);
        call(SYS_close, ends[1], 0, 0, 0, 0);
        call(SYS_fcntl, ends[0], F_SETFL, flags & O_NONBLOCK, 0, 0);
        call(SYS_fcntl, ends[0], F_SETSIG, FIRST_MARK + (int)kind, 0, 0);
        error = call(SYS_dup3, ends[0], fd, flags & O_CLOEXEC, 0, 0);
        call(SYS_close, ends[0], 0, 0, 0, 0);
    }
    call(SYS_munmap, (long)list, sizeof *list, 0, 0, 0);
    if (error < 0) return call(SYS_close, fd, 0, 0, 0, 0), answer(error);
    return fd;
}

uint64_t listed_device(uint64_t device)
{
    struct list *list = (struct list *)call(SYS_mmap, 0, sizeof(struct list), PROT_READ | PROT_WRITE,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1);
    if ((long)list > -4096 && (long)list < 0) return device;
    char path[PATH_OF_OWN];
    int own = (int)call(SYS_openat, AT_FDCWD, (long)path_of_own(MOUNTINFO, path), O_RDONLY | O_CLOEXEC, 0, 0);
    list->kind = MOUNTINFO;
    if (own >= 0) read_all(own, list->text, TEXT - 1), call(SYS_close, own, 0, 0, 0, 0);
    read_lines(list);
    show_numbers(list, device);
    list->shown[list->length - 1] = 0;
    const struct line *first = first_of(list, list->shown);
    if (first && first->declared && begins(first->declared->device, "0:")) {
        const char *minor = first->declared->device + 2;
        device = number(&minor);
    } else if (first && first->number) device = (uint64_t)first->number;
    for (int i = 0; !first && i < list->n; i++) {  /* what stands for files of /proc and /sys is shown as theirs */
        const struct line *line = &list->lines[i];
        bool of_proc = begins(line->point, "/proc/"), of_sys = begins(line->point, "/sys");
        if (same(line->device, list->shown) && (of_proc || of_sys)) { device = of_proc ? PROC_DEVICE : SYS_DEVICE; break; }
    }
    call(SYS_munmap, (long)list, sizeof *list, 0, 0, 0);
    return device;
}

/* Which of these files was opened by such a name, or -1. */
static int opened_kind(int fd, int named)
{
    struct statfs system;
    if (call(SYS_fstatfs, fd, (long)&system, 0, 0, 0) || system.f_type != PROC_SUPER_MAGIC) return -1;
    char link[48] = "/proc/self/fd/", digits[24], path[128];
    char *at = link + 14;
    for (const char *digit = decimal((uint64_t)fd, digits); *digit;) *at++ = *digit++;
    long length = call(SYS_readlink, (long)link, (long)path, sizeof path - 1, 0, 0);
    if (length > 0) path[length] = 0, named = kind_of(last_part(path));  /* unless /proc is not where it should be */
    return named < N_KINDS ? named : length > 0 ? -1 : MOUNTS;
}

/* Where the host's kernel has no modules, it has no list of them either: the declared one lies elsewhere. */
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
    return kind < 0 ? fd : hand_on(fd, (enum kind)kind, flags);
}

void stat_list(int fd, struct stat *file)
{
    long kind = call(SYS_fcntl, fd, F_GETSIG, 0, 0, 0) - FIRST_MARK;
    if (kind < 0 || kind >= N_KINDS) return;
    char path[PATH_OF_OWN];
    struct stat found;
    if (call(SYS_newfstatat, AT_FDCWD, (long)path_of_own((enum kind)kind, path), (long)&found, 0, 0)) return;
    *file = found;
    file->st_mode = S_IFIFO | (found.st_mode & 07777);  /* else programs would seek in it */
}

/* ---- opening ------------------------------------------------------------------------------------- */

EXPORT int open(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);  /* nothing, where nothing is made, and then it is not used */
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

/* As programs call them that were compiled to be checked. */
extern int __open_2(const char *path, int flags);
extern int __openat_2(int directory, const char *path, int flags);

EXPORT int __open_2(const char *path, int flags) { return after_opening(ORIGINAL(__open_2)(path, flags), path, flags); }

EXPORT int __openat_2(int directory, const char *path, int flags)
{
    return after_opening(ORIGINAL(__openat_2)(directory, path, flags), path, flags);
}

/* Whether a stream is asked for that reads such a list; then it is there, or NULL for an error. */
static bool open_list(const char *path, const char *mode, int flags, FILE **stream)
{
    int named = kind_of(last_part(path));
    if (named < 0 || *mode != 'r' || find(mode, "+")) return false;
    int fd = (int)call(SYS_openat, AT_FDCWD, (long)path, O_RDONLY | O_LARGE | flags, 0, 0);
    int kind = fd < 0 ? -1 : opened_kind(fd, named);
    if (kind < 0) {
        if (fd >= 0) call(SYS_close, fd, 0, 0, 0, 0);
        return false;  /* the library's own function says what it is */
    }
    fd = hand_on(fd, (enum kind)kind, flags);
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
