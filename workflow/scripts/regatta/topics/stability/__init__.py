"""The topic of stability: variation between launches, and samples of the most variable cells."""
