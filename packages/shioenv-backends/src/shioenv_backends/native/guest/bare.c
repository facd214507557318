/* Run inputs as root of the machine itself. Each input runs in a fresh bash, a child of process 1. Its root is the disk, and it
 * sees the machine's devices and processes. Its only namespace is a time namespace, which shows the declared uptime. Replies have
 * the format of a supervisor's (around/protocol.h), without the state of the shell. The host restores the machine before each
 * further input.
 *
 * The first request prepares the machine. Later runs are compared with the state after it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "around/common.h"
#include "around/configuration.h"
#include "around/protocol.h"
#include "around/scan.h"
#include "around/sha256.h"
#include "inside/directory.h"
#include "agent.h"

#define SHELL_PID 1000
#define LOOK_NS 50000000ll       /* nanoseconds between two measurements of a run */
#define PIECE (1u << 18)         /* bytes of a frame; the host accepts up to four times as many */
#define RECORDS_MAX (32u << 20)  /* bytes of recorded changes; further ones are omitted */
#define WHOLE_FILE_MAX (64 << 20) /* of larger files only the data is hashed, as in around/scan.c */

int control;  /* the source of the configuration; here `read_all` reads the channel's frames instead */

/* ---- messages of the host --------------------------------------------------------------------------- */

bool read_all(int fd, void *bytes, size_t length)
{
    static size_t at, held;  /* offsets in the last frame */
    (void)fd;
    for (char *to = bytes; length;) {
        if (at == held) {
            at = 0;
            for (char kind; (kind = receive_frame(&held)) != 'D';) if (!kind) reconnect();
        }
        size_t n = held - at < length ? held - at : length;
        memcpy(to, frame + at, n);
        to += n;
        at += n;
        length -= n;
    }
    return true;
}

static void send_data(const void *bytes, size_t length)
{
    for (const char *from = bytes; length;) {
        size_t n = length < PIECE ? length : PIECE;
        send_frame('D', from, n);
        from += n;
        length -= n;
    }
}

void die(const char *format, ...)
{
    need(-1, format);
    for (;;) pause();
}

/* ---- the machine ------------------------------------------------------------------------------------ */

static int root = -1, memory = -1;  /* detached copies of / and /dev/shm, without the mounts that an input makes */
static int proc = -1, child_list = -1, events = -1, network_events[2] = {-1, -1}, ended = -1;
static int used_time = -1, used_memory = -1;

/* The login users (loginuid) of declared processes, read from a directory next to the system; `last` shows them. */
static struct login { pid_t process; char user[16]; } logins[64];

static void read_logins(void)
{
    DIR *list = opendir("/system/processes");
    unsigned count = 0;
    for (struct dirent *entry; list && count < 64 && (entry = readdir(list));) {
        char path[300];
        struct login *login = &logins[count];
        snprintf(path, sizeof path, "/system/processes/%s/loginuid", entry->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        login->process = atoi(entry->d_name);
        count += read(fd, login->user, sizeof login->user - 1) > 0;
        close(fd);
    }
    if (list) closedir(list);
}

void mount_bare(void)
{
    read_logins();
    for (int i = 0; i < 1000 && access("/dev/vda", F_OK); i++) usleep(10000);
    need(mount("/dev/vda", "/new", "ext4", MS_RDONLY, NULL), "mount the system");
    static const char *const moved[][2] = {{"/dev", "/new/dev"}, {"/proc", "/new/proc"}, {"/sys", "/new/sys"}};
    for (int i = 0; i < 3; i++) need(mount(moved[i][0], moved[i][1], NULL, MS_MOVE, NULL), moved[i][0]);
    need(chdir("/new"), "enter the root");
    need(mount(".", "/", NULL, MS_MOVE, NULL), "move the root");
    need(chroot("."), "enter the root");
    need(chdir("/"), "enter the root");
    mkdir("/dev/pts", 0755), mkdir("/dev/shm", 01777), mkdir("/dev/mqueue", 01777);
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=000");
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, NULL);
    mount("mqueue", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    static const char *const links[][2] = {{"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"},
        {"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"}};
    for (int i = 0; i < 4; i++) need(symlink(links[i][0], links[i][1]), links[i][1]);
}

/* Subscribe to changes of the network, so that the host reads its state only after a change. */
static int listen_for(int family, unsigned groups)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_NONBLOCK | SOCK_CLOEXEC, family);
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = groups};
    need(fd, "netlink");
    need(bind(fd, (struct sockaddr *)&address, sizeof address), "netlink");
    return fd;
}

