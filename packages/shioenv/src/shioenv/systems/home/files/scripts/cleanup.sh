#!/bin/bash
# Remove temporary files older than a week.
find /tmp -type f -mtime +7 -print -delete
