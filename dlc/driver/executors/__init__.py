"""Where work is done that leaves this process: one seam for `dlc build` of many models and `dlc tune`.

Work is a word of `lane.WORK` and a JSON text, and so is what comes back: no object or closure of dlc travels, and a
worker runs nothing but what its own installation has under that word.
"""
