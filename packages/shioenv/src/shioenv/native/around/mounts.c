/* The mounts: the parts of every layer, and the layers, each a pristine system. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "common.h"
#include "configuration.h"
#include "layer_copy.h"
#include "mounts.h"
#include "namespaces.h"
#include "processes.h"
#include "scan.h"
#include "tree.h"
#include "uptime.h"

int lower_root = -1, upper_root = -1, merged_root = -1;
struct disk_state pristine_disk;
static struct timespec root_times[2];
static int ns_outer_mounts = -1;

/* Make a bind mount read-only; flags inherited from the host are locked and must be repeated. */
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

/* Cover kernel interfaces that show the host with those of the declared machine: mount each file below ./proc over the same path
 * in `proc`. The files are first copied to `covers`, a file system of size 0, as `df` would otherwise show the host's disk. */
static void cover_proc(const char *from, const char *covers, const char *proc)
{
    bool top = !strcmp(from, "proc");  /* contains the covers generated for this sandbox */
    struct dirent **list;
    int n = scandir(from, &list, NULL, alphasort);  /* the order is visible in the output of `mount` */
    CHECK(n, "read %s", from);
    for (int at = 0; at < n; free(list[at++])) {
        const struct dirent *entry = list[at];
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
        if (!(status.st_mode & 0004)) continue;  /* accessible only to the host's root, which has no id inside */
        copy_file(source, cover);
        for (int i = 0; top && i < config.n_covers; i++)
            if (!strcmp(config.covers[i].name, entry->d_name)) write_over(cover, i);
        do_mount(cover, target, NULL, MS_BIND, NULL);
    }
    free(list);
}

/* Mask what /proc shows of the host to every user and `covers` does not replace: such files and directories become empty, and
 * /proc/sys read-only. */
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
    /* Accessible only to the host's root, which has no id inside; empty on a real machine. */
    snprintf(path, sizeof path, "%s/tty/driver", proc);
    if (!stat(path, &status)) do_mount(empty_directory, path, NULL, MS_BIND, NULL);
    snprintf(path, sizeof path, "%s/sys", proc);
    do_mount(path, path, NULL, MS_BIND | MS_REC, NULL);
    make_read_only(path);
}

/* Mount the /proc of the input's pid namespace. This requires a process in that namespace which owns the mounts. */
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

/* Enter a new mount namespace whose mounts do not propagate to the original one. */
void own_mounts(void)
{
    CHECK(unshare(CLONE_NEWNS), "unshare mount namespace");
    do_mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
}

static const char *const devices[] = {"null", "zero", "full", "random", "urandom", "tty"};
enum { N_DEVICES = sizeof devices / sizeof devices[0] };

#define STAGING "/tmp"  /* the kept mounts are assembled here before they become the root */

static bool own_nodes;

/* As the host's root, before dropping privileges: create device nodes that belong to id 0 inside, on no file system of the
 * host. An ordinary user can only use the host's nodes (see make_kept_mounts). */
