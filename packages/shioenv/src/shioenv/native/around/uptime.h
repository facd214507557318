/* The content of /proc/uptime. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

void cover_uptime(const char *proc, const char *disk);
void show_uptime(bool anew);

/* The boot of the machine, as `show_uptime` counts from it. */
int64_t boot_shown(void);
void show_boot(int64_t when);
