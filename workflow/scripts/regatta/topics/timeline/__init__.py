"""When launches ran, and what the allocated time was spent on."""
