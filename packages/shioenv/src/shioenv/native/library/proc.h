/* What files of /proc say, to those who ask another way. */
#pragma once

#include <stdint.h>

#include "facts.h"

/* The number of the device that something is mounted from, as the list of mounts shows it; what is not mounted has its own. */
uint64_t listed_device(uint64_t device);

struct stat;
/* Of a pipe that a file of /proc was handed on by: what is said of the kernel's own file, but that it is a pipe. */
void stat_list(int fd, struct stat *file);

/* The number of a socket of the machine's processes that such a path leads to, or 0: a link below /proc/PID/fd. */
uint64_t linked_socket(int directory, const char *path);
