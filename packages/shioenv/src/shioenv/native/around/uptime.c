/* A cover for /proc/uptime. In the kernel's file, the first number follows the time namespace, but the second is the host's idle
 * time. The cover is read-only inside. The supervisor writes it at the start of each run and with each sample. */
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
static int64_t booted;  /* hundredths of a second of the host's time since boot */

static int64_t since_boot(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * 100 + now.tv_nsec / 10000000;
}

/* Show the uptime and the idle time; `anew` resets both to the declared values. */
void show_uptime(bool anew)
{
    if (anew) booted = since_boot() - config.uptime * 100;
    int64_t up = since_boot() - booted, idle = config.idle + (up - config.uptime * 100) * config.processors;
    char text[96];
    int length = snprintf(text, sizeof text, "%lld.%02lld %lld.%02lld\n", (long long)up / 100, (long long)up % 100,
                          (long long)idle / 100, (long long)idle % 100);
    CHECK((int)pwrite(file, text, (size_t)length, 0), "write the uptime");
}

int64_t boot_shown(void) { return booted; }

void show_boot(int64_t when)
{
    booted = when;
    show_uptime(false);
}

/* Called while the outer mounts are created; `disk` is a directory for a file system of size 0. */
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
