/* Process 1 of a microVM. It mounts the system, then runs supervisors for the host. The channel is one stream of bytes: a virtio
 * serial port, or connections to port 52 of a virtio socket. It carries the messages that a supervisor sends on any host.
 * With the argument `bare`, process 1 runs inputs itself, without a supervisor or namespaces (bare.c).
 *
 * Frames are a kind (u8), a length (u32, little-endian) and a body.
 *   from the host:  O open a supervisor ("INSTANT FORM"), D bytes for the supervisor, C end the supervisor, P ping,
 *                   T set the time (nanoseconds since 1970, i64) and add entropy (32 bytes)
 *   to the host:    B the machine booted (kernel release), K form and checksum of the lower layer ("FORM SUM", or "E<errno> STEP"),
 *                   D bytes from the supervisor, C the supervisor ended, P answer to a ping
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"

#define FIRST_ID "1000000000"  /* the host id of the system's id 0, so that no process inside is root of this machine */
#define ID_MAP "0 " FIRST_ID " 65536\n"
#define PORT 52

static int channel = -1, listener = -1, supervisor = -1;
static pid_t supervisor_pid;
static struct utsname kernel;
char frame[LONGEST];

void say(const char *what) { dprintf(2, "agent: %s: %s\n", what, strerror(errno)); }

static void __attribute__((noreturn)) stop(void)
{
    reboot(RB_POWER_OFF);
    for (;;) pause();
}

void need(long result, const char *what)
{
    if (result >= 0) return;
    say(what);
    stop();
}

static bool transfer(int fd, void *bytes, size_t length, bool writing)
{
    for (char *at = bytes; length;) {
        ssize_t done = writing ? write(fd, at, length) : read(fd, at, length);
        if (done > 0) {
            at += done;
            length -= (size_t)done;
        } else if (done < 0 && errno == EAGAIN) {
            struct pollfd ready = {fd, writing ? POLLOUT : POLLIN, 0};
            poll(&ready, 1, -1);
        } else if (done == 0 || errno != EINTR) {
            return false;
        }
    }
    return true;
}

void send_frame(char kind, const void *body, size_t length)
{
    unsigned char head[5] = {(unsigned char)kind, (unsigned char)length, (unsigned char)(length >> 8),
                             (unsigned char)(length >> 16), (unsigned char)(length >> 24)};
    if (!transfer(channel, head, sizeof head, true) || !transfer(channel, (void *)body, length, true)) say("channel");
}

void put(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) say(path);
    close(fd);
}

static void map_ids(pid_t process)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/uid_map", (int)process);
    put(path, ID_MAP);
    snprintf(path, sizeof path, "/proc/%d/gid_map", (int)process);
    put(path, ID_MAP);
}

static void load_modules(void)
{
    FILE *list = fopen("/modules/order", "r");
    char path[160];
    while (list && fscanf(list, "%159s", path) == 1) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || (syscall(SYS_finit_module, fd, "", 0) && errno != EEXIST)) say(path);
        close(fd);
    }
    if (list) fclose(list);
}

/* ---- the machine ---------------------------------------------------------------------------------- */

