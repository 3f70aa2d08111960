"""What people touch: the command line, the simulator and the sandbox."""
