"""Helpers for the course *Memory-efficient training with Adafactor*.

Importing the package loads nothing heavy; each module imports what it needs where it is used.
"""
