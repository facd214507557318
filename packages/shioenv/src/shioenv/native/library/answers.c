/* Functions that replace those of a system's C library, to return declared values instead of the host's. Not linked into any
 * program: the build of a system (system/answers.py) appends this code to the library as a separate segment, fills in the
 * facts (facts.h) and redirects the library's symbols to it. A function that the library lacks stays unused.
 *
 * Only calls by programs are redirected, not calls within the library, raw system calls or statically linked programs.
 *
 * The clock: each run has a time namespace in which the time since boot starts at the declared uptime. So the declared time is
 * the declared boot time plus that. The kernel stamps files in real time; the stat family converts times within the run to
 * declared ones. No memory, file or variable is shared. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/if_link.h>
#include <linux/inet_diag.h>
#include <linux/sock_diag.h>
#include <linux/stat.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "devices.h"
#include "facts.h"
#include "lines.h"
#include "proc.h"

#ifdef __x86_64__  /* systems for other architectures keep the host's values */

#define SECOND 1000000000ll
/* Real and declared time differ by a multiple of this, so a measurement within half of it gives the exact difference. */
#define STEP 1000000ll
/* A run starts this much after the declared instant, so that a program that subtracts its time since boot from a slightly
 * earlier time still gets the declared second. */
#define LEAD 10000000ll

/* Weak, so that the compiler does not assume zeros. */
__attribute__((section(".facts"), weak)) const struct facts facts;

/* ---- the kernel ---------------------------------------------------------------------------------- */

EXPORT int uname(struct utsname *names)
{
    long result = call(SYS_uname, (long)names, 0, 0, 0, 0);
    if (result) return answer(result);
    const char *at = answers_end;
    for (char *to = names->release; (*to++ = *at++);) {}
    for (char *to = names->version; (*to++ = *at++);) {}
    return 0;
}

/* ---- the machine --------------------------------------------------------------------------------- */

enum { THREADS = 64, PAGE_SIZE = 4096 };  /* as in /proc/loadavg */

EXPORT int sysinfo(struct sysinfo *machine)
{
    long result = call(SYS_sysinfo, (long)machine, 0, 0, 0, 0);
    if (result) return answer(result);
    for (int i = 0; i < 3; i++) machine->loads[i] = (unsigned long)facts.loads[i];
    machine->totalram = (unsigned long)facts.memory;
    machine->freeram = (unsigned long)facts.free;
    machine->sharedram = (unsigned long)facts.shared;
    machine->bufferram = (unsigned long)facts.buffers;
    machine->totalswap = machine->freeswap = (unsigned long)facts.swap;
    machine->totalhigh = machine->freehigh = 0;
    machine->mem_unit = 1;
    machine->procs = THREADS;
    return 0;
}

EXPORT int getloadavg(double loads[], int wanted)
{
    int n = wanted < 3 ? wanted : 3;
    for (int i = 0; i < n; i++) loads[i] = (double)facts.loads[i] / 65536;
    return n;
}

EXPORT long get_phys_pages(void) { return facts.memory / PAGE_SIZE; }
EXPORT long get_avphys_pages(void) { return facts.free / PAGE_SIZE; }

EXPORT long sysconf(int name)
{
    if (name == _SC_PHYS_PAGES) return get_phys_pages();
    if (name == _SC_AVPHYS_PAGES) return get_avphys_pages();
    return ORIGINAL(sysconf)(name);
}

/* ---- the time ------------------------------------------------------------------------------------ */

static int64_t count(const struct timespec *time) { return time->tv_sec * SECOND + time->tv_nsec; }

static void set(struct timespec *time, int64_t nanoseconds)
{
    time->tv_sec = nanoseconds / SECOND;
    time->tv_nsec = nanoseconds % SECOND;
    if (time->tv_nsec < 0) time->tv_nsec += SECOND, time->tv_sec--;
}

static int64_t kernel_time(clockid_t clock)
{
    struct timespec now;
    ORIGINAL(clock_gettime)(clock, &now);
    return count(&now);
}

