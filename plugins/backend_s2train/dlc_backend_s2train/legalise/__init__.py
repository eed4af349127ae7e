"""What the device has no instruction for, as compositions of what it has."""