static bool has_news(int fd)
{
    return fd >= 0 && poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0) > 0;
}

/* Discard pending notifications. */
static void forget(int fd)
{
    static char block[1 << 16];
    while (read(fd, block, sizeof block) > 0 || errno == ENOBUFS) {}
}

/* Start idle processes with the declared ids, names and users, so that `who` and `kill` find them. */
static void start_declared(char *name, size_t room)
{
    for (uint32_t i = 0; i < config.n_processes; i++) {
        const struct declared_process *who = &config.processes_declared[i];
        pid_t number = (pid_t)who->pid;
        struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&number, .set_tid_size = 1};
        if (number == 1) continue;
        long child = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (child < 0) say(who->name);
        if (child) continue;
        static const int other_meanings[] = {SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};  /* most daemons do not end by them */
        for (unsigned j = 0; j < sizeof other_meanings / sizeof *other_meanings; j++) signal(other_meanings[j], SIG_IGN);
        memset(name, 0, room);
        strncpy(name, who->name, room);
        for (int j = 0; j < 64; j++) if (logins[j].process == number) put("/proc/self/loginuid", logins[j].user);
        prctl(PR_SET_NAME, who->name);
        if (setgroups(0, NULL) || setresgid(who->gid, who->gid, who->gid) || setresuid(who->uid, who->uid, who->uid)) _exit(125);
        setsid();
        syscall(SYS_close_range, 0u, ~0u, 0u);
        for (;;) pause();
    }
}

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Create a time namespace with the declared uptime for the next child. It starts at a whole millisecond of real time, as in
 * other sandboxes (`renew_clock` in inside/server.c). */
static bool set_uptime(void)
{
    char text[128];
    int64_t booted = 0, nearest = INT64_MAX;
    for (int tries = 0; tries < 50 && nearest > 20000; tries++) {
        int64_t before = now_ns(CLOCK_BOOTTIME), real = now_ns(CLOCK_REALTIME), took = now_ns(CLOCK_BOOTTIME) - before;
        if (took < nearest) booted = real - (before + took / 2), nearest = took;
    }
    int64_t tick = now_ns(CLOCK_REALTIME_COARSE);
    int64_t offset = config.uptime * 1000000000 - (tick - tick % 1000000 - booted);
    long long seconds = offset / 1000000000, rest = offset % 1000000000;
    if (rest < 0) rest += 1000000000, seconds--;
    int length = snprintf(text, sizeof text, "boottime %lld %lld\nmonotonic %lld %lld\n", seconds, rest, seconds, rest);
    if (unshare(CLONE_NEWTIME)) return false;
    int fd = openat(proc, "self/timens_offsets", O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, (size_t)length) == length;
    if (fd >= 0) close(fd);
    return done;
}

static void put_number(const char *path, long number)
{
    char text[24];
    int fd = openat(proc, path, O_WRONLY | O_CLOEXEC);
    snprintf(text, sizeof text, "%ld", number);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) say(path);
    if (fd >= 0) close(fd);
}

/* ---- what a run changed ----------------------------------------------------------------------------- */

/* A path and its attributes. */
struct seen { char *path, *target; struct change status; int64_t ctime_ns; };
struct tree { struct seen *all; size_t count, room; };
static struct tree pristine;

static void need_memory(const void *given) { if (!given) die("memory"); }

