"""The command line: flags in, messages and exit codes out. What is compiled, and how, is decided below it."""


def main() -> None:
    """Run the command line of this process and exit."""
    import gc
    import sys

    # Graphs are millions of objects without cycles: looking for some after every 700 takes a fifth of a large build.
    gc.set_threshold(1_000_000, 50, 100)
    from dlc.cli.frame import run

    try:
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before any command could answer it
        code = 130
    sys.exit(code)
