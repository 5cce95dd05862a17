"""Several processes: DDP, FSDP and the process group."""
