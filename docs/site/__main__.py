"""Command line of the site: exit status 1 if a page has a warning."""

import argparse
import sys
from pathlib import Path

from docs.site.build import build

parser = argparse.ArgumentParser(prog="python -m docs.site", description="Build the documentation as a site.")
parser.add_argument("-o", "--output", type=Path, default=Path("build/site"), help="directory (default: build/site)")
sys.exit(build(parser.parse_args().output))
