"""The checks of `dlc plugins test`: everything that a plugin offers, by several ways that have to agree.

    subject   the plugin, what it is tested on, and the targets that build it
    table     every check: its name, what it is for, what it asks
    run       checks → results
    pytest_plugin   the same in an author's own tests

A check is a function of a subject and one thing that the plugin offers. It returns what it found right in a line, or
raises `Wrong` with what is wrong and what to do, or `Skipped` with what would be needed.
"""
