"""A log evaluated as a whole: rows, verdicts, comparison of two targets, pictures and a report."""

from osiris_jax.evaluation.choosing import Chosen, choose
from osiris_jax.evaluation.result import Curve, Difference, Evaluation, Row, States
from osiris_jax.evaluation.run import evaluate

__all__ = ["Chosen", "Curve", "Difference", "Evaluation", "Row", "States", "choose", "evaluate"]
