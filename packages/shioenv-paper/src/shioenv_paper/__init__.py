"""The paper's experiments and the reader of its released dataset."""
