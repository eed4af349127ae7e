"""The command line: flags in, messages and exit codes out. What is compiled, and how, is decided below it."""


def main() -> None:
    """Run the command line of this process and exit."""
    import sys

    from dlc.cli.frame import run

    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before any command could answer it
        code = 130
    sys.exit(code)
