"""Read the YAML files, check them, and expand them into cells."""
