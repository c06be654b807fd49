"""Cells against cells, inside a campaign."""