static int64_t booted(void) { return facts.boot * SECOND + LEAD; }

static int64_t declared_time(void) { return booted() + kernel_time(CLOCK_BOOTTIME); }

/* Real time minus declared time: constant during a run. */
static int64_t difference(void)
{
    int64_t found = 0;
    for (int tries = 0; tries < 50; tries++) {
        int64_t before = kernel_time(CLOCK_BOOTTIME), real = kernel_time(CLOCK_REALTIME);
        int64_t after = kernel_time(CLOCK_BOOTTIME);
        found = real - (before + (after - before) / 2) - booted();
        if (after - before < STEP / 2) break;
    }
    found += found < 0 ? -STEP / 2 : STEP / 2;
    return found - found % STEP;
}

EXPORT int clock_gettime(clockid_t clock, struct timespec *time)
{
    if (clock != CLOCK_REALTIME && clock != CLOCK_REALTIME_COARSE && clock != CLOCK_TAI)
        return ORIGINAL(clock_gettime)(clock, time);
    set(time, declared_time());
    return 0;
}

EXPORT int timespec_get(struct timespec *time, int base)
{
    if (base != TIME_UTC) return 0;
    set(time, declared_time());
    return base;
}

EXPORT int gettimeofday(struct timeval *restrict time, void *restrict zone)
{
    struct timespec now;
    set(&now, declared_time());
    if (time) time->tv_sec = now.tv_sec, time->tv_usec = now.tv_nsec / 1000;
    if (zone) *(int64_t *)zone = 0;  /* Greenwich */
    return 0;
}

EXPORT time_t time(time_t *stored)
{
    time_t now = declared_time() / SECOND;
    if (stored) *stored = now;
    return now;
}

/* ---- absolute deadlines ----------------------------------------------------------------------- */

/* Convert a declared time to a real one. Times before booting have passed in both; condition variables of the monotonic clock
 * use such small values. */
static const struct timespec *kernel_moment(const struct timespec *declared, struct timespec *real)
{
    if (declared->tv_sec < facts.boot) return declared;
    set(real, count(declared) + difference());
    return real;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *time, struct timespec *left)
{
    struct timespec real;
    if (clock == CLOCK_REALTIME && flags & TIMER_ABSTIME) time = kernel_moment(time, &real);
    return (int)-call(SYS_clock_nanosleep, clock, flags, (long)time, (long)left, 0);
}

EXPORT int pthread_cond_timedwait(pthread_cond_t *restrict condition, pthread_mutex_t *restrict mutex,
                                  const struct timespec *restrict time)
{
    struct timespec real;
    return ORIGINAL(pthread_cond_timedwait)(condition, mutex, kernel_moment(time, &real));
}

/* ---- messages of the kernel over sockets ------------------------------------------------------------ */

/* Convert arrival times of packets to declared ones. */
static void declare_arrival(struct msghdr *message)
{
    size_t left = message->msg_controllen;
    for (char *at = message->msg_control; at && left >= sizeof(struct cmsghdr);) {
        struct cmsghdr *header = (struct cmsghdr *)at;
        if (header->cmsg_len < sizeof *header || header->cmsg_len > left) break;
        int64_t unit = header->cmsg_type == SO_TIMESTAMP ? 1000000 : header->cmsg_type == SO_TIMESTAMPNS ? SECOND : 0;
        if (header->cmsg_level == SOL_SOCKET && unit && header->cmsg_len >= CMSG_LEN(sizeof(struct timespec))) {
            struct timespec *arrival = (struct timespec *)CMSG_DATA(header);
            int64_t declared = arrival->tv_sec * unit + arrival->tv_nsec - difference() / (SECOND / unit);
            arrival->tv_sec = declared / unit;
            arrival->tv_nsec = declared % unit;
        }
        size_t step = CMSG_ALIGN(header->cmsg_len);
        if (step > left) break;
        at += step;
        left -= step;
    }
}

/* Hide the attributes that identify a network card as a veth, whose other end is the gateway. No other network is visible, so
 * a card with a peer in another namespace is that card. */
