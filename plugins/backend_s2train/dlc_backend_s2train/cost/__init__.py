"""What a program costs: work of the array, traffic of the link, time, and memory over time, as figures and pages."""
