"""A dataset as one HTML page that needs no network: charts, facts and a browser of samples."""
