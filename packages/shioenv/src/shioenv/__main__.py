"""Entry point of `python -m shioenv`, which is the same as the command `shioenv`."""

from shioenv.cli.main import main

if __name__ == "__main__":
    main()
