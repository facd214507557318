/* Values of files of /proc for other calls. */
#pragma once

#include <stdint.h>

#include "facts.h"

/* The device number that the list of mounts shows for a device; a device without a mount keeps its number. */
uint64_t listed_device(uint64_t device);

struct stat;
/* Give a pipe that replaces a file of /proc the attributes of the kernel's file, except its type. */
void stat_list(int fd, struct stat *file);

/* The inode number of a socket of the machine's processes, by its link below /proc/PID/fd; else 0. */
uint64_t linked_socket(int directory, const char *path);
