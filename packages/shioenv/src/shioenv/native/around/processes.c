/* The declared processes of the machine. They are real processes that do nothing, so that inputs can find, query and kill them.
 * Each is in the inner user namespace, behind the filter, in a network without inputs, and without open descriptors. They share
 * one memory, a copy of the supervisor's, which inputs cannot inspect. A process's own entry in /proc would reveal the host, so
 * a directory with the declared files is mounted over it; the kernel removes that mount with the process.
 *
 * The shells' parent is the fork server, which inputs cannot signal (inside/server.c). Process 1 is init. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../library/kept_limits.h"
#include "common.h"
#include "configuration.h"
#include "filters.h"
#include "namespaces.h"
#include "processes.h"

#define STARTER 999  /* process id of a process that has ended before the first input runs */

/* ---- their entries in /proc ------------------------------------------------------------------------ */

static bool is_one_of(const char *name, const char *const names[])
{
    for (; *names; names++) if (!strcmp(name, *names)) return true;
    return false;
}

/* Whether it is a link in /proc, which is stored below ./processes as a file with the target. */
static bool is_link(const char *directory, const char *name)
{
    static const char *const links[] = {"cwd", "exe", "root", "net", "mounts", "mountinfo", "mountstats", NULL};
    return !strcmp(directory, "fd") || !strcmp(directory, "ns") || is_one_of(name, links);
}

/* The same modes as in the kernel. */
static mode_t mode_of(const char *name, bool is_directory)
{
    static const char *const closed[] = {
        "auxv", "environ", "io", "mem", "pagemap", "personality", "stack", "syscall", "fd", "fdinfo", "map_files", NULL};
    static const char *const written[] = {
        "autogroup", "comm", "coredump_filter", "gid_map", "loginuid", "oom_adj", "oom_score_adj", "projid_map", "sched",
        "setgroups", "timerslack_ns", "uid_map", NULL};
    if (is_directory) return is_one_of(name, closed) ? 0500 : !strcmp(name, "ns") ? 0511 : 0555;
    if (!strcmp(name, "clear_refs")) return 0200;
    if (!strcmp(name, "mem")) return 0600;
    return is_one_of(name, closed) ? 0400 : is_one_of(name, written) ? 0644 : 0444;
}

/* All entries of all processes are packed into one file, from which every sandbox of a system makes its own: reading two thousand
 * files of the host takes as long as making them. An entry is followed by its name, a NUL, its content and a NUL; the entries of
 * a directory follow it, up to one without a mode. */
struct entry { mode_t mode; uid_t uid; gid_t gid; uint32_t name, content; struct timespec time; };

static void put(FILE *to, struct entry entry, const char *name, const char *content)
{
    entry.name = (uint32_t)strlen(name) + 1;
    fwrite(&entry, sizeof entry, 1, to);
    fwrite(name, 1, entry.name, to);
    fwrite(content, 1, entry.content + 1, to);
}

static void put_end(FILE *to) { put(to, (struct entry){0}, "", ""); }

static void put_directory(FILE *to, struct entry owner, const char *name)
{
    owner.mode = S_IFDIR | mode_of(name, true);
    put(to, owner, name, "");
}

static void pack_entry(FILE *to, int from, const char *directory, const char *name, struct entry owner);

static void pack_directory(FILE *to, int from, const char *name, struct entry owner)
{
    DIR *list = fdopendir(from);
    if (!list) die("read the processes");
    for (struct dirent *entry; (entry = readdir(list));)
        if (entry->d_name[0] != '.') pack_entry(to, from, name, entry->d_name, owner);
    closedir(list);
    put_end(to);
}