static void declare_card(char *attributes, size_t length)
{
    for (int pass = 0, cable = 0; pass < 2; pass++)
        for (size_t at = 0; at + sizeof(struct nlattr) <= length;) {
            struct nlattr *attribute = (struct nlattr *)(attributes + at);
            if (attribute->nla_len < sizeof *attribute || attribute->nla_len > length - at) break;
            int type = attribute->nla_type & NLA_TYPE_MASK;
            cable |= type == IFLA_LINK_NETNSID;
            if (pass && cable && (type == IFLA_LINK || type == IFLA_LINK_NETNSID || type == IFLA_LINKINFO))
                attribute->nla_type = IFLA_UNSPEC;  /* which parsers skip */
            at += NLA_ALIGN(attribute->nla_len);
        }
}

static int protocol_of(int socket)
{
    int protocol = -1, size = sizeof protocol;
    call(SYS_getsockopt, socket, SOL_SOCKET, SO_PROTOCOL, (long)&protocol, (long)&size);
    return protocol;
}

/* Set the declared inode number of a socket of the machine's processes, as requested by `ss`. Addresses of cards have the same
 * message type, so the protocol is checked if the bytes could be such a socket. */
static void declare_socket(int socket, const struct nlmsghdr *header)
{
    if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY || header->nlmsg_len < NLMSG_SPACE(sizeof(struct inet_diag_msg))) return;
    struct inet_diag_msg *found = NLMSG_DATA(header);
    int family = found->idiag_family == AF_INET ? 4 : found->idiag_family == AF_INET6 ? 6 : 0;
    uint64_t inode = declared_inode(family, __builtin_bswap16(found->id.idiag_sport), __builtin_bswap16(found->id.idiag_dport));
    if (inode && protocol_of(socket) == NETLINK_SOCK_DIAG) found->idiag_inode = (uint32_t)inode;
}

static void declare_cards(int socket, char *messages, size_t length)
{
    int protocol = -1;
    for (size_t at = 0; at + sizeof(struct nlmsghdr) <= length;) {
        struct nlmsghdr *header = (struct nlmsghdr *)(messages + at);
        if (header->nlmsg_len < sizeof *header || header->nlmsg_len > length - at) break;
        if (header->nlmsg_type == RTM_NEWLINK && header->nlmsg_len > NLMSG_SPACE(sizeof(struct ifinfomsg))) {
            if (protocol < 0) protocol = protocol_of(socket);
            if (protocol != NETLINK_ROUTE) break;
            size_t start = NLMSG_SPACE(sizeof(struct ifinfomsg));
            declare_card((char *)header + start, header->nlmsg_len - start);
        }
        declare_socket(socket, header);
        at += NLMSG_ALIGN(header->nlmsg_len);
    }
}

EXPORT ssize_t recvmsg(int socket, struct msghdr *message, int flags)
{
    ssize_t length = ORIGINAL(recvmsg)(socket, message, flags);
    if (length < 0) return length;
    if (facts.instant) declare_arrival(message);
    const struct sockaddr *sender = message->msg_name;
    if (sender && message->msg_namelen >= sizeof sender->sa_family && sender->sa_family == AF_NETLINK
        && message->msg_iovlen && message->msg_iov->iov_base) {
        size_t room = message->msg_iov->iov_len;
        declare_cards(socket, message->msg_iov->iov_base, (size_t)length < room ? (size_t)length : room);
    }
    return length;
}

/* ---- files ---------------------------------------------------------------------------------------- */

struct times { struct timespec access, change, status, birth; };

/* Whether a file is on another device than the root directory, for example below /proc. */
static bool elsewhere(dev_t device)
{
    struct stat root;
    return !call(SYS_newfstatat, AT_FDCWD, (long)"/", (long)&root, 0, 0) && root.st_dev != device;
}

/* Convert a file's times to those of the declared machine. Times within the run: subtract the difference. Other times after the
 * instant come from unpacking, reading or mounting on the host: the file is as old as its content, was read at the instant, or
 * existed at booting. If the run changed its status, the times are those that the run set. */
