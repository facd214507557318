/* The one process outside a sandbox that works for it: makes the namespaces and mounts, has the fork
 * server run one input at a time, bounds it, asks what it changed, and makes everything pristine again.
 *
 *   shioenv-sandbox run FD UID GID        its user namespace is mapped by the peer on FD, so that id 0 is
 *                                         the host's UID and GID; then it is configured and used over FD
 *   shioenv-sandbox exec FD PROGRAM...    mapped in the same way; then PROGRAM as id 0
 *
 * Two user namespaces, so that nothing an input holds is a capability over what the supervisor made:
 *   outer: this process and the fork server; owns the mounts.
 *   inner: the input; owns its network, IPC, UTS, pid, cgroup and time namespaces and, for each run, a
 *          copy of the mounts in which every mount is locked (it cannot be removed or made writable).
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway.h"
#include "scan.h"
#include "server.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080
#endif
#define SHELL_PID 1000
#define PROCESS_SLACK 16u  /* the supervisor's own, init and the fork server */

static int control;  /* the Python side */

/* What every run gets. Kept here and written to the shared memory anew before each run: the last one may
 * have left anything there. */
static struct {
    uint32_t processors, n_rlimits;
    struct { uint32_t resource; uint64_t soft, hard; } rlimits[16];
} bounds;

/* ---- failures before the first request: one line to the peer ------------------------------------ */

static void write_all(int fd, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length) {
        ssize_t n = write(fd, at, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) _exit(0);  /* the peer is gone, and with it the reason to go on */
        at += n;
        length -= (size_t)n;
    }
}

static bool read_all(int fd, void *bytes, size_t length)
{
    char *at = bytes;
    while (length) {
        ssize_t n = read(fd, at, length);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        at += n;
        length -= (size_t)n;
    }
    return true;
}

/* Tells the peer which step failed ("E<errno> <step>\n") and ends. */
static void __attribute__((noreturn, format(printf, 1, 2))) die(const char *format, ...)
{
    int error = errno;
    char line[512];
    int length = snprintf(line, sizeof line, "E%d ", error);
    va_list more;
    va_start(more, format);
    length += vsnprintf(line + length, sizeof line - (size_t)length - 1, format, more);
    va_end(more);
    line[length++] = '\n';
    write_all(control, line, (size_t)length);
    _exit(125);
}

#define CHECK(call, ...) do { if ((call) < 0) die(__VA_ARGS__); } while (0)

/* ---- user namespaces ---------------------------------------------------------------------------- */

/* Enters a new user namespace and waits until the peer has mapped its ids, then becomes id 0. */
static void enter_user_namespace(void)
{
    CHECK(unshare(CLONE_NEWUSER), "unshare user namespace");
    write_all(control, "U\n", 2);
    char go;
    if (!read_all(control, &go, 1) || go != 'M') _exit(125);
    CHECK(setresgid(0, 0, 0), "setresgid 0 in the user namespace");
    CHECK(setgroups(0, NULL), "setgroups in the user namespace");
    CHECK(setresuid(0, 0, 0), "setresuid 0 in the user namespace");
    prctl(PR_SET_DUMPABLE, 1);
}

static void write_file(int directory, const char *path, const char *text)
{
    int fd = openat(directory, path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) die("write %s", path);
    close(fd);
}

/* ---- configuration ------------------------------------------------------------------------------ */

static struct {
    char *environment[256];
    int n_environment;
    char hostname[65], domainname[65], shell_mode[8], directory[CWD_MAX];
    long long uptime;
    char disk[128];  /* tmpfs options */
    char web_date[64];  /* the only time the gateway's web server knows */
    char device[64];   /* what `df` calls the file system of / */
    struct { uint8_t *bytes; uint32_t length; } netlink, gateway;  /* rtnetlink messages */
    struct sock_fprog seccomp;
    struct { char *name; uint8_t *bytes; uint32_t length; } covers[8];  /* of /proc, made for this sandbox */
    int n_covers;
} config;

static void copy_text(char *to, size_t room, const char *from, uint32_t length)
{
    if (length >= room) { errno = ENAMETOOLONG; die("configuration text of %u bytes", length); }
    memcpy(to, from, length);
    to[length] = 0;
}

static uint8_t *preload_bytes;
static uint32_t preload_length;

static void read_configuration(void)
{
    struct record record;
    for (;;) {
        if (!read_all(control, &record, sizeof record)) _exit(0);
        if (record.kind == CONFIG_END) return;
        char *value = calloc(1, record.length + 1);
        if (!value || !read_all(control, value, record.length)) _exit(0);
        switch (record.kind) {
        case CONFIG_ENVIRONMENT:
            if (config.n_environment < 250) config.environment[config.n_environment++] = value;
            continue;  /* kept */
        case CONFIG_HOSTNAME: copy_text(config.hostname, sizeof config.hostname, value, record.length); break;
        case CONFIG_DOMAINNAME: copy_text(config.domainname, sizeof config.domainname, value, record.length); break;
        case CONFIG_UPTIME: config.uptime = atoll(value); break;
        case CONFIG_PROCESSORS: bounds.processors = (uint32_t)atol(value); break;
        case CONFIG_DISK: copy_text(config.disk, sizeof config.disk, value, record.length); break;
        case CONFIG_SHELL: copy_text(config.shell_mode, sizeof config.shell_mode, value, record.length); break;
        case CONFIG_WEB_DATE: copy_text(config.web_date, sizeof config.web_date, value, record.length); break;
        case CONFIG_DEVICE: copy_text(config.device, sizeof config.device, value, record.length); break;
        case CONFIG_DIRECTORY: copy_text(config.directory, sizeof config.directory, value, record.length); break;
        case CONFIG_NETLINK:
            config.netlink.bytes = (uint8_t *)value;
            config.netlink.length = record.length;
            continue;
        case CONFIG_GATEWAY:
            config.gateway.bytes = (uint8_t *)value;
            config.gateway.length = record.length;
            continue;
        case CONFIG_PRELOAD:
            preload_bytes = (uint8_t *)value;
            preload_length = record.length;
            continue;
        case CONFIG_COVER: {
            size_t name = strlen(value) + 1;
            if (config.n_covers == 8 || name > record.length) { errno = E2BIG; die("cover %s", value); }
            config.covers[config.n_covers].name = value;
            config.covers[config.n_covers].bytes = (uint8_t *)value + name;
            config.covers[config.n_covers++].length = record.length - (uint32_t)name;
            continue;
        }
        case CONFIG_SECCOMP:
            config.seccomp.filter = (struct sock_filter *)value;
            config.seccomp.len = (unsigned short)(record.length / sizeof(struct sock_filter));
            continue;
        case CONFIG_RLIMITS:
            for (uint32_t at = 0; at + 24 <= record.length && bounds.n_rlimits < 16; at += 24) {
                uint64_t triple[3];
                memcpy(triple, value + at, sizeof triple);
                bounds.rlimits[bounds.n_rlimits].resource = (uint32_t)triple[0];
                bounds.rlimits[bounds.n_rlimits].soft = triple[1];
                bounds.rlimits[bounds.n_rlimits++].hard = triple[2];
            }
            break;
        default: errno = EINVAL; die("configuration record %u", record.kind);
        }
        free(value);
    }
}

