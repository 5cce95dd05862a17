"""What people see on a terminal: progress bars, tables, numbers, options of commands."""