/* Return a descriptor of a user namespace that maps the ids of a mount. */
static int shifted_ids(void)
{
    int up[2];
    char byte, path[64];
    need(pipe(up), "pipe");
    pid_t child = fork();
    need(child, "fork");
    if (!child) {
        if (unshare(CLONE_NEWUSER) || write(up[1], "", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(up[1]);
    if (read(up[0], &byte, 1) != 1) need(-1, "user namespace");
    close(up[0]);
    map_ids(child);
    snprintf(path, sizeof path, "/proc/%d/ns/user", (int)child);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    need(fd, "user namespace");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return fd;
}

/* Mount the disk, which holds the ids as the system sees them, with these ids mapped. */
static void mount_system(void)
{
    for (int i = 0; i < 1000 && access("/dev/vda", F_OK); i++) usleep(10000);
    need(mount("/dev/vda", "/system/rootfs", "ext4", MS_RDONLY | MS_NOATIME, "noload"), "mount the system");
    int tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/system/rootfs", OPEN_TREE_CLONE | O_CLOEXEC);
    need(tree, "open the system");
    struct mount_attr shifted = {.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)shifted_ids()};
    need(syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH, &shifted, sizeof shifted), "shift the system's ids");
    need(syscall(SYS_move_mount, tree, "", AT_FDCWD, "/system/rootfs", MOVE_MOUNT_F_EMPTY_PATH), "mount the system shifted");
    close((int)shifted.userns_fd);
}

/* Mount the first root's content again as a new root, because pivot_root fails on the first one. */
static void leave_first_mount(void)
{
    need(mount("/", "/new", NULL, MS_BIND | MS_REC, NULL), "mount the root again");
    need(chdir("/new"), "enter the root");
    need(mount(".", "/", NULL, MS_MOVE, NULL), "move the root");
    need(chroot("."), "enter the root");
    need(chdir("/"), "enter the root");
}

/* Raise the resource limits to the maximum that a machine can declare. */
static void raise_limits(void)
{
    for (int i = 0; i < (int)RLIM_NLIMITS; i++) {
        struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
        if (i == RLIMIT_NOFILE) limit = (struct rlimit){1 << 20, 1 << 20};
        if (i == RLIMIT_STACK) limit.rlim_cur = 8 << 20;
        if (i == RLIMIT_CORE) limit.rlim_cur = 0;
        if (setrlimit(i, &limit)) say("limit");
    }
}

static void set_up(bool bare)
{
    mount("dev", "/dev", "devtmpfs", 0, "mode=755");
    int console = open("/dev/console", O_RDWR);
    for (int i = 0; console >= 0 && i < 3; i++) dup2(console, i);
    if (console > 2) close(console);
    need(mount("proc", "/proc", "proc", 0, NULL), "mount /proc");
    need(mount("sys", "/sys", "sysfs", 0, NULL), "mount /sys");
    raise_limits();
    load_modules();
    if (bare) {
        mount_bare();
    } else {
        leave_first_mount();
        mount_system();
    }
    put("/proc/self/oom_score_adj", "-1000");
    put("/proc/sys/kernel/core_pattern", "core");
    put("/proc/sys/kernel/printk", "1");
    put("/proc/sys/kernel/pid_max", "4194304");
}

static void set_time(const char *body, size_t length)
{
    int64_t now;
    struct { struct rand_pool_info info; char bytes[32]; } entropy = {{.entropy_count = 256, .buf_size = 32}, {0}};
    if (length != sizeof now + sizeof entropy.bytes) return;
    memcpy(&now, body, sizeof now);
    if (clock_settime(CLOCK_REALTIME, &(struct timespec){now / 1000000000, now % 1000000000})) say("time");
    memcpy(entropy.info.buf, body + sizeof now, sizeof entropy.bytes);
    int fd = open("/dev/urandom", O_RDWR | O_CLOEXEC);
    if (ioctl(fd, RNDADDENTROPY, &entropy) || ioctl(fd, RNDRESEEDCRNG)) say("entropy");
    close(fd);
}

/* ---- supervisors ---------------------------------------------------------------------------------- */

/* Start the sandbox program next to the system. Return its control socket, and store its process id in `process`. */
static int start(pid_t *process, char *const *arguments)
{
    int pair[2];
    need(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), "socketpair");
    *process = fork();
    need(*process, "fork");
    if (*process) {
        close(pair[1]);
        return pair[0];
    }
    char number[16], *command[12] = {"shioenv-sandbox", arguments[0], number};
    for (int i = 1; arguments[i]; i++) command[2 + i] = arguments[i];
    snprintf(number, sizeof number, "%d", dup(pair[1]));
    int nowhere = open("/dev/null", O_RDWR);
    dup2(nowhere, 0);
    dup2(nowhere, 1);
    put("/proc/self/oom_score_adj", "0");
    setsid();
    if (chdir("/system")) _exit(126);
    execve("/shioenv-sandbox", command, (char *[]){NULL});
    _exit(127);
}

/* Receive a line and the descriptors sent with it. Return the number of descriptors. */
static int receive_line(int from, char *line, size_t room, int *descriptors)
{
    size_t length = 0;
    int count = 0;
    for (;;) {
        union { struct cmsghdr header; char bytes[CMSG_SPACE(2 * sizeof(int))]; } control;
        struct iovec data = {line + length, 1};
        struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
        if (length + 1 >= room || recvmsg(from, &message, 0) != 1) break;
        struct cmsghdr *held = CMSG_FIRSTHDR(&message);
        if (held && held->cmsg_type == SCM_RIGHTS && held->cmsg_len == CMSG_LEN(2 * sizeof(int))) {
            memcpy(descriptors, CMSG_DATA(held), 2 * sizeof(int));
            count = 2;
        }
        if (line[length] == '\n') break;
        length++;
    }
    line[length] = 0;
    return count;
}

static void end_supervisor(void)
{
    if (supervisor >= 0) close(supervisor);
    supervisor = -1;
    if (supervisor_pid) waitpid(supervisor_pid, NULL, 0);
    supervisor_pid = 0;
    while (waitpid(-1, NULL, WNOHANG) > 0) {}
    send_frame('C', NULL, 0);
}