static void do_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data)
{
    CHECK(mount(source, target, type, flags, data), "mount %s on %s (%s)", type ? type : source ? source : "again", target,
          data ? data : "");
}

/* ---- namespaces --------------------------------------------------------------------------------- */

static int host_proc = -1;  /* the host's /proc, reachable by descriptor alone */
static int ns_user = -1, ns_pid = -1, ns_time = -1, ns_gateway = -1, ns_outer_mounts = -1;
static int server_socket = -1, init_to = -1, init_from = -1, children_fd = -1, siblings_fd = -1,
           shared_fd = -1;
static pid_t init_pid;
static int net_events = -1, filter_events = -1, policy_events = -1, queues = -1;

static int open_ns(pid_t pid, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "%d/ns/%s", (int)pid, name);
    int fd = openat(host_proc, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) die("open namespace %s", path);
    return fd;
}

static void join(int fd, int kind, const char *name) { CHECK(setns(fd, kind), "join %s namespace", name); }

/* Sends prepared rtnetlink messages one by one and insists on each acknowledgement. */
static void send_netlink(const uint8_t *bytes, uint32_t length)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    CHECK(fd, "netlink socket");
    for (uint32_t at = 0; at + sizeof(struct nlmsghdr) <= length;) {
        struct nlmsghdr header;
        memcpy(&header, bytes + at, sizeof header);
        if (header.nlmsg_len < sizeof header || at + header.nlmsg_len > length) break;
        CHECK(send(fd, bytes + at, header.nlmsg_len, 0), "netlink send");
        union { struct nlmsghdr header; char bytes[8192]; } answer;
        CHECK(recv(fd, &answer, sizeof answer, 0), "netlink receive");
        if (answer.header.nlmsg_type == NLMSG_ERROR) {
            int error = ((struct nlmsgerr *)NLMSG_DATA(&answer.header))->error;
            if (error) { errno = -error; die("configure the network (message at byte %u)", at); }
        }
        at += NLMSG_ALIGN(header.nlmsg_len);
    }
    close(fd);
}

static int web_listener = -1, web_root = -1;

/* The system's ./web, where it has one, is what the gateway serves. */
static void listen_for_web(void)
{
    web_root = open("web", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (web_root < 0) return;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(80)};
    web_listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(web_listener, "web socket");
    CHECK(bind(web_listener, (struct sockaddr *)&address, sizeof address), "bind the web server");
    CHECK(listen(web_listener, 64), "listen");
}

/* A process of the inner user namespace that can reach the files it serves and nothing else. */
static void start_web(void)
{
    if (web_listener < 0) return;
    pid_t server = fork();
    CHECK(server, "fork the web server");
    if (server) {
        close(web_listener);
        close(web_root);
        return;
    }
    prctl(PR_SET_NAME, "gateway");
    if (chroot("/empty") || chdir("/") || setns(ns_user, CLONE_NEWUSER)) _exit(125);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    dup2(web_listener, 0);
    dup2(web_root, 1);
    syscall(SYS_close_range, 2u, ~0u, 0u);
    serve_web(0, 1, config.web_date);
}

/* The declared interfaces, each a cable whose other end is the gateway: a namespace no input can enter,
 * that answers for the gateway's addresses and says of every other that it cannot be reached. */
static void configure_network(int inside, int gateway)
{
    CHECK(dup2(gateway, FD_GATEWAY), "dup2");
    send_netlink(config.netlink.bytes, config.netlink.length);
    join(gateway, CLONE_NEWNET, "gateway network");
    write_file(host_proc, "sys/net/ipv4/ip_forward", "1");
    write_file(host_proc, "sys/net/ipv4/icmp_ratelimit", "0");
    send_netlink(config.gateway.bytes, config.gateway.length);
    listen_for_web();
    join(inside, CLONE_NEWNET, "network");
    close(FD_GATEWAY);
}