static void declare(struct times *times, dev_t device)
{
    if (!facts.instant) return;
    struct timespec *const all[] = {&times->change, &times->access, &times->status, &times->birth};
    int64_t instant = facts.instant * SECOND, gap = difference();
    int64_t start = instant + LEAD + gap, now = declared_time() + gap + STEP;
    bool touched = count(&times->status) >= start;
    for (int i = 0; i < 4; i++) {
        int64_t time = count(all[i]);
        if (time >= start && time <= now) set(all[i], time - gap);
        else if (time <= instant || time > now) continue;
        else if (i > 1) *all[i] = times->change;
        else if (!touched || (i && all[i]->tv_nsec) || elsewhere(device))
            set(all[i], i ? instant : facts.boot * SECOND);
    }
}

#define BLOCK 4096  /* bytes of a directory that a disk's file system reserves at a time */

/* The size on a disk of a directory in memory, which has no blocks, and 40 bytes plus 20 for each entry; 0 for a directory on a
 * disk or another device. */
static int64_t disk_size(mode_t mode, int64_t size, int64_t blocks, dev_t device)
{
    if (!S_ISDIR(mode) || blocks || size < 40 || elsewhere(device)) return 0;
    return (1 + (size - 40) / 20 / 128) * BLOCK;
}

#define INLINE_LINK 59  /* longest link target that fits in an inode; a longer one uses a block */

/* The attributes of a file that programs see, for every call. */
struct shown {
    dev_t device;
    uint64_t inode, links;
    mode_t mode;
    uint32_t uid, gid;
    int64_t size, blocks;
    struct times times;
    unsigned numbers[2];  /* of a device node: major and minor */
};

/* The caller's arguments that name the file. */
struct named { int fd; const char *path; int flags; };

/* The kernel's uid for unmapped owners; the first inode number of files of /proc that exist since booting. */
enum { NOBODY = 65534, FIRST_STATIC = 0xf0000000 };
enum { PROC_LINKS = 77 };  /* its own directories, and the processes counted by /proc/loadavg */

/* Files of /proc belong to the host's root, which is unmapped, and the links of its top count the host's processes. Processes
 * of `nobody` are excluded: their directories have more links than others that do not exist since booting. */
static void declare_proc(struct shown *file)
{
    bool top = file->mode == (S_IFDIR | 0555) && file->inode == 1 && !file->size;
    if (top) file->links = PROC_LINKS;
    if (!top && file->uid != NOBODY) return;
    struct stat proc;
    if (S_ISDIR(file->mode) && file->links > 7 && file->inode < FIRST_STATIC && !top) return;
    if (call(SYS_newfstatat, AT_FDCWD, (long)"/proc", (long)&proc, 0, 0) || proc.st_dev != file->device) return;
    file->uid = file->gid = 0;
    /* the kernel's times are those of the first access */
    const struct timespec booted = {.tv_sec = facts.boot};
    if (facts.instant) file->times.change = file->times.status = booted;
}

/* The link count of a merged directory, for which the kernel returns 1: itself, its name and its subdirectories. */
static uint64_t count_links(const struct named *name)
{
    struct entry { uint64_t inode; int64_t offset; uint16_t length; uint8_t type; char name[]; };
    int flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC | (name->flags & AT_SYMLINK_NOFOLLOW ? O_NOFOLLOW : 0);
    const char *path = *name->path ? name->path : ".";
    long fd = call(SYS_openat, name->fd, (long)path, flags | __O_NOATIME, 0, 0);
    if (fd == -EPERM) fd = call(SYS_openat, name->fd, (long)path, flags, 0, 0);
    if (fd < 0) return 1;
    _Alignas(8) char entries[2048];
    uint64_t links = 0;
    long length;
    while ((length = call(SYS_getdents64, fd, (long)entries, sizeof entries, 0, 0)) > 0)
        for (long at = 0; at < length;) {
            const struct entry *entry = (const struct entry *)(entries + at);
            links += entry->type == DT_DIR;  /* including "." and ".." */
            at += entry->length;
        }
    call(SYS_close, fd, 0, 0, 0, 0);
    return links > 1 ? links : 1;
}

