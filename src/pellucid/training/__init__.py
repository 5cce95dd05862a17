"""From sentence pairs to a model: the loop, and what makes a run exact and safe to interrupt.

Read in this order: schedule, loss, muon, optimizers, averaging, validate, group, signals, loop,
disk, checkpoint, finish, run. What a person sees of it: watching, progress, metrics, events,
report. Before it starts: plan, flops, lengths, hardware, measuring.
"""
