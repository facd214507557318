/* Process 1 of a real machine: mounts the system, then runs one input at a time for the host.
 *
 * Frames over a virtio serial port are a length (u32) and a body, all numbers little-endian. A request is
 * `struct request` and then the strings directory, input, environment..., each ended by a NUL. A reply is
 * `struct reply`, the output, and for each path that is not what it was `struct file`, its path and its
 * target, each ended by a NUL. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
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
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "sha256.h"

struct __attribute__((packed)) request {
    int64_t clock;           /* seconds since 1970; the wall clock is set to it */
    uint32_t first;          /* what it leaves is what later requests are compared with */
    uint32_t wall, linger;   /* milliseconds: until it is ended; for background processes after the shell */
    uint32_t output;         /* bytes kept */
    uint32_t umask;
    uint8_t entropy[32];
    uint64_t limits[16][2];  /* soft and hard, by number */
};

struct __attribute__((packed)) reply {
    int32_t status;          /* as wait(2) gives it */
    uint32_t timed_out;
    uint32_t output;         /* bytes that follow */
};

struct __attribute__((packed)) file {
    uint32_t mode, uid, gid, links;  /* mode 0: gone */
    uint64_t size;
    int64_t mtime;           /* nanoseconds since 1970 */
    uint8_t digest[32];      /* SHA-256 of a regular file */
};

struct seen { char *path; struct stat status; };
struct tree { struct seen *all; size_t count, room; };
struct bytes { char *data; size_t length, room; };

static int channel = -1;
static struct tree disk, shared;  /* what they were at first: the root file system, /dev/shm */
static int events = -1;
static long uptime;

static void fail(const char *what)
{
    dprintf(2, "agent: %s: %s\n", what, strerror(errno));
    reboot(RB_POWER_OFF);
    for (;;) pause();
}

static void add(struct bytes *to, const void *data, size_t length)
{
    if (to->length + length > to->room && !(to->data = realloc(to->data, to->room = 2 * (to->length + length))))
        fail("memory");
    memcpy(to->data + to->length, data, length);
    to->length += length;
}

static void transfer(void *bytes, size_t length, int writing)
{
    for (char *at = bytes; length;) {
        ssize_t done = writing ? write(channel, at, length) : read(channel, at, length);
        if (done > 0) at += done, length -= (size_t)done;
        else if (done == 0 || errno == EAGAIN || errno == EINTR) usleep(1000);  /* nobody at the other end yet */
        else fail("channel");
    }
}

static void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) dprintf(2, "agent: %s: %s\n", path, strerror(errno));
    close(fd);
}

static int64_t milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Everything at or below a directory on its own file system. */
static void look(struct tree *tree, const char *path, dev_t device)
{
    struct stat status;
    if (lstat(path, &status) || (device && status.st_dev != device)) return;
    if (tree->count == tree->room && !(tree->all = realloc(tree->all, (tree->room = 2 * tree->room + 4096) * sizeof *tree->all)))
        fail("memory");
    tree->all[tree->count++] = (struct seen){strdup(path), status};
    if (!S_ISDIR(status.st_mode)) return;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOATIME | O_CLOEXEC);
    DIR *directory = fd < 0 ? NULL : fdopendir(fd);
    for (struct dirent *entry; directory && (entry = readdir(directory));) {
        char *inside;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        if (asprintf(&inside, "%s/%s", path[1] ? path : "", entry->d_name) < 0) fail("memory");
        look(tree, inside, status.st_dev);
        free(inside);
    }
    if (directory) closedir(directory);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct seen *)a)->path, ((const struct seen *)b)->path);
}

static struct tree looked(const char *path)
{
    struct tree tree = {0};
    look(&tree, path, 0);
    qsort(tree.all, tree.count, sizeof *tree.all, by_path);
    return tree;
}

/* From now on the kernel tells of whatever may change a file of the disk: to look at all of them takes long. */
static void watch(void)
{
    events = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_NONBLOCK | FAN_CLOEXEC, O_RDONLY);
    if (events < 0 || fanotify_mark(events, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_MODIFY | FAN_CLOSE_WRITE | FAN_ATTRIB
            | FAN_CREATE | FAN_DELETE | FAN_MOVE | FAN_ONDIR, AT_FDCWD, "/"))
        fail("fanotify");
}

static int written(void)
{
    static char block[1 << 12];
    return read(events, block, sizeof block) > 0;
}

static void digest(const char *path, uint8_t to[32])
{
    static char block[1 << 16];
    struct sha256 hash;
    int fd = open(path, O_RDONLY | O_NOATIME | O_CLOEXEC);
    sha256_start(&hash);
    for (ssize_t n; (n = read(fd, block, sizeof block)) > 0;) sha256_add(&hash, block, (size_t)n);
    sha256_end(&hash, to);
    close(fd);
}