static void close_fd(int *fd)
{
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Process 1 inside: reaps orphans and, for each byte read, kills everything else and answers when it is
 * gone. The first byte says that the mounts are ready. Ends, and with it everything inside, when the
 * supervisor does. */
static void __attribute__((noreturn)) run_init(int from, int to)
{
    char byte = 0;
    dup2(from, 0);
    dup2(to, 1);
    syscall(SYS_close_range, 2u, ~0u, 0u);
    prctl(PR_SET_NAME, "init");
    prctl(PR_SET_DUMPABLE, 0);
    setsid();
    signal(SIGCHLD, SIG_IGN);
    if (read(0, &byte, 1) != 1 || chroot("/empty") || chdir("/") || write(1, &byte, 1) != 1) _exit(0);
    for (;;) {
        if (read(0, &byte, 1) != 1) _exit(0);
        /* Orphans become this process's children only when their parents are gone: again until none is
         * left. The shell itself is the fork server's to reap. */
        while (!kill(-1, SIGKILL)) {
            while (waitpid(-1, NULL, __WALL) > 0 || errno != ECHILD) {}
            nanosleep(&(struct timespec){0, 50000}, NULL);
        }
        if (write(1, &byte, 1) != 1) _exit(0);
    }
}

static bool init_alive = true;

/* One turn of init's loop. */
static void ask_init(void)
{
    char byte = 0;
    if (write(init_to, &byte, 1) != 1 || read(init_from, &byte, 1) != 1) init_alive = false;
}

/* Makes the inner user namespace and what it owns by way of a short-lived child, and joins all but
 * the user and pid namespaces. */
static void make_inner_namespaces(void)
{
    /* Owned out here: inside, the host's groups cannot be mounted. */
    CHECK(unshare(CLONE_NEWCGROUP), "unshare cgroup namespace");
    int up[2], down[2], to_init[2], from_init[2];
    if (pipe2(up, O_CLOEXEC) || pipe2(down, O_CLOEXEC) || pipe2(to_init, O_CLOEXEC) || pipe2(from_init, O_CLOEXEC))
        die("pipe");
    pid_t child = fork();
    CHECK(child, "fork");
    char byte = 0;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        /* The limit that a user namespace's maker has holds for all ids in it together. */
        for (uint32_t i = 0; i < bounds.n_rlimits; i++)
            if (bounds.rlimits[i].resource == RLIMIT_NPROC) {
                rlim_t most = bounds.rlimits[i].hard + PROCESS_SLACK;
                struct rlimit limit = {most, most};
                setrlimit(RLIMIT_NPROC, &limit);
            }
        if (unshare(CLONE_NEWUSER) || write(up[1], &byte, 1) != 1 || read(down[0], &byte, 1) != 1)
            die("unshare inner user namespace");
        CHECK(unshare(CLONE_NEWNET), "unshare gateway network namespace");
        if (write(up[1], &byte, 1) != 1 || read(down[0], &byte, 1) != 1) _exit(125);
        CHECK(unshare(CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWPID | CLONE_NEWTIME),
              "unshare inner namespaces");
        /* Link-local addresses at once and by the hardware address alone, no solicitations: what the
         * network shows depends on nothing but the declaration. */
        static const char *const quiet[] = {"accept_dad", "router_solicitations", "accept_ra", "addr_gen_mode"};
        for (unsigned i = 0; i < sizeof quiet / sizeof *quiet; i++) {
            char setting[96];
            snprintf(setting, sizeof setting, "sys/net/ipv6/conf/default/%s", quiet[i]);
            if (!faccessat(host_proc, setting, F_OK, 0)) write_file(host_proc, setting, "0");
        }
        /* No namespaces inside namespaces: they are the kernel's largest attack surface. */
        write_file(host_proc, "sys/user/max_user_namespaces", "0");
        CHECK(sethostname(config.hostname, strlen(config.hostname)), "sethostname");
        CHECK(setdomainname(config.domainname, strlen(config.domainname)), "setdomainname");
        struct timespec since_boot;
        clock_gettime(CLOCK_BOOTTIME, &since_boot);
        long long offset = config.uptime - (long long)since_boot.tv_sec;
        char offsets[96];
        snprintf(offsets, sizeof offsets, "boottime %lld 0\nmonotonic %lld 0\n", offset, offset);
        write_file(host_proc, "self/timens_offsets", offsets);
        /* The pid and time namespaces exist for others once a process is in them. */
        pid_t init = fork();
        CHECK(init, "fork init");
        if (init == 0) run_init(to_init[0], from_init[1]);
        if (write(up[1], &init, sizeof init) != sizeof init) _exit(125);
        for (;;) pause();
    }
    char path[64];
    if (read(up[0], &byte, 1) != 1) _exit(125);
    snprintf(path, sizeof path, "%d/uid_map", (int)child);
    write_file(host_proc, path, "0 0 65536\n");
    snprintf(path, sizeof path, "%d/gid_map", (int)child);
    write_file(host_proc, path, "0 0 65536\n");
    if (write(down[1], &byte, 1) != 1 || read(up[0], &byte, 1) != 1) _exit(125);
    int gateway = open_ns(child, "net");
    if (write(down[1], &byte, 1) != 1 || read(up[0], &init_pid, sizeof init_pid) != sizeof init_pid) _exit(125);
    close(up[0]); close(up[1]); close(down[0]); close(down[1]); close(to_init[0]); close(from_init[1]);
    init_to = to_init[1];
    init_from = from_init[0];

    ns_user = open_ns(child, "user");
    ns_pid = open_ns(child, "pid_for_children");
    ns_time = open_ns(child, "time_for_children");
    int net = open_ns(child, "net"), ipc = open_ns(child, "ipc"), uts = open_ns(child, "uts");
    join(net, CLONE_NEWNET, "network");
    join(ipc, CLONE_NEWIPC, "IPC");
    join(uts, CLONE_NEWUTS, "UTS");
    configure_network(net, gateway);
    close(net); close(ipc); close(uts);
    ns_gateway = gateway;  /* held: without it the cables are gone */
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* ---- mounts ------------------------------------------------------------------------------------- */

/* A bind mount made read-only; flags inherited from the host are locked and must be repeated. */
static void make_read_only(const char *target)
{
    struct statvfs status;
    CHECK(statvfs(target, &status), "statvfs %s", target);
    unsigned long flags = MS_BIND | MS_REMOUNT | MS_RDONLY;
    if (status.f_flag & ST_NOSUID) flags |= MS_NOSUID;
    if (status.f_flag & ST_NODEV) flags |= MS_NODEV;
    if (status.f_flag & ST_NOEXEC) flags |= MS_NOEXEC;
    if (status.f_flag & ST_NOATIME) flags |= MS_NOATIME;
    if (status.f_flag & ST_NODIRATIME) flags |= MS_NODIRATIME;
    if (status.f_flag & ST_RELATIME) flags |= MS_RELATIME;
    do_mount(NULL, target, NULL, flags, NULL);
}

static void make_directory(const char *path) { CHECK(mkdir(path, 0755), "mkdir %s", path); }

static void touch_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    CHECK(fd, "create %s", path);
    close(fd);
}

