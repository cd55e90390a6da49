"""Studies: the bias, variance and RMSE of estimators over many independent data sets."""

from osiris_jax.study.arena import Arena
from osiris_jax.study.plan import Study
from osiris_jax.study.summary import StudyResult

__all__ = ["Arena", "Study", "StudyResult"]
