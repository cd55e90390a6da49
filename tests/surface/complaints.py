"""What is said to those who ask for what cannot be: texts of errors, and the command's one line."""

import shlex

from . import samples
from .values import names

CALLS = (
    "oj.estimate(batch, 'wish')",
    "oj.estimate(batch, 'wis', relevance='welsh')",
    "oj.estimate(batch, 'wis', alpha=0.5)",
    "oj.estimate(batch, 'osirwis', alpha=2.0)",
    "oj.estimate(batch, 'osirwis', weighting='past')",
    "oj.estimate(batch, 'wis', discount=1.5)",
    "oj.estimate(batch, 'wis', finished='drop')",
    "oj.estimate(batch, 'dm', relevance='welch')",
    "oj.estimate(batch, 'osirwis', relevance='effect', alpha=0.5)",
    "oj.estimate(batch.replace(log_ratio=None), 'wis')",
    "oj.estimate(batch.replace(state=None, num_states=0), 'osirwis')",
    "oj.estimate(episodes, 'wis')",
    "oj.choose_level(batch, method='best')",
    "oj.intervals(batch, 'wis', methods='exact')",
    "oj.intervals(batch, 'osirwis', methods='t')",
    "oj.intervals(batch, 'is', methods='hoeffding')",
    "oj.intervals(batch, 'wis', resamples=1)",
    "oj.evaluate(batch, confidence=95)",
    "oj.evaluate(batch, compare_with='target')",
    "oj.relevance_pvalues(batch, 'welch', steps=5)",
    "oj.omission_diagnostics(batch, alpha=alphas)",
    "oj.fit_behavior(batch, folds=7)",
    "oj.from_episodes([])",
    "oj.from_episodes([{'states': [0], 'actions': [0], 'rewards': [0.0, 1.0]}])",
    "oj.from_dataframe(table.drop(columns='reward'))",
    "oj.from_dataframe(table.assign(behavior_prob=0.0))",
    "oj.read_log('absent.csv')",
    "oj.with_policies(batch, target=other[:2])",
    "oj.concatenate([])",
    "oj.pad_to(batch, 3)",
    "batch[99]",
    "batch.replace(mask=batch.reward)",
    "oj.make('mars')",
    "oj.Study(world='express', estimators=('wish',))",
    "oj.Study(world='express', trials=0)",
    "oj.Study(world='express', alphas=(0.1, 3.0))",
    "oj.TabularWorld([[[0.5]]], [[1.0]], 0, [[1.0]], [[1.0]], horizon=3)",
    "tiny.rollout(3, 5)",
    "tiny.rollout(key, 5, policy='random')",
    "tiny.exact(2.0)",
    "tiny.exact().moments('wis')",
)
COMMANDS = (
    "fly",
    "study --world mars --out none",
    "study --world express --alphas 0.05,foo --out none",
    "study --world express --sizes big --out none",
    "study --world express --estimators wish --out none",
    "evaluate absent.csv --out none",
    "reproduce table9 --out none",
    "reproduce table1 --worlds mars --out none",
    "reproduce table1 --protocol mine --out none",
    "coverage --methods exact --out none",
    "calibrate --world cartpole --out none",
    "show",
    "show express --episodes 1 --out none",
    "train-policy express --out none",
    "bench --only nothing --out none",
)


def refusals():
    """The error of every call that cannot be."""
    known = names()
    return {call: _refusal(call, known) for call in CALLS}


def _refusal(call, known):
    try:
        eval(call, known)
    except (ValueError, OSError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def refused_commands():
    """Exit code and complaint of every command that cannot be."""
    found = {}
    for words in COMMANDS:
        code, out, err = samples.command(*shlex.split(words))
        found[f"osiris-jax {words}"] = [f"exit code {code}", *out, *err]
    return found
