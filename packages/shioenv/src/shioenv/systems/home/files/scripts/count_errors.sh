#!/bin/sh
# Count the lines of each level in a log.
for level in ERROR WARN INFO DEBUG; do
	printf '%s\t%s\n' "$level" "$(grep -c " $level " "${1:-logs/app.log}")"
done
