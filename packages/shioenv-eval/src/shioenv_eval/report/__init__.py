"""A dataset as a self-contained HTML page: charts, facts and a browser of samples."""
