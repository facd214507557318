/* The resource usage of a run, read from /proc. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common.h"
#include "usage.h"

struct usage usage_now(void)
{
    struct usage now = {0};
    long page = sysconf(_SC_PAGESIZE), ticks = sysconf(_SC_CLK_TCK);
    int fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;
    struct stat top, file;
    if (fd < 0 || fstat(fd, &top)) return now;
    while (list && (entry = readdir(list))) {
        if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
        char path[300], text[1024];
        snprintf(path, sizeof path, "%s/stat", entry->d_name);
        int numbers = openat(fd, path, O_RDONLY | O_CLOEXEC);
        bool older = numbers >= 0 && !fstat(numbers, &file) && file.st_dev != top.st_dev;  /* a declared process, recognised by its cover */
        ssize_t n = numbers < 0 || older ? -1 : read(numbers, text, sizeof text - 1);
        if (numbers >= 0) close(numbers);
        if (n <= 0) continue;
        text[n] = 0;
        char *fields = strrchr(text, ')');  /* a process can choose its name; the numbers follow it */
        unsigned long long user, system, waited_user, waited_system, threads, resident;
        char state;
        /* state ... utime stime cutime cstime priority nice num_threads itrealvalue starttime vsize rss */
        if (!fields || sscanf(fields + 2, "%c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu %*d %*d %llu"
                              " %*d %*u %*u %llu", &state, &user, &system, &waited_user, &waited_system, &threads, &resident) != 7)
            continue;
        now.busy |= state == 'R' || state == 'D';
        now.bytes += resident * (uint64_t)page;
        now.cpu_ms += (user + system + waited_user + waited_system) * 1000 / (uint64_t)ticks;
        now.threads += threads;
    }
    if (list) closedir(list);
    struct shm_info shared_memory;
    if (shmctl(0, SHM_INFO, (struct shmid_ds *)(void *)&shared_memory) >= 0)
        now.bytes += shared_memory.shm_rss * (uint64_t)page;  /* attached or not */
    return now;
}

bool host_is_short_of_memory(void)
{
    char text[512];
    read_proc(text, sizeof text, "meminfo");
    const char *total = strstr(text, "MemTotal:"), *available = strstr(text, "MemAvailable:");
    if (!total || !available) return false;
    return strtoull(available + 13, NULL, 10) < strtoull(total + 9, NULL, 10) / 20;
}
