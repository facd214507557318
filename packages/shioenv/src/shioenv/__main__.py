"""`python -m shioenv` does what the command `shioenv` does."""

from shioenv.cli.main import main

if __name__ == "__main__":
    main()
