"""Whole trainings: time, loss, accuracy."""
