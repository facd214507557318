/* Finding the changes of a run in the overlay's upper layer. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer { uint8_t *bytes; size_t length, room; };
void buffer_add(struct buffer *buffer, const void *bytes, size_t length);

/* The result of a scan. */
struct scan_end {
    int error;         /* 0, or the errno of a failed read; then the records are not reliable */
    bool truncated;    /* there are more changes than records */
    bool out_of_time;  /* the time limit caused that */
    bool linked;       /* a changed file has several names */
};

/* The attribute of a file in the upper layer that stores its inode number from before it was linked (links.h). Overlays hide
 * all attributes with this prefix. */
#define NUMBER_BEFORE "user.overlay.number"
extern bool numbers_kept;  /* some file may have it */

/* Append a record (protocol.h) for every entry that a run added, changed or removed, in directory order: 'B' for the lower
 * layer, 'A' for the merged tree now. Content is read in the upper layer, because a process with an open (or passed)
 * descriptor of the merged file may hold a lease on it.
 * The descriptors are the roots of the lower layer, the upper layer and the merged tree. The scan takes at most about
 * `processor_ms` milliseconds of this thread's processor time. */
struct scan_end scan_changes(int lower, int upper, int merged, uint32_t processor_ms, struct buffer *out);