void make_device_nodes(uid_t uid, gid_t gid)
{
    static const unsigned numbers[N_DEVICES][2] = {{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}};
    if (unshare(CLONE_NEWNS)) return;  /* root without permission: use the host's nodes */
    do_mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    do_mount("udev", STAGING, "tmpfs", MS_NOSUID | MS_NOEXEC, "size=0,mode=755");
    umask(0);
    own_nodes = true;
    for (unsigned i = 0; i < N_DEVICES && own_nodes; i++) {
        char path[64], placeholder_path[64];
        snprintf(path, sizeof path, STAGING "/%s", devices[i]);
        if (mknod(path, S_IFCHR | 0666, makedev(numbers[i][0], numbers[i][1])) || chown(path, uid, gid)) {
            umount2(STAGING, MNT_DETACH);  /* root of a container without permission: use the host's nodes */
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

/* ---- mounts kept while a sandbox is reopened ------------------------------------------------------ */

/* The mount interface of Linux 5.2, which older C libraries do not declare. */
enum { SET_FLAG, SET_STRING, CREATE = 6, RECONFIGURE };  /* FSCONFIG_* */
enum { CLOSE_ON_EXEC = 1, CLONE_TREE = 1, EMPTY_PATH = 4, EMPTY_TARGET = 0x40, BENEATH = 0x200, PICK_EMPTY_PATH = 8 };

static void move_mount_to(int mount, int directory, const char *path)
{
    CHECK((int)syscall(SYS_move_mount, mount, "", directory, path, EMPTY_PATH), "move a mount to %s", path);
}

/* Create a detached overlay of these layers. Without `device` it has no upper layer, else it uses the directories of /layer and
 * is shown as that device. Negative if the kernel refuses it. */
static int mount_overlay(const char *layers, const char *device)
{
    const char *const settings[][2] = {
        {"source", device ? device : "system"}, {"lowerdir", layers}, {"xino", "on"},
        {"upperdir", device ? "/layer/upper" : NULL}, {"workdir", device ? "/layer/work" : NULL},
    };
    int fs = (int)syscall(SYS_fsopen, "overlay", CLOSE_ON_EXEC);
    if (fs < 0) return -1;
    bool taken = !syscall(SYS_fsconfig, fs, SET_FLAG, "userxattr", NULL, 0);
    for (unsigned i = 0; i < sizeof settings / sizeof *settings && taken; i++)
        if (settings[i][1]) taken = !syscall(SYS_fsconfig, fs, SET_STRING, settings[i][0], settings[i][1], 0);
    taken = taken && !syscall(SYS_fsconfig, fs, CREATE, NULL, NULL, 0);
    int mounted = taken ? (int)syscall(SYS_fsmount, fs, CLOSE_ON_EXEC, 0) : -1;
    int error = errno;
    close(fs);
    errno = error;
    return mounted;
}

/* The parts of the lower layer: /lower has the system's files on the host, /tree is in memory. */
static const struct { const char *name, *layers; } forms[] = {
    {"names", "/tree/top::/lower"},            /* only data comes from the host's file system (Linux 6.16) */
    {"part", "/tree/top:/lower:/tree/names"},  /* /usr comes from it; the last layer determines the order of / */
};
enum { NAMES, PART, N_FORMS };
static unsigned form;

/* Set the form of an existing lower layer. */
static void take_form(const char *name)
{
    while (form < N_FORMS - 1 && strcmp(forms[form].name, name)) form++;
}

static bool is_not_usr(const char *name) { return strcmp(name, "usr") != 0; }

/* Whether a file has the same content through the view as on the host. */
static bool reads_through(const char *path)
{
    char bytes[2][256], place[PATH_MAX + 16];
    ssize_t lengths[2];
    for (unsigned i = 0; i < 2; i++) {
        snprintf(place, sizeof place, "%s%s", i ? "/lower" : "/system", path);
        int fd = open(place, O_RDONLY | O_CLOEXEC);
        lengths[i] = fd < 0 ? -1 : read(fd, bytes[i], sizeof bytes[i]);
        if (fd >= 0) close(fd);
    }
    return lengths[0] >= 0 && lengths[0] == lengths[1] && !memcmp(bytes[0], bytes[1], (size_t)lengths[0]);
}

/* Make /system show the initial state of every layer. */
static void show_view(void)
{
    int mounted = mount_overlay(forms[form].layers, NULL);
    CHECK(mounted, "mount overlay of the system");
    move_mount_to(mounted, AT_FDCWD, "/system");
    close(mounted);
}

/* Fill the tree and make it visible. Return whether the kernel supports the form. */
static bool make_view(const struct timespec *instant)
{
    int mounted = mount_overlay(forms[form].layers, NULL);  /* test this before work that may be in vain */
    if (mounted < 0) return false;
    close(mounted);
    const char *left = fill_tree("/lower", "/tree/top", instant, form == PART, form == PART ? is_not_usr : NULL);
    if (form == PART) fill_names("/lower", "/tree/names");
    show_view();
    if (form != NAMES || !*left || reads_through(left)) return true;
    CHECK(umount2("/system", MNT_DETACH), "detach the view");
    return false;
}

/* Create the system's tree in memory, in the wanted form or the next one that the kernel supports. Return the form's name. */
static const char *make_tree(const char *wanted, const struct timespec *instant)
{
    while (form < N_FORMS && strcmp(forms[form].name, wanted)) form++;
    for (; form < N_FORMS; form++) {
        do_mount("none", "/tree", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOATIME, "mode=755");
        make_directory("/tree/top");
        make_directory("/tree/names");
        if (make_view(instant)) {
            do_mount(NULL, "/tree", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOATIME, "mode=755");
            return forms[form].name;
        }
        CHECK(umount2("/tree", MNT_DETACH), "detach the tree");
    }
    die("mount overlay of the system");
}

/* Get the tree of another sandbox's kept mounts as a detached mount, and the packed files of its processes. This process then
 * returns to its own mounts. */
struct shared_parts parts_of(int kept)
{
    int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC), here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (own < 0 || here < 0) die("open own namespaces");
    join_namespace(kept, CLONE_NEWNS, "kept mount");
    struct shared_parts parts = {
        .tree = (int)syscall(SYS_open_tree, AT_FDCWD, "/tree", CLONE_TREE | O_CLOEXEC),
        .processes = open("/packed", O_RDONLY | O_CLOEXEC),
    };
    if (parts.tree < 0 || parts.processes < 0) die("share the kept tree");
    join_namespace(own, CLONE_NEWNS, "own mount");
    CHECK(fchdir(here), "enter the system");
    close(own);
    close(here);
    return parts;
}

/* Create the mounts from which every supervisor of a sandbox starts, and make them this process's root. They contain nothing of
 * the host except its /proc, without which the kernel permits no other one. `parts` are another sandbox's, of the same system: its
 * tree is used as it is, with its form. Return the form of the lower layer. */
const char *make_kept_mounts(const char *wanted, const struct timespec *instant, const char *plain, struct shared_parts parts)
{
    int nodes[N_DEVICES];
    char path[512];
    for (unsigned i = 0; i < N_DEVICES; i++) {
        snprintf(path, sizeof path, "%s/%s", own_nodes ? STAGING : "/dev", devices[i]);
        nodes[i] = open(path, O_PATH | O_CLOEXEC);
        CHECK(nodes[i], "open %s", path);
    }
    do_mount("proc", STAGING, "tmpfs", MS_NOSUID | MS_NODEV, "size=0,mode=755");
    static const char *const names[] = {
        "lower", "tree", "system", "plain", "host", "proc", "sys", "devices", "empty", "layer", "old", "queues",
        "terminals", "covers", "uptime", "processes",
    };
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, STAGING "/%s", names[i]);
        make_directory(path);
    }
    int packed = parts.processes < 0 ? pack_processes(STAGING "/packed") : parts.processes;
    fill_processes(packed, STAGING "/processes");
    close(packed);
    do_mount("rootfs", STAGING "/lower", NULL, MS_BIND, NULL);
    make_read_only(STAGING "/lower");
    if (plain) do_mount(plain, STAGING "/plain", NULL, MS_BIND, NULL);
    /* /sys cannot be changed, as on a real machine. So it is not part of the layer, where changes by root are recorded. */
    do_mount("sysfs", STAGING "/sys", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0,mode=555");
    fill_tree(STAGING "/lower/sys", STAGING "/sys", instant, true, NULL);
    make_read_only(STAGING "/sys");
    for (unsigned i = 0; i < N_DEVICES; i++) {
        char node[64];
        snprintf(node, sizeof node, "/proc/self/fd/%d", nodes[i]);
        snprintf(path, sizeof path, STAGING "/devices/%s", devices[i]);
        touch_file(path);
        do_mount(node, path, NULL, MS_BIND, NULL);
        make_read_only(path);  /* protects owner and times; the device itself stays writable */
        close(nodes[i]);
    }
    touch_file(STAGING "/devices/ptmx");
    do_mount("/proc", STAGING "/host", NULL, MS_BIND | MS_REC, NULL);
    CHECK(chdir(STAGING), "chdir to the new root");
    CHECK((int)syscall(SYS_pivot_root, ".", "old"), "pivot_root");
    CHECK(chdir("/"), "chdir /");
    CHECK(umount2("/old", MNT_DETACH), "detach the host's mounts");
    if (parts.tree < 0) return make_tree(wanted, instant);
    take_form(wanted);
    move_mount_to(parts.tree, AT_FDCWD, "/tree");
    close(parts.tree);
    show_view();
    return forms[form].name;
}

/* Enter a copy of the kept mounts, without changing the working directory. */
void enter_kept_mounts(int kept, const char *name)
{
    int here = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(here, "open the system");
    join_namespace(kept, CLONE_NEWNS, "kept mount");
    CHECK(fchdir(here), "enter the system");
    close(here);
    CHECK(unshare(CLONE_NEWNS), "unshare mount namespace");
    take_form(name);
}

/* Create a supervisor's first mount tree: all parts of the layers, and nothing of the host. */
void make_outer_mounts(void)
{
    do_mount("mqueue", "/queues", "mqueue", MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_NOATIME, NULL);
    do_mount("devpts", "/terminals", "devpts", MS_NOSUID | MS_NOEXEC | MS_NOATIME, "newinstance,ptmxmode=0666,max=64,gid=5,mode=620");
    CHECK(chown("/terminals/ptmx", 0, 5), "chown the terminal multiplexer");
    do_mount("/terminals/ptmx", "/devices/ptmx", NULL, MS_BIND, NULL);
    make_read_only("/devices/ptmx");
    /* newly created, but shown with the times of their mount points */
    static const char *const made[][2] = {
        {"/system/dev/mqueue", "/queues"}, {"/system/dev/pts", "/terminals"}, {"/system/dev/pts", "/terminals/ptmx"},
    };
    for (unsigned i = 0; i < sizeof made / sizeof made[0]; i++) {
        struct stat placeholder;
        if (stat(made[i][0], &placeholder)) continue;
        struct timespec times[2] = {placeholder.st_atim, placeholder.st_mtim};
        utimensat(AT_FDCWD, made[i][1], times, 0);
    }
    mount_proc("/proc");
    /* A separate file system, made read-only once it is filled. The covers of /proc are bind-mounted from it. */
    do_mount("proc", "/covers", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0,mode=555");
    touch_file("/covers/.empty");
    make_directory("/covers/.directory");
    cover_proc("proc", "/covers", "/proc");
    mask_proc("/proc", "/covers", "/covers/.empty", "/covers/.directory");
    cover_uptime("/proc/uptime", "/uptime");
    ask_init();
    if (!init_alive) { errno = ECHILD; die("move init"); }
    start_processes();
    cover_processes("/proc");
    do_mount(NULL, "/covers", NULL, MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0");
    CHECK(chdir("/"), "chdir /");
    CHECK(umount2("/host", MNT_DETACH), "detach the host's /proc");
    ns_outer_mounts = openat(host_proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
    CHECK(ns_outer_mounts, "open own mount namespace");
}

struct disk_state disk_state(void)
{
    struct statfs space;
    struct stat root;
    struct disk_state state = {0};
    if (!fstatfs(upper_root, &space)) state.files = space.f_ffree, state.blocks = space.f_bfree;
    if (!fstat(upper_root, &root)) {
        state.mode = root.st_mode;
        state.owner = (uint64_t)root.st_uid << 32 | root.st_gid;
        state.changed = root.st_ctim;
        state.modified = root.st_mtim;
    }
    return state;
}

/* Reading / changes its access time, and / is the only entry in a pristine upper layer. Reset it for the next run. */
void settle_root(void)
{
    struct stat root;
    if (fstat(upper_root, &root) || !memcmp(&root.st_atim, &root_times[0], sizeof root_times[0])) return;
    futimens(upper_root, root_times);
    pristine_disk = disk_state();
}

/* ---- the layers ---------------------------------------------------------------------------------- */

/* Mounts that are in every layer, moved from one layer to the next. */
static struct { const char *from, *to; int fd; } standing[] = {
    {"/proc", "proc", -1}, {"/sys", "sys", -1}, {"/devices/ptmx", "dev/ptmx", -1},
    {"/devices/null", "dev/null", -1}, {"/devices/zero", "dev/zero", -1}, {"/devices/full", "dev/full", -1},
    {"/devices/random", "dev/random", -1}, {"/devices/urandom", "dev/urandom", -1}, {"/devices/tty", "dev/tty", -1},
    {"/queues", "dev/mqueue", -1}, {"/terminals", "dev/pts", -1},
};
enum { N_STANDING = sizeof standing / sizeof standing[0] };

static int layer_mounts = -1;

enum { MOST_FROZEN = 20 };  /* maximum of frozen layers, whose names must fit into 255 bytes */
static unsigned frozen;
static struct stat frozen_roots[MOST_FROZEN + 1];  /* the root when that many layers were frozen */

static void set_root(const struct stat *root)
{
    CHECK(fchown(upper_root, root->st_uid, root->st_gid), "chown the upper root");
    CHECK(fchmod(upper_root, root->st_mode & 07777), "chmod the upper root");
    futimens(upper_root, (struct timespec[]){root->st_atim, root->st_mtim});
}

static const struct layer_copy *to_be_filled;  /* the content of the next layer; NULL: none */

/* Create the writable directories of /layer, with the attributes of the / that `below` shows. */
static void make_upper(int below, struct stat *root)
{
    make_directory("/layer/upper");
    make_directory("/layer/work");
    upper_root = open("/layer/upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(fstat(below, root), "stat the system's root");
    set_root(root);
    /* The file system id in `stat -f`, which overlayfs would choose at random. */
    CHECK(fsetxattr(upper_root, "user.overlay.uuid", "shioenv-overlay!", 16, 0), "name the overlay");
    if (!to_be_filled) return;
    make_directory("/layer/stage");
    int stage = open("/layer/stage", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(stage, "open the stage of a layer");
    fill_layer(upper_root, stage, to_be_filled);
    close(stage);
    CHECK(rmdir("/layer/stage"), "remove the stage of a layer");
    *root = to_be_filled->root;
    set_root(root);
    numbers_kept = to_be_filled->numbers_kept;
}

/* Record the initial state of a layer of these mounts, to find changes later. */
static void remember_layer(int mounted)
{
    merged_root = openat(mounted, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    pristine_disk = disk_state();
    if (to_be_filled) pristine_disk.files = UINT64_MAX;  /* unlike any state: it is always scanned */
}

/* Create a pristine root as a detached mount: an empty tmpfs over the lower layer. Starts and ends in the outer mounts. */
static int make_root(bool with_library)
{
    close_fd(&upper_root);
    close_fd(&merged_root);
    if (lower_root >= 0) CHECK(umount2("/layer", MNT_DETACH), "detach the last layer's disk");
    if (frozen) close_fd(&lower_root);
    frozen = 0;
    numbers_kept = false;
    if (lower_root < 0) lower_root = open("/system", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    do_mount("none", "/layer", "tmpfs", MS_NOSUID | MS_NODEV, config.disk);
    struct stat root;
    make_upper(lower_root, &root);
    if (with_library) {
        int fd = openat(upper_root, ".shioenv.so", O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
        CHECK(fd, "create the preload library");
        write_all(fd, config.preload.bytes, config.preload.length);
        close(fd);
    }
    root_times[0] = root.st_atim, root_times[1] = root.st_mtim;
    futimens(upper_root, root_times);
    int mounted;
    if (config.plain && !with_library) {  /* inputs never run in the library's layer */
        mounted = (int)syscall(SYS_open_tree, AT_FDCWD, "/plain", CLONE_TREE | O_CLOEXEC);
        CHECK(mounted, "clone the plain copy's mount");
    } else {
        mounted = mount_overlay(forms[form].layers, config.device);
        CHECK(mounted, "mount overlay");
    }
    remember_layer(mounted);
    return mounted;
}

static void move_standing(int root)
{
    for (int i = 0; i < N_STANDING; i++) move_mount_to(standing[i].fd, root, standing[i].to);
}

/* Make `root` the root of the layer's mount namespace, and drop the previous one. It is mounted beneath that one, because
 * pivot_root looks at every process of the host. */
static void become_root(int root)
{
    int last = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    CHECK(last, "open the last root");
    if (fchdir(root) || chroot(".")) die("leave the last root");  /* nothing can be mounted beneath a process's own root */
    CHECK((int)syscall(SYS_move_mount, root, "", last, "", EMPTY_PATH | EMPTY_TARGET | BENEATH), "mount beneath the last root");
    move_standing(root);
    CHECK(fchdir(last), "enter the last root");
    CHECK(umount2(".", MNT_DETACH), "detach the last root");
    close(last);
    close(root);
}

/* Create a mount namespace with a pristine system as root, including /proc and devices, and return its descriptor. The system
 * covers what the outer mounts still have there, which inputs cannot reach. The supervisor then returns to the outer mounts. */
int make_layer(bool with_library)
{
    int root = make_root(with_library);
    CHECK(unshare(CLONE_NEWNS), "unshare mount namespace");
    for (int i = 0; i < N_STANDING; i++) {
        close_fd(&standing[i].fd);
        standing[i].fd = open(standing[i].from, O_PATH | O_CLOEXEC);
        CHECK(standing[i].fd, "open %s", standing[i].from);
    }
    move_mount_to(root, AT_FDCWD, "/");
    move_standing(root);
    close(root);
    CHECK(umount2("/layer", MNT_DETACH), "detach the layer's disk");  /* it would outlive the layer */
    int fd = openat(host_proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC);
    CHECK(fd, "open the layer's mount namespace");
    join_namespace(ns_outer_mounts, CLONE_NEWNS, "outer mount");
    if (!with_library) layer_mounts = fd;
    return fd;
}

/* Make the layer pristine again, by a new root in the same mount namespace. */
void renew_layer(void)
{
    int root = make_root(false);
    join_namespace(layer_mounts, CLONE_NEWNS, "layer mount");
    become_root(root);
    join_namespace(ns_outer_mounts, CLONE_NEWNS, "outer mount");
}

/* Copy the layer's mounts as for inputs (inside/server.c); the copy belongs to the inner user namespace. */
static int copy_of_layer(void)
{
    int up[2];
    if (pipe2(up, O_CLOEXEC)) die("pipe");
    pid_t child = fork();
    CHECK(child, "fork");
    if (child == 0) {
        join_namespace(layer_mounts, CLONE_NEWNS, "layer mount");
        join_namespace(ns_user, CLONE_NEWUSER, "inner user");
        CHECK(unshare(CLONE_NEWNS), "copy the layer's mounts");
        prctl(PR_SET_DUMPABLE, 1);
        if (write(up[1], "", 1) != 1) _exit(125);
        for (;;) pause();
    }
    close(up[1]);
    char byte;
    int copy = -1;
    if (read(up[0], &byte, 1) == 1) copy = open_ns(child, "mnt");
    close(up[0]);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    return copy;
}

/* List the frozen layers, newest first, then the initial ones. */
static const char *layers_below(void)
{
    static char text[256];
    size_t length = 0;
    for (unsigned n = frozen; n; n--) length += (size_t)snprintf(text + length, sizeof text - length, "/layer/%u:", n);
    snprintf(text + length, sizeof text - length, "%s", forms[form].layers);
    return text;
}

/* Move the content of the upper directory to a directory that no overlay uses. */
static void empty_upper(const char *to)
{
    int fd = openat(upper_root, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), target;
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (!list) die("read the layer");
    struct stat root;
    CHECK(fstat(upper_root, &root), "look at the layer");
    make_directory(to);
    target = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (struct dirent *entry; (entry = readdir(list));)
        if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, ".."))
            CHECK(renameat(upper_root, entry->d_name, target, entry->d_name), "freeze /%s", entry->d_name);
    closedir(list);
    CHECK(fchown(target, root.st_uid, root.st_gid), "chown the frozen layer");
    CHECK(fchmod(target, root.st_mode & 07777), "chmod the frozen layer");
    futimens(target, (struct timespec[]){root.st_atim, root.st_mtim});
    close(target);
}

/* Reconfiguring a file system makes the kernel drop its cached names, even if nothing changes. */
void forget_names(void)
{
    int fs = (int)syscall(SYS_fspick, merged_root, "", CLOSE_ON_EXEC | PICK_EMPTY_PATH);
    if (fs >= 0) syscall(SYS_fsconfig, fs, RECONFIGURE, NULL, NULL, 0);
    close_fd(&fs);
}

unsigned frozen_layers(void) { return frozen; }

bool has_frozen_layers(void) { return frozen > 0; }

/* Mount the overlay over the frozen layers, in new directories for changes, and show the frozen state as `lower_root`. */
static void cover_frozen(const struct stat *root)
{
    int view = mount_overlay(layers_below(), NULL);
    CHECK(view, "mount the overlay of a frozen layer");
    struct stat own;
    make_upper(view, &own);
    set_root(to_be_filled ? &own : root);
    int mounted = mount_overlay(layers_below(), config.device);
    CHECK(mounted, "mount the overlay over a frozen layer");
    close_fd(&lower_root);
    lower_root = openat(view, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    close(view);
    remember_layer(mounted);
    join_namespace(layer_mounts, CLONE_NEWNS, "layer mount");
    become_root(mounted);
    join_namespace(ns_outer_mounts, CLONE_NEWNS, "outer mount");
}

unsigned freeze_unused_layer(void)
{
    if (frozen == MOST_FROZEN || config.plain) return 0;
    char name[32], work[32];
    snprintf(name, sizeof name, "/layer/%u", ++frozen);
    snprintf(work, sizeof work, "/layer/work%u", frozen);
    struct stat *root = &frozen_roots[frozen];
    int merged = merged_root, upper = upper_root;
    CHECK(fstat(merged, root), "look at the root");
    empty_upper(name);
    CHECK(rename("/layer/work", work), "rename the layer's work");
    CHECK(rmdir("/layer/upper"), "remove the layer's directory");
    cover_frozen(root);
    close(merged);
    close(upper);
    return frozen;
}

int freeze_layer(void) { return freeze_unused_layer() ? copy_of_layer() : -1; }

/* Remove a directory of the layer. Directories in it are first moved to its top, so that the depth does not matter. */
static void remove_tree(const char *path)
{
    int top = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (top < 0) return;
    unsigned moved = 0;
    for (bool more = true; more;) {
        more = false;
        int fd = openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *list = fd < 0 ? NULL : fdopendir(fd);
        for (struct dirent *entry; list && (entry = readdir(list));) {
            if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") || !unlinkat(top, entry->d_name, 0)) continue;
            int inner = openat(top, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            DIR *entries = inner < 0 ? NULL : fdopendir(inner);
            for (struct dirent *each; entries && (each = readdir(entries));) {
                char name[32];
                snprintf(name, sizeof name, ".removed.%u", ++moved);
                if (!strcmp(each->d_name, ".") || !strcmp(each->d_name, "..") || !unlinkat(inner, each->d_name, 0)) continue;
                more |= !renameat(inner, each->d_name, top, name);
            }
            if (entries) closedir(entries);
            if (unlinkat(top, entry->d_name, AT_REMOVEDIR)) more |= errno == ENOTEMPTY && moved < UINT_MAX / 2;
        }
        if (list) closedir(list);
    }
    close(top);
    rmdir(path);
}

static void return_to(unsigned to)
{
    if (!to) {
        renew_layer();
        return;
    }
    close_fd(&upper_root);
    close_fd(&merged_root);
    CHECK(rename("/layer/upper", "/layer/gone"), "rename the layer's directory");
    CHECK(rename("/layer/work", "/layer/gonework"), "rename the layer's work");
    unsigned before = frozen;
    frozen = to;
    cover_frozen(&frozen_roots[to]);
    remove_tree("/layer/gone");
    remove_tree("/layer/gonework");
    for (; before > to; before--) {
        char name[32];
        snprintf(name, sizeof name, "/layer/%u", before);
        remove_tree(name);
        snprintf(name, sizeof name, "/layer/work%u", before);
        remove_tree(name);
    }
    if (!to_be_filled) pristine_disk = disk_state();
}

bool is_layer(unsigned layers, const struct layer_copy *copy)
{
    struct disk_state disk = disk_state();
    return frozen == layers && (copy ? is_layer_of(upper_root, copy) : !memcmp(&disk, &pristine_disk, sizeof disk));
}

void roll_back_layer(unsigned to, const struct layer_copy *copy)
{
    to_be_filled = copy;
    return_to(to);
    to_be_filled = NULL;
}
