"""What the accelerator leaves to the host: functions between its instructions, and how much of a model they are."""
