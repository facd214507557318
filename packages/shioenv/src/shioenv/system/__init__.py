"""The systems that inputs run on: declared, built, and what a pristine system looks like."""
