"""Drafts of grammars from help texts and manual pages, and their coverage of options."""
