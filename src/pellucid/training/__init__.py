"""Training: from a recipe and its sentence pairs to a bundle, exact and safe to interrupt.

Read in this order: batch_tensors, loss, optim/ (schedule, muon, optimizers, averaging), validate,
distillation, distributed/ (process_group, ddp, fsdp), signals, training_state, loop, checkpoint/,
init_weights, embedding_init, export_bundle, run. What the user sees of a run: callbacks/ and
run_report. Before it starts: plan/.
"""
