"""The decision process: Gymnasium environments over the same three functions as everything else."""
