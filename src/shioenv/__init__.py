"""ShIOEnv: shell inputs synthesised from grammars, executed on a pristine system, recorded and scored."""
