/* What a run changed, read from the overlay's upper layer. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer { uint8_t *bytes; size_t length, room; };
void buffer_add(struct buffer *buffer, const void *bytes, size_t length);

/* Appends a record (protocol.h) for every entry that a run added, changed or removed, in directory order: 'B' with
 * what the lower layer has, 'A' with what the merged tree has now.
 * Descriptors are of the roots of the lower layer, the upper layer and the merged tree; `mark` are the bits of inode
 * numbers in which the lower layer and the merged tree differ for what nobody changed. Returns true
 * where the tree was too deep to be followed to its end. */
bool scan_changes(int lower, int upper, int merged, uint64_t mark, struct buffer *out);
