"""`python -m shioenv` is `shioenv`."""

from shioenv.cli.main import main

if __name__ == "__main__":
    main()