static void look_at(struct tree *tree, int directory, const char *name, const char *path)
{
    struct statx status;
    char target[4096];
    if (statx(directory, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &status)) return;
    if (tree->count == tree->room)
        need_memory(tree->all = realloc(tree->all, (tree->room = 2 * tree->room + 4096) * sizeof *tree->all));
    ssize_t length = S_ISLNK(status.stx_mode) ? readlinkat(directory, name, target, sizeof target - 1) : 0;
    target[length < 0 ? 0 : length] = 0;
    struct seen *seen = &tree->all[tree->count++];
    *seen = (struct seen){
        .path = strdup(path), .target = *target ? strdup(target) : NULL,
        .status = {
            .mode = status.stx_mode, .uid = status.stx_uid, .gid = status.stx_gid, .links = status.stx_nlink,
            .size = status.stx_size, .seconds = status.stx_mtime.tv_sec, .nanoseconds = status.stx_mtime.tv_nsec,
            /* the birth time distinguishes files with a reused inode number */
            .inode = status.stx_ino ^ ((uint64_t)status.stx_btime.tv_sec * 1000000000 + status.stx_btime.tv_nsec) * 0x9e3779b97f4a7c15u,
            .major = status.stx_rdev_major, .minor = status.stx_rdev_minor,
        },
        .ctime_ns = status.stx_ctime.tv_sec * 1000000000ll + status.stx_ctime.tv_nsec,
    };
    need_memory(seen->path);
    if (!S_ISDIR(status.stx_mode)) return;
    int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NOATIME | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *entry; list && (entry = readdir(list));) {
        char *inside;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (asprintf(&inside, "%s/%s", path[1] ? path : "", entry->d_name) < 0) die("memory");
        look_at(tree, fd, entry->d_name, inside);
        free(inside);
    }
    if (list) closedir(list);
    else if (fd >= 0) close(fd);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct seen *)a)->path, ((const struct seen *)b)->path);
}

static struct tree everything(void)
{
    struct tree tree = {0};
    look_at(&tree, root, ".", "/");
    look_at(&tree, memory, ".", "/dev/shm");
    qsort(tree.all, tree.count, sizeof *tree.all, by_path);
    return tree;
}

static int64_t scan_until;  /* limit in nanoseconds of this process's processor time */

static bool is_over(void) { return now_ns(CLOCK_PROCESS_CPUTIME_ID) > scan_until; }

static bool is_in_memory(const char *path) { return !strncmp(path, "/dev/shm", 8) && (!path[8] || path[8] == '/'); }

