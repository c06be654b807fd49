"""Regatta's driver side: from the campaign file to batches, and from the store to the report. It never imports torch."""
