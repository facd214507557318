/* /proc/uptime: of the kernel's own, which follows the time namespace, the second number is for how long the host
 * was idle. A file stands over it that nobody inside can write and the supervisor does, at the beginning of each run
 * and whenever it looks at one. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common.h"
#include "configuration.h"
#include "uptime.h"

static int file = -1;
static int64_t booted;  /* in hundredths of a second of the host's time since boot */

static int64_t since_boot(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * 100 + now.tv_nsec / 10000000;
}

/* The time that passed since booting, and since then without work; `anew` starts again at the declared ones. */
void show_uptime(bool anew)
{
    if (anew) booted = since_boot() - config.uptime * 100;
    int64_t up = since_boot() - booted, idle = config.idle + (up - config.uptime * 100) * config.processors;
    char text[96];
    int length = snprintf(text, sizeof text, "%lld.%02lld %lld.%02lld\n", (long long)up / 100, (long long)up % 100,
                          (long long)idle / 100, (long long)idle % 100);
    CHECK((int)pwrite(file, text, (size_t)length, 0), "write the uptime");
}

/* Called while the outer mounts are made; `disk` is a directory for a file system of no size. */
void cover_uptime(const char *proc, const char *disk)
{
    char path[64];
    snprintf(path, sizeof path, "%s/uptime", disk);
    do_mount("proc", disk, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=0,mode=555");
    file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0444);
    CHECK(file, "create %s", path);
    show_uptime(true);
    do_mount(path, proc, NULL, MS_BIND, NULL);
    do_mount(NULL, proc, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL);
}
