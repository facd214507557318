"""Files: atomic writes, locks, checksums, journals, compression, and checked reading."""
