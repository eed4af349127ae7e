"""The documentation as a site: `python -m docs.site -o DIR` builds it."""