static void copy_file(const char *from, const char *to)
{
    static char bytes[1 << 16];
    int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (in < 0 || out < 0) die("copy %s to %s", from, to);
    ssize_t n;
    while ((n = read(in, bytes, sizeof bytes)) > 0) write_all(out, bytes, (size_t)n);
    close(in);
    close(out);
}

static void write_over(const char *path, int cover)
{
    int fd = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    CHECK(fd, "write %s", path);
    write_all(fd, config.covers[cover].bytes, config.covers[cover].length);
    close(fd);
}

/* Kernel interfaces that show the host, covered with what the declared machine shows: the files of
 * ./proc, at any depth, stand over those of the same path in `proc`. They are copied to `covers` first,
 * a file system of no size, or `df` would show the host's disk. */
static void cover_proc(const char *from, const char *covers, const char *proc)
{
    DIR *list = opendir(from);
    struct dirent *entry;
    while (list && (entry = readdir(list))) {
        if (entry->d_name[0] == '.') continue;
        char source[512], cover[512], target[512];
        snprintf(source, sizeof source, "%s/%s", from, entry->d_name);
        snprintf(cover, sizeof cover, "%s/%s", covers, entry->d_name);
        snprintf(target, sizeof target, "%s/%s", proc, entry->d_name);
        struct stat status;
        if (stat(target, &status)) continue;
        if (S_ISDIR(status.st_mode)) {
            make_directory(cover);
            cover_proc(source, cover, target);
            continue;
        }
        if (!(status.st_mode & 0004)) continue;  /* its root's alone, and nobody inside is that */
        copy_file(source, cover);
        for (int i = 0; i < config.n_covers; i++)
            if (!strcmp(config.covers[i].name, entry->d_name)) write_over(cover, i);
        do_mount(cover, target, NULL, MS_BIND, NULL);
    }
    if (list) closedir(list);
}

/* What /proc tells everybody of the host and `covers` does not stand over: such files and directories are
 * empty, and /proc/sys is read-only. */
static void mask_proc(const char *proc, const char *covers, const char *empty_file, const char *empty_directory)
{
    static const char *const files[] = {
        "keys", "key-users", "kallsyms", "sched_debug", "schedstat", "timer_list", "iomem", "ioports", "dma",
        "config.gz", "bootconfig", "softirqs", "buddyinfo", "locks", "misc", "mtrr", "fb", "cgroups", "consoles",
        "sysrq-trigger", "latency_stats",
    };
    static const char *const directories[] = {
        "acpi", "bus", "driver", "fs", "irq", "scsi", "asound", "dynamic_debug", "pressure",
    };
    char path[512];
    struct stat status;
    for (unsigned i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/%s", covers, files[i]);
        if (!stat(path, &status)) continue;
        snprintf(path, sizeof path, "%s/%s", proc, files[i]);
        if (!stat(path, &status) && status.st_mode & 0006)
            do_mount(empty_file, path, NULL, MS_BIND, NULL);
    }
    for (unsigned i = 0; i < sizeof directories / sizeof *directories; i++) {
        snprintf(path, sizeof path, "%s/%s", proc, directories[i]);
        if (!stat(path, &status) && status.st_mode & 0001)
            do_mount(empty_directory, path, NULL, MS_BIND, NULL);
    }
    snprintf(path, sizeof path, "%s/sys", proc);
    do_mount(path, path, NULL, MS_BIND | MS_REC, NULL);
    make_read_only(path);
}

/* Mounts the /proc of the input's pid namespace, which takes a process in it that owns the mounts. */
static void mount_proc(const char *target)
{
    pid_t middle = fork();
    CHECK(middle, "fork");
    int status = 0;
    if (middle == 0) {
        CHECK(setns(ns_pid, CLONE_NEWPID), "join pid namespace");
        pid_t inside = fork();
        CHECK(inside, "fork");
        if (inside == 0) {
            if (mount("proc", target, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL)) die("mount proc");
            _exit(0);
        }
        waitpid(inside, &status, 0);
        _exit(status ? 125 : 0);
    }
    waitpid(middle, &status, 0);
    if (status) _exit(125);
}

