"""HTML pages of builds and of plans of memory."""
