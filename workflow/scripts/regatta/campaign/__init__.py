"""From the YAML files to cells: read, checked, expanded."""