/* A mount namespace of its own, from which nothing spreads to where it was copied from. */
static void own_mounts(void)
{
    CHECK(unshare(CLONE_NEWNS), "unshare mount namespace");
    do_mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
enum { N_DEVICES = sizeof devices / sizeof devices[0] };

#define STAGING "/tmp"  /* where the outer mounts are put together before they become the root */

/* As the host's root, before it gives that up: device nodes that belong to id 0 inside and show no file
 * system of the host. An ordinary user has only the host's own (see make_outer_mounts). */
static bool own_nodes;

static void make_device_nodes(uid_t uid, gid_t gid)
{
    static const unsigned numbers[N_DEVICES][2] = {{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}};
    own_mounts();
    do_mount("udev", STAGING, "tmpfs", MS_NOSUID | MS_NOEXEC, "size=0,mode=755");
    umask(0);
    own_nodes = true;
    for (unsigned i = 0; i < N_DEVICES && own_nodes; i++) {
        char path[64], placeholder_path[64];
        snprintf(path, sizeof path, STAGING "/%s", devices[i]);
        if (mknod(path, S_IFCHR | 0666, makedev(numbers[i][0], numbers[i][1])) || chown(path, uid, gid)) {
            umount2(STAGING, MNT_DETACH);  /* root of a container that may not: the host's own nodes then */
            own_nodes = false;
        }
        struct stat placeholder;
        snprintf(placeholder_path, sizeof placeholder_path, "rootfs/dev/%s", devices[i]);
        if (own_nodes && !stat(placeholder_path, &placeholder)) {
            struct timespec times[2] = {placeholder.st_atim, placeholder.st_mtim};
            utimensat(AT_FDCWD, path, times, 0);
        }
    }
    umask(022);
}

/* The first mount tree: everything the later ones are made of. Nothing of the host is left in it. */
static void make_outer_mounts(void)
{
    int nodes[N_DEVICES];
    for (unsigned i = 0; i < N_DEVICES; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", own_nodes ? STAGING : "/dev", devices[i]);
        nodes[i] = open(path, O_PATH | O_CLOEXEC);
        CHECK(nodes[i], "open %s", path);
    }
    do_mount("proc", STAGING, "tmpfs", MS_NOSUID | MS_NODEV, "size=0,mode=755");
    static const char *const names[] = {"lower", "proc", "devices", "empty", "mount", "layer", "old", "queues", "covers"};
    char path[512];
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, STAGING "/%s", names[i]);
        make_directory(path);
    }
    do_mount("rootfs", STAGING "/lower", NULL, MS_BIND, NULL);
    make_read_only(STAGING "/lower");
    for (unsigned i = 0; i < N_DEVICES; i++) {
        char node[64];
        snprintf(node, sizeof node, "/proc/self/fd/%d", nodes[i]);
        snprintf(path, sizeof path, STAGING "/devices/%s", devices[i]);
        touch_file(path);
        do_mount(node, path, NULL, MS_BIND, NULL);
        make_read_only(path);  /* who owns it and when it changed: a device is written to all the same */
        close(nodes[i]);
    }
    do_mount("mqueue", STAGING "/queues", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    mount_proc(STAGING "/proc");
    /* A file system of its own, made read-only after it was filled: what covers /proc is bound from it. */
    do_mount("proc", STAGING "/covers", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0,mode=555");
    touch_file(STAGING "/covers/.empty");
    make_directory(STAGING "/covers/.directory");
    cover_proc("proc", STAGING "/covers", STAGING "/proc");
    mask_proc(STAGING "/proc", STAGING "/covers", STAGING "/covers/.empty", STAGING "/covers/.directory");
    do_mount(NULL, STAGING "/covers", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0");
    CHECK(chdir(STAGING), "chdir to the new root");
    CHECK((int)syscall(SYS_pivot_root, ".", "old"), "pivot_root");
    CHECK(chdir("/"), "chdir /");
    CHECK(umount2("/old", MNT_DETACH), "detach the host's mounts");
    ns_outer_mounts = openat(host_proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
    CHECK(ns_outer_mounts, "open own mount namespace");
    ask_init();
    if (!init_alive) { errno = ECHILD; die("move init"); }
    queues = open("/queues", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int lower_root = -1, upper_root = -1, merged_root = -1;  /* of the current layer */

struct disk_state { uint64_t files, blocks, mode; struct timespec changed, modified; };
static struct disk_state pristine_disk;

static struct disk_state disk_state(void)
{
    struct statfs space;
    struct stat root;
    struct disk_state state = {0};
    if (!fstatfs(upper_root, &space)) state.files = space.f_ffree, state.blocks = space.f_bfree;
    if (!fstat(upper_root, &root)) {
        state.mode = root.st_mode;
        state.changed = root.st_ctim;
        state.modified = root.st_mtim;
    }
    return state;
}

static void send_fds(int fd, const void *body, size_t length, const int *fds, int n)
{
    union { char bytes[CMSG_SPACE(2 * sizeof(int))]; struct cmsghdr header; } ancillary = {0};
    struct iovec vector = {(void *)body, length};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (n) {
        message.msg_control = ancillary.bytes;
        message.msg_controllen = CMSG_SPACE((size_t)n * sizeof(int));
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN((size_t)n * sizeof(int));
        memcpy(CMSG_DATA(header), fds, (size_t)n * sizeof(int));
    }
    sendmsg(fd, &message, MSG_NOSIGNAL);
}

static struct server_reply ask_server(uint32_t op, int fd)
{
    struct server_request request = {op, 0};
    struct server_reply reply = {.error = EPIPE};
    send_fds(server_socket, &request, sizeof request, &fd, 1);
    if (recv(server_socket, &reply, sizeof reply, 0) != sizeof reply) reply.error = EPIPE;
    return reply;
}

/* A mount namespace whose root is a pristine system: an empty tmpfs over the lower layer, with /proc
 * and the devices in place. Returns its descriptor; the supervisor itself is back in the outer mounts
 * afterwards, and dropping the descriptor (and the last shell in a copy of it) unmounts everything. */
static int make_layer(bool with_library)
{
    close_fd(&lower_root);
    close_fd(&upper_root);
    close_fd(&merged_root);
    CHECK(unshare(CLONE_NEWNS), "unshare mount namespace");
    do_mount("none", "/layer", "tmpfs", MS_NOSUID | MS_NODEV, config.disk);
    make_directory("/layer/upper");
    make_directory("/layer/work");
    lower_root = open("/lower", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    upper_root = open("/layer/upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat root;
    CHECK(fstat(lower_root, &root), "stat the system's root");
    CHECK(fchown(upper_root, root.st_uid, root.st_gid), "chown the upper root");
    CHECK(fchmod(upper_root, root.st_mode & 07777), "chmod the upper root");
    if (with_library) {
        int fd = openat(upper_root, ".shioenv.so", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
        CHECK(fd, "create the preload library");
        write_all(fd, preload_bytes, preload_length);
        close(fd);
    }
    struct timespec times[2] = {root.st_atim, root.st_mtim};
    futimens(upper_root, times);
    do_mount(config.device, "/mount", "overlay", 0,
             "lowerdir=/lower,upperdir=/layer/upper,workdir=/layer/work,userxattr,xino=on,index=on");
    do_mount("/proc", "/mount/proc", NULL, MS_BIND | MS_REC, NULL);
    for (unsigned i = 0; i < N_DEVICES; i++) {
        char source[64], target[64];
        snprintf(source, sizeof source, "/devices/%s", devices[i]);
        snprintf(target, sizeof target, "/mount/dev/%s", devices[i]);
        do_mount(source, target, NULL, MS_BIND, NULL);
    }
    do_mount("/queues", "/mount/dev/mqueue", NULL, MS_BIND, NULL);
    CHECK(chdir("/mount"), "chdir to the layer");
    CHECK((int)syscall(SYS_pivot_root, ".", "."), "pivot_root to the layer");
    CHECK(umount2(".", MNT_DETACH), "detach the outer mounts");
    CHECK(chdir("/"), "chdir /");
    merged_root = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = openat(host_proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
    CHECK(fd, "open the layer's mount namespace");
    join(ns_outer_mounts, CLONE_NEWNS, "outer mount");
    pristine_disk = disk_state();
    return fd;
}

/* Whether anything of a run is still there: a child of init, or one that the shell made its own sibling. */
static bool has_survivors(void)
{
    char text[16];
    return pread(children_fd, text, sizeof text, 0) > 0 || pread(siblings_fd, text, sizeof text, 0) > 0;
}

static int open_children(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "%d/task/%d/children", (int)pid, (int)pid);
    int fd = openat(host_proc, path, O_RDONLY | O_CLOEXEC);
    CHECK(fd, "open %s", path);
    return fd;
}

/* ---- the fork server ---------------------------------------------------------------------------- */

static void start_server(int layer)
{
    int pair[2];
    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
    int last_pid = openat(host_proc, "sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
    CHECK(last_pid, "open ns_last_pid");
    pid_t server = fork();
    CHECK(server, "fork the server");
    if (server == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        join(ns_time, CLONE_NEWTIME, "time");
        join(layer, CLONE_NEWNS, "layer mount");
        int nowhere = open("/dev/null", O_RDWR);
        for (int i = 0; i < 3; i++) dup2(nowhere, i);
        dup2(pair[1], FD_CONTROL);
        dup2(shared_fd, FD_SHARED);
        dup2(last_pid, FD_LAST_PID);
        dup2(layer, FD_MOUNTS);
        dup2(ns_user, FD_USER);
        dup2(host_proc, FD_PROC);
        syscall(SYS_close_range, 3u, FD_CONTROL - 1u, 0u);
        syscall(SYS_close_range, FD_PROC + 1u, ~0u, 0u);
        for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
        sigset_t none;
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        umask(022);
        if (chdir(config.directory)) CHECK(chdir("/"), "chdir /");
        if (!strcmp(config.shell_mode, "fresh")) {
            serve();
            exec_fresh(config.environment);
        }
        static char mode[32], *environment[260];
        snprintf(mode, sizeof mode, "SHIOENV_SERVER=%s", config.shell_mode);
        int n = 0;
        for (; n < config.n_environment; n++) environment[n] = config.environment[n];
        environment[n++] = mode;
        environment[n++] = "LD_PRELOAD=/.shioenv.so";
        if (!strcmp(config.shell_mode, "late")) environment[n++] = "BASH_ENV=/.shioenv-late";
        char *arguments[] = {"bash", "--norc", "--noprofile", "-c", ":", NULL};
        execve("/bin/bash", arguments, environment);
        _exit(125);
    }
    close(pair[1]);
    close(last_pid);
    server_socket = pair[0];
    siblings_fd = open_children(server);
    struct server_reply reply = ask_server(SERVER_PIDS, ns_pid);
    if (reply.error) { errno = reply.error; die("start the fork server (%s)", config.shell_mode); }
}

/* ---- what else a run may leave behind ----------------------------------------------------------- */

struct leftovers {
    int shm, msg, sem;
    struct { off_t size; mode_t mode; struct timespec changed; } queues;
    char host[65], domain[65];
};
static struct leftovers pristine;

static struct leftovers leftovers(void)
{
    struct leftovers now;
    memset(&now, 0, sizeof now);
    union { struct shm_info shm; struct msginfo msg; struct seminfo sem; } info;
    memset(&info, 0, sizeof info);
    shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&info);
    now.shm = info.shm.used_ids;
    msgctl(0, MSG_INFO, (struct msqid_ds *)(void *)&info);
    now.msg = info.msg.msgpool;
    semctl(0, 0, SEM_INFO, &info);
    now.sem = info.sem.semusz;
    struct stat directory;
    if (!fstat(queues, &directory)) {
        now.queues.size = directory.st_size;  /* grows by each queue */
        now.queues.mode = directory.st_mode;
        now.queues.changed = directory.st_ctim;
    }
    struct utsname names;
    uname(&names);
    memcpy(now.host, names.nodename, sizeof now.host);
    memcpy(now.domain, names.domainname, sizeof now.domain);
    return now;
}

/* Process 1 belongs to the input's user, who may renice it and the like: what the next run would see. */
struct init_state { int nice, policy, io; cpu_set_t processors; struct rlimit limits[RLIM_NLIMITS]; };
static struct init_state pristine_init;

static struct init_state init_state(void)
{
    struct init_state now;
    memset(&now, 0, sizeof now);
    now.nice = getpriority(PRIO_PROCESS, (id_t)init_pid);
    now.policy = sched_getscheduler(init_pid);
    now.io = (int)syscall(SYS_ioprio_get, 1, init_pid);
    sched_getaffinity(init_pid, sizeof now.processors, &now.processors);
    for (int i = 0; i < RLIM_NLIMITS; i++) prlimit(init_pid, (enum __rlimit_resource)i, NULL, &now.limits[i]);
    return now;
}

static int listen_to(int protocol, uint32_t groups)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol);
    struct sockaddr_nl address = {.nl_family = AF_NETLINK, .nl_groups = groups};
    if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address)) close_fd(&fd);
    return fd;
}

static void listen_for_changes(void)
{
    /* link, neighbour, tc, addresses, routes and rules of both families */
    net_events = listen_to(NETLINK_ROUTE, 1 | 4 | 8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x100 | 0x200 | 0x400 | 0x800 | 0x20000 | 0x40000);
    CHECK(net_events, "netlink listener");
    int next_hops = 32;  /* RTNLGRP_NEXTHOP, past what an address can name */
    setsockopt(net_events, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &next_hops, sizeof next_hops);
    policy_events = listen_to(NETLINK_XFRM, 4 | 8);  /* associations and policies */
    filter_events = listen_to(NETLINK_NETFILTER, 0);
    if (filter_events >= 0)
        for (int group = 1; group < 8; group++)
            setsockopt(filter_events, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group);
    pristine = leftovers();
    pristine_init = init_state();
}

static bool drained(int fd)
{
    static char bytes[65536];
    bool any = false;
    while (fd >= 0 && (recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) > 0 || errno == ENOBUFS)) any = true;
    return any;
}

/* ---- one run ------------------------------------------------------------------------------------ */

static int64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}

/* Bytes resident in all processes inside (those shared count once each). */
static uint64_t resident_bytes(void)
{
    int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    uint64_t pages = 0;
    while (list && (entry = readdir(list))) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        char path[300], text[128];
        snprintf(path, sizeof path, "%s/statm", entry->d_name);
        int statm = openat(fd, path, O_RDONLY | O_CLOEXEC);
        ssize_t n = statm < 0 ? -1 : read(statm, text, sizeof text - 1);
        if (statm >= 0) close(statm);
        if (n <= 0) continue;
        text[n] = 0;
        char *space = strchr(text, ' ');
        if (space) pages += strtoull(space, NULL, 10);
    }
    if (list) closedir(list);
    return pages * 4096;
}

/* The last resort against memory that belongs to no process (files in memory, sockets). */
static bool host_is_short_of_memory(void)
{
    char text[512];
    int fd = openat(host_proc, "meminfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return false;
    text[n] = 0;
    const char *total = strstr(text, "MemTotal:"), *available = strstr(text, "MemAvailable:");
    if (!total || !available) return false;
    return strtoull(available + 13, NULL, 10) < strtoull(total + 9, NULL, 10) / 20;
}

struct channel { int fd; struct buffer kept; uint64_t seen; };

/* Reads once; false at end of file. */
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

/* Watches one run to its end: output, time, memory, and what outlives the shell. */
static void watch(const struct request *request, struct channel *channels, struct reply *reply)
{
    int64_t start = now_ns(CLOCK_MONOTONIC), deadline = start + request->wall_ms * 1000000ll;
    int64_t next_memory = start + 50000000;
    bool shell_ended = false, killed = false;
    int open_channels = (channels[0].fd >= 0) + (channels[1].fd >= 0);
    while (!shell_ended || open_channels) {
        struct pollfd watched[4] = {
            {channels[0].fd, POLLIN, 0}, {channels[1].fd, POLLIN, 0},
            {shell_ended ? -1 : server_socket, POLLIN, 0}, {control, POLLRDHUP, 0},
        };
        int64_t now = now_ns(CLOCK_MONOTONIC), wake = deadline < next_memory ? deadline : next_memory;
        int wait_ms = wake <= now ? 0 : (int)((wake - now + 999999) / 1000000);
        int n = poll(watched, 4, killed ? 1000 : wait_ms);
        if (watched[3].revents & (POLLHUP | POLLRDHUP | POLLERR)) _exit(0);
        for (int i = 0; i < 2; i++)
            if (watched[i].revents && !read_channel(&channels[i], request->output_max)) {
                close_fd(&channels[i].fd);
                open_channels--;
            }
        if (watched[2].revents) {
            struct server_reply ended;
            if (recv(server_socket, &ended, sizeof ended, 0) != sizeof ended) ended = (struct server_reply){.error = EPIPE};
            if (ended.stage) {  /* the child's own word, before the input had control; its end follows */
                reply->stage = ended.stage;
                reply->error = ended.error;
                continue;
            }
            shell_ended = true;
            if (ended.error) reply->error = ended.error;
            reply->status = ended.status;
            reply->user_us = ended.user_us;
            reply->system_us = ended.system_us;
            if (ended.error) return;
            if (open_channels && !killed) {
                int64_t last = now_ns(CLOCK_MONOTONIC) + request->background_ms * 1000000ll;
                if (last < deadline) deadline = last;
            }
        }
        if (killed) {
            if (n == 0) return;  /* a descriptor escaped every kill: give up on more output */
            continue;
        }
        now = now_ns(CLOCK_MONOTONIC);
        uint32_t why = 0;
        if (channels[0].seen + channels[1].seen > request->drain_max) why = REPLY_OUTPUT_KILLED;
        else if (now >= deadline) why = shell_ended ? REPLY_BACKGROUND : REPLY_TIMED_OUT;
        else if (now >= next_memory) {
            next_memory = now + 50000000;
            if (resident_bytes() > request->memory_max) why = REPLY_MEMORY;
            if (host_is_short_of_memory()) {
                why = REPLY_MEMORY;
                reply->error = ENOMEM;  /* who took it is not known: nothing to record */
            }
        }
        if (why) {
            reply->flags |= why;
            ask_init();  /* kills everything */
            killed = true;
        }
    }
}

static struct buffer changes;

static void answer(struct reply *reply, struct channel *channels, uint32_t keep)
{
    for (int i = 0; i < 2; i++)
        if (channels[i].seen > keep) reply->flags |= REPLY_OUTPUT_TRUNCATED;
    uint32_t state = shared->state_length;
    reply->state_length = shared->dumped && state <= STATE_MAX ? state : 0;
    reply->output_length = (uint32_t)channels[0].kept.length;
    reply->errors_length = (uint32_t)channels[1].kept.length;
    reply->changes_length = (uint32_t)changes.length;
    static struct buffer message;
    message.length = 0;
    buffer_add(&message, reply, sizeof *reply);
    buffer_add(&message, channels[0].kept.bytes, channels[0].kept.length);
    buffer_add(&message, channels[1].kept.bytes, channels[1].kept.length);
    buffer_add(&message, shared->state, reply->state_length);
    buffer_add(&message, changes.bytes, changes.length);
    write_all(control, message.bytes, message.length);
}

static void run(const struct request *request, struct channel *channels)
{
    struct reply reply = {0};
    shared->flags = request->flags & REQUEST_FRESH ? RUN_FRESH : 0;
    shared->dumped = 0;
    shared->state_length = 0;
    shared->processors = bounds.processors;
    shared->n_rlimits = bounds.n_rlimits;
    memcpy(shared->rlimits, bounds.rlimits, sizeof shared->rlimits);
    int out[2], err[2] = {-1, -1};
    bool separate = request->flags & REQUEST_SEPARATE;
    if (pipe2(out, O_CLOEXEC) || (separate && pipe2(err, O_CLOEXEC))) _exit(125);
    channels[0].fd = out[0];
    channels[1].fd = err[0];
    fcntl(out[0], F_SETFL, O_NONBLOCK);  /* an input can open its pipe and read it empty */
    if (separate) fcntl(err[0], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 2; i++) channels[i].kept.length = 0, channels[i].seen = 0;
    struct server_request start = {SERVER_RUN, SHELL_PID};
    int fds[2] = {out[1], err[1]};
    reply.started_ns = now_ns(CLOCK_REALTIME);
    send_fds(server_socket, &start, sizeof start, fds, separate ? 2 : 1);
    close(out[1]);
    if (separate) close(err[1]);
    watch(request, channels, &reply);
    close_fd(&channels[0].fd);
    close_fd(&channels[1].fd);
    if (has_survivors()) {
        reply.flags |= REPLY_BACKGROUND;
        ask_init();
    }
    reply.ended_ns = now_ns(CLOCK_REALTIME);

    changes.length = 0;
    struct disk_state disk = disk_state();
    if (memcmp(&disk, &pristine_disk, sizeof disk)) {
        reply.flags |= REPLY_FILES;
        if (scan_changes(lower_root, upper_root, merged_root, &changes)) reply.flags |= REPLY_CHANGES_TRUNCATED;
    }
    struct leftovers left = leftovers();
    if (left.shm != pristine.shm || left.msg != pristine.msg || left.sem != pristine.sem ||
        memcmp(&left.queues, &pristine.queues, sizeof left.queues))
        reply.flags |= REPLY_IPC;
    if (memcmp(left.host, pristine.host, sizeof left.host) || memcmp(left.domain, pristine.domain, sizeof left.domain))
        reply.flags |= REPLY_HOSTNAME;
    struct init_state init = init_state();
    if (memcmp(&init, &pristine_init, sizeof init)) reply.flags |= REPLY_INIT;
    bool net = drained(net_events), filter = drained(filter_events), policy = drained(policy_events);
    if (net || filter || policy) reply.flags |= REPLY_NETWORK;
    if (!init_alive && !reply.error) reply.error = ECHILD;
    answer(&reply, channels, request->output_max);

    if (reply.flags & REPLY_FILES && !(request->flags & REQUEST_KEEP)) {
        int layer = make_layer(false);
        ask_server(SERVER_MOUNTS, layer);
        close(layer);
    }
}

static void serve_requests(void)
{
    struct request request;
    struct channel channels[2] = {{.fd = -1}, {.fd = -1}};
    while (read_all(control, &request, sizeof request)) {
        if (request.cwd_length >= CWD_MAX || request.input_length >= INPUT_MAX) _exit(125);
        if (!read_all(control, shared->cwd, request.cwd_length)) return;
        shared->cwd[request.cwd_length] = 0;
        if (!read_all(control, shared->input, request.input_length)) return;
        shared->input_length = request.input_length;
        run(&request, channels);
    }
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s run FD UID GID | exec FD PROGRAM [ARGUMENT...]\n", argv[0]);
        return 2;
    }
    control = atoi(argv[2]);
    for (int i = 1; i < NSIG; i++) signal(i, SIG_DFL);
    signal(SIGINT, SIG_IGN);  /* Ctrl-C is the Python side's to handle */
    bool supervise = !strcmp(argv[1], "run");
    if (supervise && argc == 5 && !geteuid()) make_device_nodes((uid_t)atol(argv[3]), (gid_t)atol(argv[4]));
    enter_user_namespace();
    if (!supervise) {
        if (argc < 4) return 2;
        close(control);
        signal(SIGINT, SIG_DFL);
        execvp(argv[3], argv + 3);
        perror(argv[3]);
        return 127;
    }
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    shared_fd = memfd_create("shioenv", MFD_CLOEXEC);
    CHECK(shared_fd, "memfd_create");
    CHECK(ftruncate(shared_fd, sizeof *shared), "size the shared memory");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
    if (shared == MAP_FAILED) die("map the shared memory");
    read_configuration();
    host_proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(host_proc, "open /proc");
    /* What `ps` shows of process 1, which keeps this memory. */
    size_t room = (size_t)(argv[argc - 1] + strlen(argv[argc - 1]) - argv[0]);
    memset(argv[0], 0, room);
    strncpy(argv[0], "/sbin/init", room);
    own_mounts();
    make_inner_namespaces();
    make_outer_mounts();
    children_fd = open_children(init_pid);
    if (config.seccomp.len) {
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs");
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &config.seccomp), "seccomp filter");
    }
    start_web();
    int layer = make_layer(strcmp(config.shell_mode, "fresh") != 0);
    start_server(layer);
    close(layer);
    layer = make_layer(false);
    struct server_reply reply = ask_server(SERVER_MOUNTS, layer);
    if (reply.error) { errno = reply.error; die("hand the layer to the server"); }
    close(layer);
    listen_for_changes();
    write_all(control, "R\n", 2);
    serve_requests();
    return 0;
}