/* Open a supervisor as the host does for its own sandboxes (`sandbox/namespaces/lower.py`): one process makes the lower
 * layer, and the next one is the supervisor. */
static void open_supervisor(char *asked)
{
    char *instant = strtok(asked, " "), *form = strtok(NULL, " ");
    char said[512], user[16], mounts[16];
    int kept[2];
    pid_t keeper;
    if (!instant || !form || supervisor >= 0) return;
    int from = start(&keeper, (char *[]){"keep", FIRST_ID, FIRST_ID, instant, form, NULL});
    int count = receive_line(from, said, sizeof said, kept);
    if (!strcmp(said, "U")) {
        map_ids(keeper);
        count = write(from, "M", 1) == 1 ? receive_line(from, said, sizeof said, kept) : 0;
    }
    close(from);
    waitpid(keeper, NULL, 0);
    send_frame('K', said, strlen(said));
    if (count != 2) return;
    fcntl(kept[0], F_SETFD, 0);
    fcntl(kept[1], F_SETFD, 0);
    snprintf(user, sizeof user, "%d", kept[0]);
    snprintf(mounts, sizeof mounts, "%d", kept[1]);
    form = strtok(said, " ");
    supervisor = start(&supervisor_pid, (char *[]){"run", user, mounts, form, "1", NULL});
    close(kept[0]);
    close(kept[1]);
}

char receive_frame(size_t *length)
{
    unsigned char head[5];
    if (!transfer(channel, head, sizeof head, false)) return 0;
    *length = head[1] | (size_t)head[2] << 8 | (size_t)head[3] << 16 | (size_t)head[4] << 24;
    if (*length >= sizeof frame || !transfer(channel, frame, *length, false)) return 0;
    frame[*length] = 0;
    if (head[0] == 'T') set_time(frame, *length);
    if (head[0] == 'P') send_frame('P', frame, *length);
    return (char)head[0];
}

static bool take_frame(void)
{
    size_t length;
    switch (receive_frame(&length)) {
    case 0: return false;
    case 'O': open_supervisor(frame); break;
    case 'D': if (supervisor >= 0 && !transfer(supervisor, frame, length, true)) end_supervisor(); break;
    case 'C': end_supervisor(); break;
    }
    return true;
}

/* Pass data between host and supervisor until the host closes the channel. */
static void serve(void)
{
    for (;;) {
        struct pollfd watched[2] = {{channel, POLLIN, 0}, {supervisor, POLLIN, 0}};
        poll(watched, 2, -1);
        if (watched[1].revents) {
            ssize_t length = read(supervisor, frame, sizeof frame);
            if (length > 0) send_frame('D', frame, (size_t)length);
            else end_supervisor();
        }
        if (watched[0].revents & POLLIN) {
            if (!take_frame()) return;
        } else if (watched[0].revents) {
            return;
        }
    }
}

/* ---- the channel ---------------------------------------------------------------------------------- */

static void open_port(void)
{
    for (int i = 0; i < 1000 && channel < 0; i++) {
        DIR *devices = opendir("/dev");
        for (struct dirent *entry; devices && channel < 0 && (entry = readdir(devices));)
            if (!strncmp(entry->d_name, "vport", 5)) {
                char path[300];
                snprintf(path, sizeof path, "/dev/%s", entry->d_name);
                channel = open(path, O_RDWR | O_CLOEXEC);
            }
        if (devices) closedir(devices);
        if (channel < 0) usleep(10000);
    }
    need(channel, "open the port");
}

static void listen_for_host(void)
{
    struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_port = PORT, .svm_cid = VMADDR_CID_ANY};
    listener = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
    need(bind(listener, (struct sockaddr *)&address, sizeof address), "bind");
    need(listen(listener, 8), "listen");
}

/* Accept the next connection; a running supervisor outlives connections. With a serial port, the host also ends the machine. */
void reconnect(void)
{
    if (listener < 0) {
        usleep(10000);
        return;
    }
    close(channel);
    do channel = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    while (channel < 0);
    send_frame('B', kernel.release, strlen(kernel.release));
}

/* Arguments: `serial` or `vsock`, and optionally `bare`. */
int main(int argc, char **argv)
{
    bool bare = argc > 2 && !strcmp(argv[2], "bare");
    set_up(bare);
    signal(SIGPIPE, SIG_IGN);
    uname(&kernel);
    if (argc > 1 && !strcmp(argv[1], "vsock")) {
        listen_for_host();
        reconnect();
    } else {
        open_port();
        send_frame('B', kernel.release, strlen(kernel.release));
    }
    if (bare) serve_bare(argc, argv);
    for (;;) {
        serve();
        reconnect();
    }
}
