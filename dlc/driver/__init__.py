"""Builds: which passes run, each a cached step, from a source to the files of a program."""
