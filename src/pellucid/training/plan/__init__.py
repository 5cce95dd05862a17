"""What a training run will cost: parameters, FLOPs, memory, time."""
