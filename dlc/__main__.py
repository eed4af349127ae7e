"""`python -m dlc`."""

from dlc.cli import main

if __name__ == "__main__":
    main()
