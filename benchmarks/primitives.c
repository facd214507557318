/* What the kernel charges for what a run is made of. Prints "NANOSECONDS NANOSECONDS NAME" for each: the
 * 10th percentile and the median of many. Run as root in a mount namespace of its own:
 *
 *   primitives TIMES SCRATCH_DIRECTORY
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HEAP (4u << 20)  /* what a bash has touched of its own memory, roughly */
#define MOUNTS 30        /* of a layer: /proc and what covers it, devices */

extern char **environ;
static int times;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static void must(int result, const char *what)
{
    if (result < 0) { perror(what); exit(1); }
}

static void measure(const char *name, void (*step)(void))
{
    int64_t *taken = calloc((size_t)times, sizeof *taken);
    for (int i = -5; i < times; i++) {
        int64_t begun = now();
        step();
        if (i >= 0) taken[i] = now() - begun;
    }
    qsort(taken, (size_t)times, sizeof *taken, by_size);
    printf("%lld %lld %s\n", (long long)taken[times / 10], (long long)taken[times / 2], name);
    fflush(stdout);
    free(taken);
}

static void wait_for(pid_t child)
{
    must(child, "fork");
    must(waitpid(child, NULL, 0), "waitpid");
}

static void fork_exit(void)
{
    pid_t child = fork();
    if (!child) _exit(0);
    wait_for(child);
}

static void fork_unshare_exit(void)
{
    pid_t child = fork();
    if (!child) { must(unshare(CLONE_NEWNS), "unshare"); _exit(0); }
    wait_for(child);
}

static int prepared = -1;

static void fork_join_exit(void)
{
    pid_t child = fork();
    if (!child) { must(setns(prepared, CLONE_NEWNS), "setns"); _exit(0); }
    wait_for(child);
}

static void spawn_program(char *const arguments[])
{
    int out[2];
    must(pipe2(out, O_CLOEXEC), "pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    posix_spawn_file_actions_adddup2(&actions, out[1], 2);
    pid_t child;
    if (posix_spawn(&child, arguments[0], &actions, NULL, arguments, environ)) { perror("posix_spawn"); exit(1); }
    posix_spawn_file_actions_destroy(&actions);
    close(out[1]);
    char bytes[4096];
    while (read(out[0], bytes, sizeof bytes) > 0) {}
    close(out[0]);
    wait_for(child);
}

static void spawn_true(void) { spawn_program((char *[]){"/bin/true", NULL}); }
static void spawn_bash(void)
{
    spawn_program((char *[]){"/bin/bash", "--norc", "--noprofile", "-c", "true", NULL});
}

static int peer = -1;

static void start_echo(void)
{
    int pair[2];
    must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), "socketpair");
    pid_t child = fork();
    must(child, "fork");
    if (!child) {
        char bytes[64];
        close(pair[0]);
        for (ssize_t n; (n = recv(pair[1], bytes, sizeof bytes, 0)) > 0;) send(pair[1], bytes, (size_t)n, 0);
        _exit(0);
    }
    close(pair[1]);
    peer = pair[0];
}

static void round_trip(void)
{
    char bytes[32] = {0};
    must((int)send(peer, bytes, sizeof bytes, 0), "send");
    must((int)recv(peer, bytes, sizeof bytes, 0), "recv");
}

static void mount_layer(void)
{
    must(mount("none", "tmpfs", "tmpfs", 0, "size=1m"), "mount tmpfs");
    must(mkdir("tmpfs/upper", 0755), "mkdir");
    must(mkdir("tmpfs/work", 0755), "mkdir");
    must(mount("none", "merged", "overlay", 0,
               "lowerdir=lower,upperdir=tmpfs/upper,workdir=tmpfs/work,userxattr,xino=on,index=on"), "mount overlay");
}

static void unmount_layer(void)
{
    must(umount2("merged", MNT_DETACH), "umount");
    must(umount2("tmpfs", MNT_DETACH), "umount");
}

static void layer(void) { mount_layer(); unmount_layer(); }

static void bind_and_unmount(void)
{
    must(mount("lower", "merged", NULL, MS_BIND, NULL), "bind");
    must(umount2("merged", MNT_DETACH), "umount");
}

int main(int argc, char **argv)
{
    if (argc != 3) return 2;
    times = atoi(argv[1]);
    must(chdir(argv[2]), argv[2]);
    static const char *const names[] = {"tmpfs", "merged", "lower", "mounts"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) must(mkdir(names[i], 0755), names[i]);
    must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private mounts");

    measure("posix_spawn of /bin/true, output read, waited for", spawn_true);
    measure("posix_spawn of bash -c true, likewise", spawn_bash);
    start_echo();
    measure("message to another process and its answer", round_trip);
    measure("fork, exit, wait: a small process", fork_exit);
    char *heap = mmap(NULL, HEAP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (heap == MAP_FAILED) return 1;
    for (unsigned i = 0; i < HEAP; i += 4096) heap[i] = 1;
    measure("fork, exit, wait: with 4 MiB of memory in use", fork_exit);
    munmap(heap, HEAP);
    measure("bind mount and unmount", bind_and_unmount);
    measure("tmpfs and overlay, mounted and unmounted", layer);
    prepared = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
    must(prepared, "open the mount namespace");
    must(unshare(CLONE_NEWNS), "unshare");
    for (int i = 0; i < MOUNTS; i++) {
        char target[32];
        snprintf(target, sizeof target, "mounts/%d", i);
        must(mkdir(target, 0755), "mkdir");
        must(mount("lower", target, NULL, MS_BIND, NULL), "bind");
    }
    measure("fork, copy of the mounts, exit, wait", fork_unshare_exit);
    measure("fork, join mounts that stay, exit, wait", fork_join_exit);
    return 0;
}