static void pack_entry(FILE *to, int from, const char *directory, const char *name, struct entry owner)
{
    int in = openat(from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (in < 0 || fstat(in, &status)) die("open %s", name);
    if (S_ISDIR(status.st_mode)) {
        put_directory(to, owner, name);
        pack_directory(to, in, name, owner);
        return;
    }
    static char text[1 << 16];
    ssize_t length = read(in, text, sizeof text - 1);
    CHECK(length, "read %s", name);
    close(in);
    text[length] = 0;
    owner.mode = is_link(directory, name) ? S_IFLNK : S_IFREG | mode_of(name, false);
    owner.content = (uint32_t)length;
    owner.time = status.st_mtim;
    put(to, owner, name, text);
}

int pack_processes(const char *to)
{
    int from = open("processes", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = from < 0 ? NULL : fdopendir(from);
    FILE *packed = fopen(to, "we");
    if (!list || !packed) die("read the processes");
    for (struct dirent *entry; (entry = readdir(list));) {
        unsigned pid, uid, gid;
        if (sscanf(entry->d_name, "%u.%u.%u", &pid, &uid, &gid) != 3) continue;
        struct entry owner = {.uid = uid, .gid = gid};
        char name[16];
        snprintf(name, sizeof name, "%u", pid);
        int inside = openat(from, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        CHECK(inside, "open %s", entry->d_name);
        put_directory(packed, owner, name);
        put_directory(packed, owner, "map_files");
        put_end(packed);
        pack_directory(packed, inside, name, owner);
    }
    closedir(list);
    put_end(packed);
    CHECK(fclose(packed), "pack the processes");
    int file = open(to, O_RDONLY | O_CLOEXEC);
    CHECK(file, "open the packed processes");
    return file;
}

/* Make the entries of a directory; return where they end. */
static const char *unpack(const char *from, int to)
{
    for (;;) {
        struct entry entry;
        memcpy(&entry, from, sizeof entry);
        const char *name = from + sizeof entry, *content = name + entry.name;
        const struct timespec times[2] = {entry.time, entry.time};
        bool owned = entry.uid || entry.gid;
        from = content + entry.content + 1;
        if (!entry.mode) return from;
        if (S_ISLNK(entry.mode)) {
            CHECK(symlinkat(content, to, name), "link %s", name);
            if (owned) CHECK(fchownat(to, name, entry.uid, entry.gid, AT_SYMLINK_NOFOLLOW), "chown %s", name);
            utimensat(to, name, times, AT_SYMLINK_NOFOLLOW);
            continue;
        }
        bool is_file = S_ISREG(entry.mode);
        if (!is_file) CHECK(mkdirat(to, name, entry.mode & 07777), "mkdir %s", name);
        int flags = is_file ? O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC : O_RDONLY | O_DIRECTORY | O_CLOEXEC;
        int fd = openat(to, name, flags, entry.mode & 07777);
        CHECK(fd, "create %s", name);
        if (is_file) write_all(fd, content, entry.content);
        else from = unpack(from, fd);
        if (owned) CHECK(fchown(fd, entry.uid, entry.gid), "chown %s", name);
        if (is_file) futimens(fd, times);
        close(fd);
    }
}

void fill_processes(int packed, const char *to)
{
    do_mount("proc", to, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0,mode=755");
    struct stat status;
    int top = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0 || fstat(packed, &status)) die("read the packed processes");
    char *entries = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, packed, 0);
    if (entries == MAP_FAILED) die("map the packed processes");
    umask(0);
    unpack(entries, top);
    umask(022);
    munmap(entries, (size_t)status.st_size);
    close(top);
    do_mount(NULL, to, NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0");
}

void cover_processes(const char *proc)
{
    for (uint32_t i = 0; i < config.n_processes; i++) {
        char source[64], target[64];
        snprintf(source, sizeof source, "/processes/%u", config.processes_declared[i].pid);
        snprintf(target, sizeof target, "%s/%u", proc, config.processes_declared[i].pid);
        do_mount(source, target, NULL, MS_BIND, NULL);
    }
}

/* ---- starting them -------------------------------------------------------------------------------- */

/* If the host permits fewer open files than declared, the library in the system emulates the declared limits. If file locks
 * are limited as well, the host's limits are visible. */
static void keep_open_files(void)
{
    struct rlimit files, locks;
    const struct resource_limit *declared = NULL;
    for (uint32_t i = 0; i < config.n_rlimits; i++)
        if (config.rlimits[i].resource == RLIMIT_NOFILE) declared = &config.rlimits[i];
    if (!declared || declared->hard > MOST_OPEN_FILES) return;
    CHECK(getrlimit(RLIMIT_NOFILE, &files), "read the limit of open files");
    CHECK(getrlimit(RLIMIT_LOCKS, &locks), "read the limit of file locks");
    if (files.rlim_max >= declared->hard || locks.rlim_max != RLIM_INFINITY) return;
    locks.rlim_cur = KEPT_LIMITS(declared->soft, declared->hard);
    CHECK(setrlimit(RLIMIT_LOCKS, &locks), "keep the limits of open files");
}

void take_declared_limits(void)
{
    for (uint32_t i = 0; i < config.n_rlimits; i++) {
        const struct resource_limit *declared = &config.rlimits[i];
        struct rlimit limit, most;
        unsigned resource = (unsigned)declared->resource;
        CHECK(getrlimit(resource, &most), "read the limit of resource %u", resource);
        limit.rlim_cur = declared->soft < most.rlim_max ? declared->soft : most.rlim_max;
        limit.rlim_max = declared->hard < most.rlim_max ? declared->hard : most.rlim_max;
        CHECK(setrlimit(resource, &limit), "limit resource %u", resource);
    }
    keep_open_files();
}

/* Fork a child of this process's parent. Not for processes with threads: the C library in the child would still cache the
 * parent's thread id. */
static pid_t clone_as(pid_t number)
{
    struct clone_args arguments = {
        .flags = CLONE_PARENT,
        .set_tid = (uintptr_t)&number,
        .set_tid_size = 1,
    };
    return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

pid_t fork_inside(pid_t number)
{
    int up[2];
    if (pipe2(up, O_CLOEXEC)) die("pipe");
    pid_t middle = fork(), child = -1;
    CHECK(middle, "fork");
    if (middle == 0) {
        CHECK(setns(ns_pid, CLONE_NEWPID), "join pid namespace");
        child = clone_as(number);
        if (child == 0) {
            close(up[0]);
            close(up[1]);
            return 0;
        }
        CHECK(child, "start process %d", (int)number);
        _exit(write(up[1], &child, sizeof child) != sizeof child);
    }
    close(up[1]);
    if (read(up[0], &child, sizeof child) != sizeof child) _exit(125);
    close(up[0]);
    waitpid(middle, NULL, 0);
    return child;
}

static _Alignas(16) char stacks[MOST_PROCESSES][4096];  /* of the declared processes, which share their memory */

/* Start a process that shares this one's memory, and calls a function with one of the declared processes on a stack of its own. */
static pid_t clone_onto_stack(uint32_t i, void (*run)(const struct declared_process *))
{
    const struct declared_process *who = &config.processes_declared[i];
    pid_t number = (pid_t)who->pid;
    struct clone_args arguments = {
        .flags = CLONE_VM,
        .exit_signal = SIGCHLD,
        .stack = (uintptr_t)stacks[i],
        .stack_size = sizeof stacks[i],
        .set_tid = (uintptr_t)&number,
        .set_tid_size = 1,
    };
    long result;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "mov %[who], %%rdi\n\t"
                     "call *%[run]\n"
                     "1:"
                     : "=a"(result)
                     : "0"((long)SYS_clone3), "D"(&arguments), "S"(sizeof arguments), [run] "r"(run), [who] "r"(who)
                     : "rcx", "r11", "memory");
    if (result < 0) errno = (int)-result;
    return result < 0 ? -1 : (pid_t)result;
}

static void __attribute__((noreturn)) be_process(const struct declared_process *who)
{
    static const int other_meanings[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};  /* signals that most of them do not end on */
    for (unsigned i = 0; i < sizeof other_meanings / sizeof *other_meanings; i++) signal(other_meanings[i], SIG_IGN);
    signal(SIGCONT, SIG_DFL);
    prctl(PR_SET_NAME, who->name);
    if (setgroups(0, NULL) || setresgid(who->gid, who->gid, who->gid) || setresuid(who->uid, who->uid, who->uid)) _exit(125);
    prctl(PR_SET_DUMPABLE, 0);
    setsid();
    syscall(SYS_close_range, 0u, ~0u, 0u);  /* the last step, for which its parent waits */
    for (;;) pause();
}

void start_processes(void)
{
    int ready[2];
    if (pipe2(ready, O_CLOEXEC)) die("pipe");
    pid_t starter = fork_inside(STARTER);
    if (starter == 0) {
        close(ready[0]);
        leave_for_processes();
        filter_calls();
        take_declared_limits();
        for (uint32_t i = 0; i < config.n_processes; i++) {
            const struct declared_process *who = &config.processes_declared[i];
            if (who->pid == 1 || who->pid == config.parent) continue;
            CHECK(clone_onto_stack(i, be_process), "start process %u", who->pid);
        }
        _exit(0);  /* init adopts them */
    }
    close(ready[1]);
    char byte;
    while (read(ready[0], &byte, 1) > 0) {}
    close(ready[0]);
    int status;
    if (waitpid(starter, &status, 0) != starter || status) _exit(125);
}

/* ---- processes that a run leaves behind or ends ----------------------------------------------------- */

/* Children of init, of the fork server and of a persistent shell: process ids on the host, each followed by a space. */
enum { OF_INIT, OF_SERVER, OF_SHELL, N_LISTS };
enum { LIST_BYTES = 1 << 18, FULL_READ = 4000 };  /* the kernel returns a page at a time, less one id */
static int lists[N_LISTS] = {-1, -1, -1};
static char own[LIST_BYTES];  /* the declared processes: children of init */
static char company[N_LISTS][sizeof own];
static pid_t shells_parent;

/* Processes to ignore: those in a list (NULL: all of that list), and those in the time namespace `clock`, unless it is empty. */
struct known { const char *lists[N_LISTS]; const char *clock; };
enum { CLOCK_NAME = 64 };
static char company_clock[CLOCK_NAME];
static const struct known before_any_run = {{own, "", ""}, ""};
static const struct known before_this_run = {{company[OF_INIT], company[OF_SERVER], company[OF_SHELL]}, company_clock};

static const char *read_children(int i)
{
    static char text[sizeof own];
    size_t length = 0;
    for (ssize_t n = FULL_READ; n >= FULL_READ && length < sizeof text - 1; length += n < 0 ? 0 : (size_t)n)
        n = pread(lists[i], text + length, sizeof text - 1 - length, (off_t)length);
    while (length > 0 && text[length - 1] != ' ') length--;  /* a longer list ends in an incomplete id */
    text[length] = 0;
    return text;
}

/* Read the name of the time namespace for children of a process; empty on failure. */
static void read_clock(int process, char name[CLOCK_NAME])
{
    char path[64];
    snprintf(path, sizeof path, "%d/ns/time_for_children", process);
    ssize_t length = readlinkat(host_proc, path, name, CLOCK_NAME - 1);
    name[length < 0 ? 0 : length] = 0;
}

static int open_children(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "%d/task/%d/children", (int)pid, (int)pid);
    int fd = openat(host_proc, path, O_RDONLY | O_CLOEXEC);
    CHECK(fd, "open %s", path);
    return fd;
}

void watch_processes(pid_t server)
{
    lists[OF_INIT] = open_children(init_pid);
    lists[OF_SERVER] = open_children(server);
    shells_parent = server;
    strcpy(own, read_children(OF_INIT));
}

/* Whether an id is in a list. */
static bool is_listed(const char *number, size_t length, const char *list)
{
    for (const char *at = list; *at;) {
        size_t here = strcspn(at, " ");
        if (here == length && !memcmp(at, number, length)) return true;
        at += here + (at[here] == ' ');
    }
    return false;
}

/* Whether a list has ids that another one lacks. */
static bool has_others(const char *list, const char *than)
{
    for (const char *at = list; *at; at += strcspn(at, " ") + 1)
        if (!is_listed(at, strcspn(at, " "), than)) return true;
    return false;
}

unsigned processes_left(void)
{
    unsigned left = *read_children(OF_SERVER) ? LEFT_SURVIVORS : 0;
    const char *children = read_children(OF_INIT);
    if (!strcmp(children, own)) return left;
    if (has_others(children, own)) left |= LEFT_SURVIVORS;
    if (has_others(own, children)) left |= LOST_PROCESSES;
    return left;
}

/* Whether to ignore a process of a list. */
static bool is_known(const struct known *known, int list, const char *number, size_t length)
{
    char clock[CLOCK_NAME];
    if (is_listed(number, length, known->lists[list])) return true;
    if (!*known->clock) return false;
    read_clock(atoi(number), clock);
    return !strcmp(clock, known->clock);
}

/* Kill the processes of a list that are not ignored. Open each one first and then check the list again, because its id may have
 * been reused. */
static void kill_others(int i, const struct known *but)
{
    static char seen[sizeof own];
    strcpy(seen, read_children(i));
    for (const char *at = seen; *at; at += strcspn(at, " ") + 1) {
        size_t length = strcspn(at, " ");
        if (is_known(but, i, at, length)) continue;
        int held = (int)syscall(SYS_pidfd_open, atoi(at), 0);
        if (held >= 0 && is_listed(at, length, read_children(i))) syscall(SYS_pidfd_send_signal, held, SIGKILL, NULL, 0);
        close_fd(&held);
    }
}

enum { PATIENT = 4000 };  /* rounds; after that, processes that still fork are ended together with the declared ones */

void end_survivors(void)
{
    for (int tries = 0; tries < PATIENT; tries++) {
        kill_others(OF_SERVER, &before_any_run);
        kill_others(OF_INIT, &before_any_run);
        if (!(processes_left() & LEFT_SURVIVORS)) return;
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
    ask_init();
}

void watch_shell(pid_t shell)
{
    close_fd(&lists[OF_SHELL]);
    if (!shell) return;
    char path[64];
    snprintf(path, sizeof path, "%d/task/%d/children", (int)shell, (int)shell);
    lists[OF_SHELL] = openat(host_proc, path, O_RDONLY | O_CLOEXEC);  /* or it has already ended */
}

void note_company(bool has_own_clock)
{
    *company_clock = 0;
    if (has_own_clock) read_clock(shells_parent, company_clock);
    for (int i = 0; i < N_LISTS; i++) strcpy(company[i], read_children(i));
}

static bool is_over(int process)
{
    return poll(&(struct pollfd){process, POLLIN, 0}, 1, 0) > 0;
}

/* Return a descriptor of a running process that is not ignored, readable once all its threads have ended; -1 if there is none.
 * Children of an ended process go to init, whose list is read last. A list is read again if one of its processes has ended. */
static int open_other(const struct known *known)
{
    static char seen[sizeof own];
    for (int i = N_LISTS - 1, tries = 0; i >= 0; i--) {
        bool gone = false;
        if (!known->lists[i]) continue;
        size_t length;
        strcpy(seen, read_children(i));
        for (const char *at = seen; *at; at += length + 1) {
            length = strcspn(at, " ");
            if (is_known(known, i, at, length)) continue;
            int process = (int)syscall(SYS_pidfd_open, atoi(at), 0);
            if (process >= 0 && !is_over(process) && is_listed(at, length, read_children(i))) return process;
            close_fd(&process);
            gone = true;
        }
        if (gone && strcmp(seen, read_children(i)) && tries++ < PATIENT) i++;
    }
    return -1;
}

static bool has_other(const struct known *known)
{
    int process = open_other(known);
    bool found = process >= 0;
    close_fd(&process);
    return found;
}

int open_survivor(void) { return open_other(&before_any_run); }
int open_newcomer(void) { return open_other(&before_this_run); }

void end_newcomers(void)
{
    for (int tries = 0; tries < PATIENT && has_other(&before_this_run); tries++) {
        for (int i = 0; i < N_LISTS; i++) kill_others(i, &before_this_run);
        nanosleep(&(struct timespec){0, 50000}, NULL);
    }
}

bool has_company(void)
{
    return has_other(&(struct known){{[OF_INIT] = own, [OF_SHELL] = ""}, ""});
}