/* Show the placeholder of a device as a device: a socket, or the file of the kernel's log. */
static void declare_device(struct shown *file)
{
    long mark = file->times.access.tv_nsec;
    bool stands = S_ISSOCK(file->mode) || (S_ISREG(file->mode) && mark == KERNEL_LOG_MARK);
    if (!stands || file->times.access.tv_sec != facts.instant || !IS_DEVICE_MARK(mark)) return;
    file->mode = (file->mode & 07777) | (MARKED_BLOCK(mark) ? S_IFBLK : S_IFCHR);
    file->numbers[0] = MARKED_MAJOR(mark);
    file->numbers[1] = MARKED_MINOR(mark);
    file->size = file->blocks = 0;
    file->times.access.tv_nsec = 0;
}

static bool lies_in(const char *mount, dev_t device)
{
    struct stat top;
    return !call(SYS_newfstatat, AT_FDCWD, (long)mount, (long)&top, 0, 0) && top.st_dev == device;
}

static dev_t unnamed_device(const struct shown *file)
{
    dev_t device = file->device;
    if (file->inode >> 62 || !elsewhere(device)) return (dev_t)facts.device;
    if (lies_in("/proc", device)) return PROC_DEVICE;  /* a list of mounts is read from a pipe */
    if (S_ISFIFO(file->mode)) return PIPES;
    if (S_ISSOCK(file->mode)) return SOCKETS;
    return lies_in("/sys", device) ? SYS_DEVICE : listed_device(device);
}

static void declare_file(const struct named *name, struct shown *file)
{
    dev_t device = file->device;
    declare_device(file);
    declare_proc(file);
    int64_t size = disk_size(file->mode, file->size, file->blocks, device);
    if (size) file->size = size, file->blocks = size / 512;
    if (S_ISLNK(file->mode) && !elsewhere(device)) file->blocks = file->size > INLINE_LINK ? BLOCK / 512 : 0;
    if (S_ISDIR(file->mode) && file->links == 1 && file->size) file->links = count_links(name);
    declare(&file->times, device);
    if (facts.device && is_unnamed(device)) file->device = unnamed_device(file);
    if (file->device == QUEUES_DEVICE && S_ISDIR(file->mode)) file->inode = 1;  /* else a host-wide counter */
    file->inode = shown_inode(file->inode);
}

static int declared_stat(long result, int fd, const char *path, struct stat *file, int flags)
{
    if (result) return answer(result);
    struct shown shown = {
        file->st_dev, file->st_ino, file->st_nlink, file->st_mode, file->st_uid, file->st_gid, file->st_size,
        file->st_blocks, {file->st_atim, file->st_mtim, file->st_ctim, {0, 0}}, {0, 0},
    };
    declare_file(&(struct named){fd, path, flags}, &shown);
    file->st_dev = shown.device;
    file->st_ino = shown.inode;
    file->st_nlink = shown.links;
    file->st_uid = shown.uid;
    file->st_gid = shown.gid;
    file->st_size = shown.size;
    file->st_blocks = shown.blocks;
    file->st_mode = shown.mode;
    if (shown.numbers[0]) file->st_rdev = shown.numbers[0] << 8 | shown.numbers[1];
    file->st_atim = shown.times.access;
    file->st_mtim = shown.times.change;
    file->st_ctim = shown.times.status;
    return 0;
}

EXPORT int fstat(int fd, struct stat *file)
{
    long result = call(SYS_fstat, fd, (long)file, 0, 0, 0);
    if (!result && S_ISFIFO(file->st_mode)) stat_list(fd, file);
    return declared_stat(result, fd, "", file, 0);
}

