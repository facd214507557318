/* The mounts: what every layer is made of, and the layers, each a pristine system. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "supervisor.h"

int lower_root = -1, upper_root = -1, merged_root = -1;
int queues = -1;
struct disk_state pristine_disk;
static int ns_outer_mounts = -1;

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
    write_all(fd, config.covers[cover].content.bytes, config.covers[cover].content.length);
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
void own_mounts(void)
{
    CHECK(unshare(CLONE_NEWNS), "unshare mount namespace");
    do_mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
enum { N_DEVICES = sizeof devices / sizeof devices[0] };

#define STAGING "/tmp"  /* where the outer mounts are put together before they become the root */

static bool own_nodes;

/* As the host's root, before it gives that up: device nodes that belong to id 0 inside and show no file
 * system of the host. An ordinary user has only the host's own (see make_outer_mounts). */
void make_device_nodes(uid_t uid, gid_t gid)
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
void make_outer_mounts(void)
{
    int nodes[N_DEVICES];
    for (unsigned i = 0; i < N_DEVICES; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", own_nodes ? STAGING : "/dev", devices[i]);
        nodes[i] = open(path, O_PATH | O_CLOEXEC);
        CHECK(nodes[i], "open %s", path);
    }
    do_mount("proc", STAGING, "tmpfs", MS_NOSUID | MS_NODEV, "size=0,mode=755");
    static const char *const names[] = {
        "lower", "plain", "proc", "devices", "empty", "mount", "layer", "old", "queues", "covers",
    };
    char path[512];
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, STAGING "/%s", names[i]);
        make_directory(path);
    }
    do_mount("rootfs", STAGING "/lower", NULL, MS_BIND, NULL);
    make_read_only(STAGING "/lower");
    if (*config.plain) do_mount(config.plain, STAGING "/plain", NULL, MS_BIND, NULL);
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

struct disk_state disk_state(void)
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

/* A mount namespace whose root is a pristine system: an empty tmpfs over the lower layer, with /proc
 * and the devices in place. Returns its descriptor; the supervisor itself is back in the outer mounts
 * afterwards, and dropping the descriptor (and the last shell in a copy of it) unmounts everything. */
int make_layer(bool with_library)
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
        write_all(fd, config.preload.bytes, config.preload.length);
        close(fd);
    }
    struct timespec times[2] = {root.st_atim, root.st_mtim};
    futimens(upper_root, times);
    if (*config.plain && !with_library)  /* the library's layer is never an input's */
        do_mount("/plain", "/mount", NULL, MS_BIND, NULL);
    else
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
    join_namespace(ns_outer_mounts, CLONE_NEWNS, "outer mount");
    pristine_disk = disk_state();
    return fd;
}

