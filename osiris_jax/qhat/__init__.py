"""Q-hat: action values fitted to the data, or supplied, for the doubly robust estimators.

Every fit takes `(batch, *, discount, folds, ...)` and returns `StepValues`. To add one, write the
function and add its line here.
"""

from osiris_jax.qhat.tabular import StepValues, supplied, tabular

QHAT = {"tabular": tabular}

__all__ = ["QHAT", "StepValues", "supplied", "tabular"]
