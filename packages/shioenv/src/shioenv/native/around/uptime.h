/* The content of /proc/uptime. */
#pragma once

#include <stdbool.h>

void cover_uptime(const char *proc, const char *disk);
void show_uptime(bool anew);