static void tell(struct bytes *to, const char *path, const struct stat *status)
{
    struct file file = {0};
    char target[4096] = "";
    if (status) {
        file = (struct file){status->st_mode, status->st_uid, status->st_gid, (uint32_t)status->st_nlink,
            (uint64_t)status->st_size, status->st_mtim.tv_sec * 1000000000 + status->st_mtim.tv_nsec, {0}};
        if (S_ISREG(status->st_mode)) digest(path, file.digest);
        if (S_ISLNK(status->st_mode) && readlink(path, target, sizeof target - 1) < 0) target[0] = 0;
    }
    add(to, &file, sizeof file);
    add(to, path, strlen(path) + 1);
    add(to, target, strlen(target) + 1);
}

static int same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_mode == b->st_mode && a->st_uid == b->st_uid && a->st_gid == b->st_gid
        && a->st_nlink == b->st_nlink && a->st_size == b->st_size
        && !memcmp(&a->st_mtim, &b->st_mtim, sizeof a->st_mtim) && !memcmp(&a->st_ctim, &b->st_ctim, sizeof a->st_ctim);
}

static void compare(struct bytes *to, const struct tree *was, const char *path)
{
    struct tree now = looked(path);
    for (size_t old = 0, new = 0; old < was->count || new < now.count;) {
        struct seen *before = old < was->count ? &was->all[old] : NULL;
        struct seen *after = new < now.count ? &now.all[new] : NULL;
        int order = !before ? 1 : !after ? -1 : strcmp(before->path, after->path);
        if (order < 0) tell(to, before->path, NULL);
        else if (order > 0 || !same(&before->status, &after->status)) tell(to, after->path, &after->status);
        old += order <= 0;
        new += order >= 0;
    }
}

static void become(const struct request *request, char *directory, char *text, char **environment, int output)
{
    sigset_t none;
    setsid();
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(output, 1);
    dup2(output, 2);
    syscall(SYS_close_range, 3, ~0U, 0);
    for (int i = 0; i < 16; i++) setrlimit(i, &(struct rlimit){request->limits[i][0], request->limits[i][1]});
    umask(request->umask);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (chdir(directory)) _exit(126);
    execve("/bin/bash", (char *[]){"bash", "--norc", "--noprofile", "-c", text, NULL}, environment);
    _exit(127);
}

/* The machine has been up for as long as is declared: a time namespace for what it runs next. */
static void set_uptime(void)
{
    struct timespec now;
    char line[64];
    clock_gettime(CLOCK_BOOTTIME, &now);
    snprintf(line, sizeof line, "boottime %ld 0\n", uptime - now.tv_sec);
    if (unshare(CLONE_NEWTIME)) fail("time namespace");
    put("/proc/self/timens_offsets", line);
}

static struct reply run(const struct request *request, char *strings[], struct bytes *output)
{
    static char block[1 << 16];
    struct reply reply = {0};
    int ends[2], open_end = 1, ended = 0;
    if (pipe2(ends, O_CLOEXEC)) fail("pipe");
    pid_t shell = fork();
    if (!shell) become(request, strings[0], strings[1], strings + 2, ends[1]);
    close(ends[1]);
    for (int64_t until = milliseconds() + request->wall; open_end || !ended;) {
        struct pollfd ready = {ends[0], POLLIN, 0};
        if (open_end) poll(&ready, 1, 5);
        else usleep(5000);
        if (ready.revents) {
            ssize_t n = read(ends[0], block, sizeof block);
            if (n <= 0) open_end = 0;
            else if (output->length < request->output)
                add(output, block, (size_t)n < request->output - output->length ? (size_t)n : request->output - output->length);
        }
        int status;
        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
            if (pid == shell) {
                ended = 1;
                reply.status = status;
                if (milliseconds() + request->linger < until) until = milliseconds() + request->linger;
            }
        if (milliseconds() > until) break;
    }
    reply.timed_out = !ended;
    do kill(-1, SIGKILL);
    while (waitpid(-1, NULL, 0) > 0 || errno == EINTR);
    close(ends[0]);
    reply.output = (uint32_t)output->length;
    return reply;
}

static void set_clock(const struct request *request)
{
    struct { struct rand_pool_info info; uint8_t bytes[32]; } pool = {{256, 32}, {0}};
    int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
    memcpy(pool.info.buf, request->entropy, 32);
    if (ioctl(fd, RNDADDENTROPY, &pool) || ioctl(fd, RNDRESEEDCRNG)) fail("entropy");
    close(fd);
    if (clock_settime(CLOCK_REALTIME, &(struct timespec){request->clock, 0})) fail("clock");
}

