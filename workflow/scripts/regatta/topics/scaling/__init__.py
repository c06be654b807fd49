"""Throughput and efficiency of training steps."""
