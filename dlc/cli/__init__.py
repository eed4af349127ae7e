"""The command line: flags in, messages and exit codes out. What is compiled, and how, is decided below it."""


def main() -> None:
    """Run the command line of this process and exit."""
    import sys

    from dlc.cli.frame import run

    sys.exit(run(sys.argv[1:]))