EXPORT int fstatat(int fd, const char *restrict path, struct stat *restrict file, int flags)
{
    long result = call(SYS_newfstatat, fd, (long)path, (long)file, flags, 0);
    uint64_t socket = result == -ENOENT && !(flags & AT_SYMLINK_NOFOLLOW) ? linked_socket(fd, path) : 0;
    if (!socket) return declared_stat(result, fd, path, file, flags);
    *file = (struct stat){.st_mode = S_IFSOCK | 0777, .st_ino = socket, .st_nlink = 1, .st_dev = SOCKETS, .st_blksize = BLOCK};
    return 0;
}

EXPORT int stat(const char *restrict path, struct stat *restrict file) { return fstatat(AT_FDCWD, path, file, 0); }

EXPORT int lstat(const char *restrict path, struct stat *restrict file)
{
    return fstatat(AT_FDCWD, path, file, AT_SYMLINK_NOFOLLOW);
}

/* Called by programs that were linked before glibc 2.33. */
EXPORT int __fxstat(int version, int fd, struct stat *file) { return (void)version, fstat(fd, file); }
EXPORT int __xstat(int version, const char *path, struct stat *file) { return (void)version, stat(path, file); }
EXPORT int __lxstat(int version, const char *path, struct stat *file) { return (void)version, lstat(path, file); }

EXPORT int __fxstatat(int version, int fd, const char *path, struct stat *file, int flags)
{
    return (void)version, fstatat(fd, path, file, flags);
}

static struct timespec from_statx(struct statx_timestamp time) { return (struct timespec){time.tv_sec, time.tv_nsec}; }

static void to_statx(struct statx_timestamp *to, struct timespec time)
{
    to->tv_sec = time.tv_sec;
    to->tv_nsec = (uint32_t)time.tv_nsec;
}

EXPORT int statx(int fd, const char *restrict path, int flags, unsigned mask, struct statx *restrict file)
{
    long result = call(SYS_statx, fd, (long)path, flags, mask | STATX_BASIC_STATS, (long)file);
    if (result) return answer(result);
    unsigned major = file->stx_dev_major, minor = file->stx_dev_minor;
    struct shown shown = {
        (dev_t)(minor & 0xff) | (dev_t)major << 8 | (dev_t)(minor & ~0xffu) << 12, file->stx_ino, file->stx_nlink,
        file->stx_mode, file->stx_uid, file->stx_gid, (int64_t)file->stx_size, (int64_t)file->stx_blocks,
        {from_statx(file->stx_atime), from_statx(file->stx_mtime), from_statx(file->stx_ctime),
         from_statx(file->stx_btime)}, {0, 0},
    };
    declare_file(&(struct named){fd, path, flags}, &shown);
    file->stx_dev_major = (uint32_t)(shown.device >> 8 & 0xfff);
    file->stx_dev_minor = (uint32_t)((shown.device & 0xff) | (shown.device >> 12 & 0xffffff00));
    file->stx_ino = shown.inode;
    file->stx_nlink = (uint32_t)shown.links;
    file->stx_uid = shown.uid;
    file->stx_gid = shown.gid;
    file->stx_size = (uint64_t)shown.size;
    file->stx_blocks = (uint64_t)shown.blocks;
    file->stx_mode = (uint16_t)shown.mode;
    if (shown.numbers[0]) file->stx_rdev_major = shown.numbers[0], file->stx_rdev_minor = shown.numbers[1];
    to_statx(&file->stx_atime, shown.times.access);
    to_statx(&file->stx_mtime, shown.times.change);
    to_statx(&file->stx_ctime, shown.times.status);
    to_statx(&file->stx_btime, shown.times.birth);
    return 0;
}

ALSO(stat, stat64);
ALSO(lstat, lstat64);
ALSO(fstat, fstat64);
ALSO(fstatat, fstatat64);
ALSO(__xstat, __xstat64);
ALSO(__lxstat, __lxstat64);
ALSO(__fxstat, __fxstat64);
ALSO(__fxstatat, __fxstatat64);
ALSO(clock_gettime, __clock_gettime);
ALSO(gettimeofday, __gettimeofday);
#endif
