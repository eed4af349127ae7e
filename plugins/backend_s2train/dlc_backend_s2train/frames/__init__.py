"""Frames of the load channel: what the link carries to the feature memory (FM) and the weight memory (WM)."""
