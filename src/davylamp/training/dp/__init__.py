"""Differentially private fine-tuning: per-row clipping, Poisson sampling, one noise draw a step, and the proof of it.

Abadi et al., *Deep Learning with Differential Privacy* (1607.00133), by opacus. Only
:mod:`davylamp.training.dp.spec` is read without torch.
"""
