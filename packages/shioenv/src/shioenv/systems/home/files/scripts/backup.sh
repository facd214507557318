#!/bin/bash
# Pack the documents and the data; keep the last three archives.
set -eu

SOURCE=${1:-/home/ubuntu}
TARGET=${2:-/var/backups/home}
KEEP=3

mkdir -p "$TARGET"
stamp=$(date +%Y%m%d)
tar -czf "$TARGET/backup-$stamp.tar.gz" -C "$SOURCE" documents data

ls -1t "$TARGET"/backup-*.tar.gz | tail -n +$((KEEP + 1)) | while read -r old; do
    echo "removing $old"
    rm -f "$old"
done
echo "backup written to $TARGET"