static bool digest(const char *path, uint64_t size, uint8_t to[32])
{
    static uint8_t block[1 << 16];
    struct sha256 hash;
    bool in_memory = is_in_memory(path);
    int fd = openat(in_memory ? memory : root, path + (in_memory ? 9 : 1), O_RDONLY | O_NOFOLLOW | O_NOATIME | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return false;
    sha256_start(&hash);
    ssize_t n = 0;
    if (size <= WHOLE_FILE_MAX) {
        while (!is_over() && (n = read(fd, block, sizeof block)) > 0) sha256_add(&hash, block, (size_t)n);
    } else {
        sha256_add(&hash, &size, sizeof size);
        for (off_t at = 0, end; (at = lseek(fd, at, SEEK_DATA)) >= 0 && (end = lseek(fd, at, SEEK_HOLE)) >= 0;) {
            sha256_add(&hash, &at, sizeof at);
            for (; at < end && !is_over() && (n = pread(fd, block, end - at < (off_t)sizeof block ? (size_t)(end - at) : sizeof block, at)) > 0; at += n)
                sha256_add(&hash, block, (size_t)n);
            if (at < end) break;
        }
    }
    close(fd);
    sha256_end(&hash, to);
    return n >= 0;
}

static struct buffer changes;

static void tell(char kind, const struct seen *seen)
{
    uint32_t length = (uint32_t)strlen(seen->path), target_length = seen->target ? (uint32_t)strlen(seen->target) : 0;
    uint8_t hash[32], has_digest = kind == 'A' && S_ISREG(seen->status.mode) && digest(seen->path, seen->status.size, hash);
    buffer_add(&changes, &kind, 1);
    buffer_add(&changes, &length, sizeof length);
    buffer_add(&changes, seen->path, length);
    buffer_add(&changes, &seen->status, sizeof seen->status);
    buffer_add(&changes, &target_length, sizeof target_length);
    buffer_add(&changes, seen->target, target_length);
    buffer_add(&changes, &has_digest, 1);
    if (has_digest) buffer_add(&changes, hash, sizeof hash);
}

/* Append the changes since the pristine state, and return flags for the reply. */
static uint32_t compare(uint32_t processor_ms)
{
    scan_until = now_ns(CLOCK_PROCESS_CPUTIME_ID) + processor_ms * 1000000ll;
    struct tree now = everything();
    uint32_t flags = 0;
    changes.length = 0;
    for (size_t old = 0, new = 0; old < pristine.count || new < now.count;) {
        const struct seen *before = old < pristine.count ? &pristine.all[old] : NULL;
        const struct seen *after = new < now.count ? &now.all[new] : NULL;
        int order = !before ? 1 : !after ? -1 : strcmp(before->path, after->path);
        bool changed = order || before->ctime_ns != after->ctime_ns || memcmp(&before->status, &after->status, sizeof before->status);
        size_t length = changes.length;
        if (changed) flags |= REPLY_FILES;
        if (changed && order <= 0) tell('B', before);
        if (changed && order >= 0) tell('A', after);
        if (changed && (length > RECORDS_MAX || is_over())) {
            changes.length = length;  /* half of a change would be wrong */
            return flags | REPLY_CHANGES_TRUNCATED | (is_over() ? REPLY_SCAN : 0);
        }
        old += order <= 0;
        new += order >= 0;
    }
    return flags;  /* allocated memory is not freed, because the machine ends */
}

/* Record the pristine state, and subscribe to changes of the disk's files. Without a notification the slow search for changes is
 * skipped. */
static void remember(void)
{
    pristine = everything();
    events = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_NONBLOCK | FAN_CLOEXEC, O_RDONLY);
    need(events, "fanotify");
    need(fanotify_mark(events, FAN_MARK_ADD | FAN_MARK_FILESYSTEM,
        FAN_MODIFY | FAN_CLOSE_WRITE | FAN_ATTRIB | FAN_CREATE | FAN_DELETE | FAN_MOVE | FAN_ONDIR, AT_FDCWD, "/"), "fanotify");
    network_events[0] = listen_for(NETLINK_ROUTE, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV4_ROUTE | RTMGRP_IPV4_RULE
        | RTMGRP_IPV6_IFADDR | RTMGRP_IPV6_ROUTE | 1u << (RTNLGRP_IPV6_RULE - 1));
    network_events[1] = listen_for(NETLINK_NETFILTER, 1u << (7 /* NFNLGRP_NFTABLES */ - 1));
}

/* Whether /dev/shm may have changed. It has no notifications, but is small enough to be read after each run. */
static bool memory_changed(void)
{
    struct tree now = {0};
    look_at(&now, memory, ".", "/dev/shm");
    if (now.count != 1) return true;
    for (size_t i = 0; i < pristine.count; i++)
        if (!strcmp(pristine.all[i].path, "/dev/shm") && S_ISDIR(pristine.all[i].status.mode) && pristine.all[i].ctime_ns == now.all[0].ctime_ns)
            return false;
    return true;
}

/* ---- one run ---------------------------------------------------------------------------------------- */

struct use { uint64_t busy_ticks, bytes, threads; };

static uint64_t field(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) : 0;
}