/* Real processes with the numbers of the declared ones and the users who logged in there, which `last`, `who` and
 * `kill` look for; they do nothing. */
static struct { pid_t pid; char login[16]; } declared[128];

static void start_declared(void)
{
    for (int i = 0; declared[i].pid; i++) {
        struct clone_args arguments = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&declared[i].pid, .set_tid_size = 1};
        long child = syscall(SYS_clone3, &arguments, sizeof arguments);
        if (child < 0) dprintf(2, "agent: process %d: %s\n", declared[i].pid, strerror(errno));
        if (child) continue;
        put("/proc/self/loginuid", declared[i].login);
        syscall(SYS_close_range, 0, ~0u, 0);
        setsid();
        for (;;) pause();
    }
}

static void serve(void)
{
    for (;;) {
        uint32_t length;
        transfer(&length, 4, 0);
        char *body = calloc(1, length + 1), *strings[256] = {0};
        if (!body) fail("memory");
        transfer(body, length, 0);
        char *at = body + sizeof(struct request);
        for (int i = 0; i < 255 && at < body + length; at += strlen(at) + 1) strings[i++] = at;
        struct request *request = (struct request *)body;
        struct bytes output = {0}, all = {0};
        set_clock(request);
        set_uptime();
        struct reply reply = run(request, strings, &output);
        add(&all, &reply, sizeof reply);
        if (output.length) add(&all, output.data, output.length);
        if (request->first) {
            disk = looked("/");
            shared = looked("/dev/shm");
            watch();
            start_declared();
        } else {
            if (written()) compare(&all, &disk, "/");
            compare(&all, &shared, "/dev/shm");
        }
        length = (uint32_t)all.length;
        transfer(&length, 4, 1);
        transfer(all.data, all.length, 1);  /* what was allocated is gone when the machine is reverted */
    }
}

static void load_modules(void)
{
    FILE *list = fopen("/modules/order", "r");
    char path[200];
    while (list && fscanf(list, "%199s", path) == 1) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)) dprintf(2, "agent: %s: %s\n", path, strerror(errno));
        close(fd);
    }
    if (list) fclose(list);
}

static void mount_all(void)
{
    for (int i = 0; i < 1000 && access("/dev/vda", F_OK); i++) usleep(10000);
    if (mount("/dev/vda", "/new", "ext4", 0, NULL)) fail("the system");
    const char *moved[][2] = {{"/dev", "/new/dev"}, {"/proc", "/new/proc"}, {"/sys", "/new/sys"}};
    for (int i = 0; i < 3; i++)
        if (mount(moved[i][0], moved[i][1], NULL, MS_MOVE, NULL)) fail(moved[i][0]);
    if (chdir("/new") || mount(".", "/", NULL, MS_MOVE, NULL) || chroot(".") || chdir("/")) fail("root");
    mkdir("/dev/pts", 0755), mkdir("/dev/shm", 01777), mkdir("/dev/mqueue", 01777);
    mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=000");
    mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, NULL);
    mount("mqueue", "/dev/mqueue", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    const char *links[][2] = {{"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"},
        {"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"}};
    for (int i = 0; i < 4; i++)
        if (symlink(links[i][0], links[i][1])) fail(links[i][1]);
}

int main(int count, char *arguments[])
{
    for (int i = 0; i < 4; i++) mkdir((const char *[]){"/dev", "/proc", "/sys", "/new"}[i], 0755);
    mount("udev", "/dev", "devtmpfs", MS_NOSUID, "mode=755");
    int console = open("/dev/console", O_RDWR | O_NOCTTY);
    for (int i = 0; i < 3; i++) dup2(console, i);
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
    load_modules();
    mount_all();
    if (count > 1) uptime = atol(arguments[1]);
    for (int i = 2; i < count && i < 128; i++) sscanf(arguments[i], "%d:%15s", &declared[i - 2].pid, declared[i - 2].login);
    char *end = arguments[count - 1] + strlen(arguments[count - 1]);
    memset(arguments[0], 0, (size_t)(end - arguments[0]));
    strcpy(arguments[0], "/sbin/init");  /* as `ps` shows it; the arguments behind have the room */
    put("/proc/sys/kernel/printk", "1");
    for (int i = 0; i < 1000 && channel < 0; i++, usleep(10000)) channel = open("/dev/vport0p1", O_RDWR | O_CLOEXEC);
    for (int i = 1; i < 10 && channel < 0; i++) {
        char port[32];
        snprintf(port, sizeof port, "/dev/vport%dp1", i);
        channel = open(port, O_RDWR | O_CLOEXEC);
    }
    if (channel < 0) fail("the serial port");
    serve();
}
