"""What a build and a measurement came to, as one value with one JSON form: all reports are made from it."""