/* Return the resource usage of the whole machine. */
static struct use use_now(void)
{
    static char text[1 << 12];
    struct use use = {0};
    struct sysinfo info;
    ssize_t length = pread(used_time, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = 0;
    char *at = text + strcspn(text, " ");
    for (int i = 0; i < 8; i++) {
        uint64_t ticks = strtoull(at, &at, 10);
        if (i != 3 && i != 4) use.busy_ticks += ticks;  /* except idle, and waiting for a disk */
    }
    length = pread(used_memory, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = 0;
    use.bytes = (field(text, "AnonPages:") + field(text, "Shmem:")) << 10;
    if (!sysinfo(&info)) use.threads = info.procs;
    return use;
}

/* Tolerance of the check for the process limit: kernel threads that counted when a fork failed may have ended before the check. */
enum { KERNEL_THREADS = 8 };

static uint64_t more(uint64_t now, uint64_t before) { return now > before ? now - before : 0; }

static uint32_t past_limits(const struct request *request, const struct use *before, struct reply *reply)
{
    struct use now = use_now();
    if (more(now.threads, before->threads) + KERNEL_THREADS >= config.processes) reply->flags |= REPLY_PROCESSES;
    if (more(now.busy_ticks, before->busy_ticks) * 1000 / (uint64_t)sysconf(_SC_CLK_TCK) > config.cpu_ms) return REPLY_CPU;
    return more(now.bytes, before->bytes) > request->memory_max ? REPLY_MEMORY : 0;
}

/* The message of a child that could not execute bash. */
struct refusal { uint32_t stage; int32_t error; };

static void __attribute__((noreturn)) refuse(int said, uint32_t stage)
{
    struct refusal refusal = {stage, errno ? errno : EIO};
    _exit(write(said, &refusal, sizeof refusal) < 0);
}

static void __attribute__((noreturn)) become(const char *directory, char *text, const int streams[3], bool terminal, int said)
{
    sigset_t none;
    setsid();
    for (int i = 0; i < 3; i++) if (dup2(streams[i], i) < 0) refuse(said, STAGE_NAMESPACES);
    if (terminal && ioctl(0, TIOCSCTTY, 0)) refuse(said, STAGE_NAMESPACES);
    for (uint32_t i = 0; i < config.n_rlimits; i++) {
        const struct resource_limit *declared = &config.rlimits[i];
        setrlimit((int)declared->resource, &(struct rlimit){declared->soft, declared->hard});
    }
    int score = openat(proc, "self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (score < 0 || write(score, "0", 1) != 1) refuse(said, STAGE_NAMESPACES);
    for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    if (enter_directory(directory, config.environment)) refuse(said, STAGE_DIRECTORY);
    char *arguments[] = {"bash", "--norc", "--noprofile", "-c", text, NULL, NULL};
    if (*text == '-' || *text == '+') arguments[4] = "--", arguments[5] = text;  /* not an option */
    execve("/bin/bash", arguments, config.environment);
    refuse(said, STAGE_NAMESPACES);
}

static bool open_terminal(int ends[2])
{
    static const struct winsize size = {.ws_row = 24, .ws_col = 80};
    int unlocked = 0;
    ends[0] = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (ends[0] < 0 || ioctl(ends[0], TIOCSPTLCK, &unlocked) || ioctl(ends[0], TIOCSWINSZ, &size)) return false;
    ends[1] = ioctl(ends[0], TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    return ends[1] >= 0;
}

/* Write an end-of-file character: programs that read from the terminal find an end of file, as in /dev/null. */
static void offer_end_of_file(int master)
{
    if (write(master, "\4", 1) < 0) return;  /* the buffer is full of them */
}

struct channel { int fd; struct buffer kept; uint64_t seen; };

/* Read once; return false at end of file. */
static bool read_channel(struct channel *channel, uint32_t keep)
{
    static char bytes[1 << 16];
    ssize_t n = read(channel->fd, bytes, sizeof bytes);
    if (n < 0) return errno == EINTR || errno == EAGAIN;
    if (n == 0) return false;
    channel->seen += (uint64_t)n;
    size_t room = keep > channel->kept.length ? keep - channel->kept.length : 0;
    buffer_add(&channel->kept, bytes, (size_t)n < room ? (size_t)n : room);
    return true;
}

static void let_go(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Reap all ended processes, as an init does. Return whether the shell is among them. */
static bool reap(pid_t shell, int32_t *of_shell)
{
    bool found = false;
    int status;
    forget(ended);
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0;)
        if (pid == shell) {
            *of_shell = status;
            found = true;
        }
    return found;
}

/* Return the ids of this process's children, each followed by a space. Children from before a run belong to the machine. */
static const char *read_children(void)
{
    static char text[1 << 13];
    ssize_t length = pread(child_list, text, sizeof text - 1, 0);
    text[length < 0 ? 0 : length] = 0;
    return text;
}

static char own[1 << 13];

/* Whether a process of the run still exists. A process that outlives its parent becomes a child of this process. */
static bool is_outlived(void)
{
    const char *now = read_children();
    for (const char *at = now; *at; at += strcspn(at, " "), at += *at == ' ') {
        size_t length = strcspn(at, " ");
        const char *known = own;
        while (*known && (strcspn(known, " ") != length || memcmp(known, at, length)))
            known += strcspn(known, " "), known += *known == ' ';
        if (!*known) return true;
    }
    return false;
}

struct feed { int fd; const uint8_t *next; size_t left; };

/* The last half of a run's time counts only in runs with at least so many measurements. */
enum { MANY_LOOKS = 10 };

/* A time in a run, and the processor ticks used until then. */
struct moment { int64_t ns; uint64_t busy_ticks; };

/* Whether the machine was idle for nine tenths of the time between two moments. */
static bool slept_since(const struct moment *then, const struct moment *now)
{
    return more(now->busy_ticks, then->busy_ticks) * 10 <= (uint64_t)(now->ns - then->ns) / 10000000;
}

/* Monitor one run to its end: input, output, time, memory, and processes that outlive the shell. */
static void watch(const struct request *request, pid_t shell, const struct use *before, struct channel *channels,
                  struct feed *feed, int *slave, struct reply *reply)
{
    int64_t start = now_ns(CLOCK_MONOTONIC), deadline = start + request->wall_ms * 1000000ll, next_look = start + LOOK_NS;
    struct moment began = {start, before->busy_ticks}, half = began;
    bool shell_ended = false, killed = false, keep = request->flags & REQUEST_KEEP;  /* background processes continue */
    int open_channels = (channels[0].fd >= 0) + (channels[1].fd >= 0);
    while (!shell_ended || open_channels || (!keep && !killed && is_outlived())) {
        struct pollfd watched[4] = {{channels[0].fd, POLLIN, 0}, {channels[1].fd, POLLIN, 0}, {ended, POLLIN, 0}, {feed->fd, POLLOUT, 0}};
        int64_t now = now_ns(CLOCK_MONOTONIC), wake = deadline < next_look ? deadline : next_look;
        int n = poll(watched, 4, killed ? 1000 : wake <= now ? 0 : (int)((wake - now + 999999) / 1000000));
        for (int i = 0; i < 2; i++)
            if (watched[i].revents && !read_channel(&channels[i], request->output_max)) {
                let_go(&channels[i].fd);
                open_channels--;
            }
        if (watched[3].revents) {
            ssize_t written = write(feed->fd, feed->next, feed->left);
            if (written > 0) feed->next += written, feed->left -= (size_t)written;
            if (!feed->left || (written < 0 && errno != EAGAIN && errno != EINTR)) let_go(&feed->fd);
        }
        if (watched[2].revents && reap(shell, &reply->status)) {
            shell_ended = true;
            let_go(slave);
            int64_t last = now_ns(CLOCK_MONOTONIC) + request->background_ms * 1000000ll;
            if (last < deadline) deadline = last;
        }
        if (killed) {
            if (n == 0) return;  /* the process that holds the output cannot be killed */
            continue;
        }
        now = now_ns(CLOCK_MONOTONIC);
        uint32_t why = 0;
        if (channels[0].seen + channels[1].seen > request->drain_max) why = REPLY_OUTPUT_KILLED;
        else if (now >= deadline && !shell_ended) why = REPLY_TIMED_OUT;
        else if (now >= deadline && (open_channels || is_outlived())) why = REPLY_BACKGROUND;
        else if (now >= next_look) {
            while (next_look <= now) next_look += LOOK_NS;
            if (half.ns == start && now - start >= deadline - now) half = (struct moment){now, use_now().busy_ticks};
            why = past_limits(request, before, reply);
            if (*slave >= 0) offer_end_of_file(channels[0].fd);
        }
        if (why == REPLY_TIMED_OUT) {
            struct moment end = {now, use_now().busy_ticks};
            bool long_enough = now - start >= MANY_LOOKS * LOOK_NS;
            if (slept_since(&began, &end) || (long_enough && slept_since(&half, &end))) reply->flags |= REPLY_WAITED;
        }
        if (why) {
            reply->flags |= why;
            kill(-1, SIGKILL);
            killed = true;
        }
    }
}

static void answer(struct reply *reply, struct channel *channels, uint32_t keep)
{
    static struct buffer message;
    for (int i = 0; i < 2; i++)
        if (channels[i].seen > keep) reply->flags |= REPLY_OUTPUT_TRUNCATED;
    reply->output_length = (uint32_t)channels[0].kept.length;
    reply->errors_length = (uint32_t)channels[1].kept.length;
    reply->changes_length = (uint32_t)changes.length;
    message.length = 0;
    buffer_add(&message, reply, sizeof *reply);
    buffer_add(&message, channels[0].kept.bytes, channels[0].kept.length);
    buffer_add(&message, channels[1].kept.bytes, channels[1].kept.length);
    buffer_add(&message, changes.bytes, changes.length);
    send_data(message.bytes, message.length);
}

/* Start the shell. Return its process id, or -1 after an error, which is stored in the reply. */
static pid_t start(char *directory, char *text, const int streams[3], bool terminal, struct reply *reply)
{
    int said[2];
    struct refusal refusal;
    need(pipe2(said, O_CLOEXEC), "pipe");
    pid_t shell = set_uptime() ? fork() : -1;
    if (shell == 0) become(directory, text, streams, terminal, said[1]);
    close(said[1]);
    if (shell < 0) {
        reply->error = errno ? errno : EIO;
        reply->stage = STAGE_NAMESPACES;
    } else if (read(said[0], &refusal, sizeof refusal) == sizeof refusal) {
        reply->error = refusal.error;
        reply->stage = refusal.stage;
        waitpid(shell, NULL, 0);
        shell = -1;
    }
    close(said[0]);
    return shell;
}

/* Return flags for the changes and full file systems that a run left in the machine. */
static uint32_t traces(const struct request *request)
{
    uint32_t flags = 0;
    char hostname[65] = "", domainname[65] = "";
    struct statvfs disk;
    gethostname(hostname, sizeof hostname - 1);
    if (getdomainname(domainname, sizeof domainname - 1) || strcmp(domainname, config.domainname)) flags |= REPLY_HOSTNAME;
    if (strcmp(hostname, config.hostname)) flags |= REPLY_HOSTNAME;
    if (has_news(network_events[0]) || has_news(network_events[1])) flags |= REPLY_NETWORK;
    if (has_news(events) || memory_changed()) flags |= compare(request->scan_ms);
    if (!fstatvfs(root, &disk)) {
        if (disk.f_bfree <= disk.f_blocks / 50 + 256) flags |= REPLY_DISK;  /* including ext4's reserved blocks */
        if (!disk.f_ffree) flags |= REPLY_INODES;
    }
    return flags;
}

static void run(const struct request *request, char *directory, char *text, const uint8_t *standard_input)
{
    static struct channel channels[2];
    static bool writable;
    struct reply reply = {0};
    bool separate = request->flags & REQUEST_SEPARATE, terminal = request->flags & REQUEST_TERMINAL;
    bool first = !pristine.count, keep = request->flags & REQUEST_KEEP;
    int out[2] = {-1, -1}, err[2] = {-1, -1}, in[2] = {-1, -1};
    if (!first && !writable) {
        /* until here it was read-only, so the saved machine's cache always matches the disk image */
        need(mount(NULL, "/", NULL, MS_REMOUNT, ""), "make the root writable");
        writable = true;
        forget(events);
    }
    forget(network_events[0]);
    forget(network_events[1]);
    if (terminal) need(open_terminal(out) ? 0 : -1, "terminal");
    else need(pipe2(out, O_CLOEXEC), "pipe");
    if (separate) need(pipe2(err, O_CLOEXEC), "pipe");
    if (request->stdin_length) need(pipe2(in, O_CLOEXEC), "pipe");
    else in[0] = terminal ? dup(out[1]) : open("/dev/null", O_RDONLY | O_CLOEXEC);
    channels[0] = (struct channel){.fd = out[0]};
    channels[1] = (struct channel){.fd = err[0]};
    for (int i = 0; i < 2; i++) if (channels[i].fd >= 0) fcntl(channels[i].fd, F_SETFL, O_NONBLOCK);
    struct feed feed = {in[1], standard_input, request->stdin_length};
    if (in[1] >= 0) fcntl(in[1], F_SETFL, O_NONBLOCK);
    struct use before = use_now();
    strcpy(own, read_children());
    if (!keep) put_number("sys/kernel/threads-max", (long)(before.threads + config.processes));
    put_number("sys/kernel/ns_last_pid", SHELL_PID - 1);
    reply.started_ns = now_ns(CLOCK_REALTIME);
    pid_t shell = start(directory, text, (int[]){in[0], out[1], separate ? err[1] : out[1]}, terminal, &reply);
    int slave = terminal ? out[1] : -1;  /* closing it before the shell has ended would hang up */
    if (!terminal) close(out[1]);
    let_go(&err[1]);
    let_go(&in[0]);
    changes.length = 0;
    if (shell > 0) {
        watch(request, shell, &before, channels, &feed, &slave, &reply);
        if (!keep) {
            do kill(-1, SIGKILL);
            while (waitpid(-1, NULL, __WALL) > 0 || errno == EINTR);
        }
    }
    let_go(&feed.fd);
    let_go(&slave);
    for (int i = 0; i < 2; i++) let_go(&channels[i].fd);
    reply.ended_ns = now_ns(CLOCK_REALTIME);
    if (first) remember();
    else if (!keep) reply.flags |= traces(request);
    answer(&reply, channels, request->output_max);
}

static void prepare(int argc, char **argv)
{
    read_configuration();
    proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    need(proc, "open /proc");
    child_list = openat(proc, "1/task/1/children", O_RDONLY | O_CLOEXEC);
    need(child_list, "open the children of process 1");
    used_time = openat(proc, "stat", O_RDONLY | O_CLOEXEC);
    used_memory = openat(proc, "meminfo", O_RDONLY | O_CLOEXEC);
    root = (int)syscall(SYS_open_tree, AT_FDCWD, "/", OPEN_TREE_CLONE | O_CLOEXEC);
    memory = (int)syscall(SYS_open_tree, AT_FDCWD, "/dev/shm", OPEN_TREE_CLONE | O_CLOEXEC);
    need(root, "open /");
    need(memory, "open /dev/shm");
    need(sethostname(config.hostname, strlen(config.hostname)), "hostname");
    need(setdomainname(config.domainname, strlen(config.domainname)), "domain name");
    size_t room = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);
    start_declared(argv[0], room);
    memset(argv[0], 0, room);
    strncpy(argv[0], "/sbin/init", room);
    prctl(PR_SET_NAME, "systemd");
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    ended = signalfd(-1, &children, SFD_NONBLOCK | SFD_CLOEXEC);
    need(ended, "signalfd");
    send_data("R\n", 2);
}

void serve_bare(int argc, char **argv)
{
    static char directory[CWD_MAX + 1], text[INPUT_MAX + 1];
    static uint8_t standard_input[STDIN_MAX];
    struct request request;
    prepare(argc, argv);
    for (;;) {
        read_all(control, &request, sizeof request);
        if (request.cwd_length >= CWD_MAX || request.input_length >= INPUT_MAX || request.stdin_length > STDIN_MAX)
            die("a request that is too long");
        read_all(control, directory, request.cwd_length);
        read_all(control, text, request.input_length);
        read_all(control, standard_input, request.stdin_length);
        directory[request.cwd_length] = text[request.input_length] = 0;
        run(&request, directory, text, standard_input);
    }
}
