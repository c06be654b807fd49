"""What runs inside one allocation: launches, their deadlines, their ends."""
