/* What a run changed, read from the overlay's upper layer. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer { uint8_t *bytes; size_t length, room; };
void buffer_add(struct buffer *buffer, const void *bytes, size_t length);

/* How a scan ended. */
struct scan_end {
    int error;         /* 0, or the errno of what could not be read: what was appended is not the truth */
    bool truncated;    /* there is more than was appended */
    bool out_of_time;  /* that is why */
    bool linked;       /* a file that was changed has several names */
};

/* The attribute of a file of the upper layer that keeps its inode number from before it had several names (links.h); hidden
 * in the overlay, as every attribute of this prefix. */
#define NUMBER_BEFORE "user.overlay.number"
extern bool numbers_kept;  /* some file may have it */

/* Appends a record (protocol.h) for every entry that a run added, changed or removed, in directory order: 'B' with
 * what the lower layer has, 'A' with what the merged tree has now. Content is read in the upper layer: who has a
 * file of the merged tree open, or in flight, may hold a lease on it.
 * Descriptors are of the roots of the lower layer, the upper layer and the merged tree. Takes about `processor_ms`
 * milliseconds of this thread's processor time at most. */
struct scan_end scan_changes(int lower, int upper, int merged, uint32_t processor_ms, struct buffer *out);
