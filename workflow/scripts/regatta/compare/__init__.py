"""Campaigns against campaigns, and the gate."""
