"""Arguments of the Python functions that mean nothing, or can have no effect."""

import jax
import numpy as np

import osiris_jax as oj
from fuzzing.forms import REFUSAL, Case, episodes_of
from fuzzing.truth import draw

NAN = float("nan")
SOME_ESTIMATES = {
    "an unknown name": (("nope",), {}, "estimator|nope"),
    "a list of names": ((["wis"],), {}, "estimator"),
    "None": ((None,), {}, "estimator"),
    "a number": ((3,), {}, "estimator"),
    "an escape": (("\x1b[2J\n",), {}, "estimator"),
    "an unknown option": (("wis",), {"colour": 3}, "colour"),
    "another's option": (("wis",), {"finished": "keep"}, "finished"),
    "idle alpha": (("wis",), {"alpha": 0.3}, "alpha"),
    "idle weighting": (("wis",), {"weighting": "future"}, "weighting"),
    "bogus weighting, idle": (("wis",), {"weighting": "bogus"}, "weighting"),
    "bogus weighting": (("osirwis",), {"weighting": "bogus"}, "weighting"),
    "idle ddof": (("wis",), {"ddof": 0}, "ddof"),
    "idle threshold": (("wis",), {"threshold": 0.3}, "threshold"),
    "threshold of welch": (("osirwis",), {"threshold": 0.3}, "threshold"),
    "idle levels": (("osirwis",), {"levels": [0.1]}, "levels"),
    "idle max_kept": (("wis",), {"max_kept": 3}, "max_kept"),
    "alpha of NaN": (("osirwis",), {"alpha": NAN}, "alpha"),
    "alpha of 2": (("osirwis",), {"alpha": 2}, "alpha"),
    "alpha of text": (("osirwis",), {"alpha": "x"}, "alpha"),
    "alpha of an object": (("osirwis",), {"alpha": object()}, "alpha"),
    "ragged alpha": (("osirwis",), {"alpha": [[0.1], 0.2]}, "alpha"),
    "discount of 2": (("wis",), {"discount": 2}, "discount"),
    "discount of NaN": (("wis",), {"discount": NAN}, "discount"),
    "many discounts": (("wis",), {"discount": np.array([0.5, 0.9])}, "discount"),
    "discount of text": (("wis",), {"discount": "1"}, "discount"),
    "ddof of 2": (("osirwis",), {"ddof": 2}, "ddof"),
    "many ddofs": (("osirwis",), {"ddof": [0, 1]}, "ddof"),
    "an unknown test": (("wis",), {"relevance": "nope"}, "relevance|nope|test"),
    "a test of a number": (("wis",), {"relevance": 3}, "relevance|test"),
    "tests": (("wis",), {"relevance": ["welch"]}, "relevance|test"),
    "a key of a number": (("osirwis",), {"key": 3}, "key"),
    "clip of 0": (("wis",), {"clip": 0}, "clip"),
    "clip of NaN": (("wis",), {"clip": NAN}, "clip"),
    "clip of text": (("wis",), {"clip": "x"}, "clip"),
    "many clips": (("wis",), {"clip": [1.0, 2.0]}, "clip"),
    "length_probs of a number": (("phwis",), {"length_probs": 1}, "length_probs"),
    "length_probs of text": (("phwis",), {"length_probs": "x"}, "length_probs"),
    "finished of nonsense": (("cwpdis",), {"finished": "x"}, "finished"),
    "finished of a number": (("cwpdis",), {"finished": 1}, "finished"),
    "variance of nonsense": (("incris",), {"variance": "x"}, "variance"),
    "q of another shape": (("dm",), {"q": np.ones((2, 2))}, "q"),
}
OTHERS = {
    "p-values of an unknown test": (lambda b: oj.relevance_pvalues(b, "nope"), "nope|test"),
    "p-values of a list": (lambda b: oj.relevance_pvalues(b, ["welch"]), "test|relevance"),
    "p-values, bogus weighting": (
        lambda b: oj.relevance_pvalues(b, weighting="bogus"),
        "weighting",
    ),
    "p-values, ddof of 2": (lambda b: oj.relevance_pvalues(b, ddof=2), "ddof"),
    "p-values, an unknown option": (lambda b: oj.relevance_pvalues(b, colour=1), "colour"),
    "p-values, many discounts": (lambda b: oj.relevance_pvalues(b, discount=[0.1, 1]), "discount"),
    "no batch": (lambda b: oj.estimate({"reward": [1]}, "wis"), "batch"),
    "a batch of None": (lambda b: oj.relevance_pvalues(None), "batch"),
    "a level by an unknown method": (lambda b: oj.choose_level(b, method="nope"), "method"),
    "a level of no levels": (lambda b: oj.choose_level(b, levels=[]), "levels"),
    "levels of text": (lambda b: oj.choose_level(b, levels=["x"]), "alpha|levels"),
    "evaluate nothing": (lambda b: oj.evaluate(b, []), "estimators"),
    "evaluate an unknown": (lambda b: oj.evaluate(b, ["nope"]), "estimator|nope"),
    "evaluate a word": (lambda b: oj.evaluate(b, 3), "estimators"),
    "evaluate, confidence of 2": (lambda b: oj.evaluate(b, ["wis"], confidence=2), "confidence"),
    "evaluate, confidence of NaN": (
        lambda b: oj.evaluate(b, ["wis"], confidence=NAN),
        "confidence",
    ),
    "evaluate, resamples of 0": (lambda b: oj.evaluate(b, ["wis"], resamples=0), "resamples"),
    "evaluate, unknown methods": (lambda b: oj.evaluate(b, ["wis"], methods=["x"]), "method"),
    "evaluate, idle threshold": (lambda b: oj.evaluate(b, ["wis"], threshold=0.1), "threshold"),
    "evaluate, idle alpha": (lambda b: oj.evaluate(b, ["wis", "mc"], alpha=0.3), "alpha"),
    "evaluate, idle weighting": (lambda b: oj.evaluate(b, ["wis"], weighting="none"), "weighting"),
    "evaluate, bounds of NaN": (
        lambda b: oj.evaluate(b, ["wis"], return_bounds=(NAN, 1)),
        "return_bounds",
    ),
    "evaluate, one bound": (lambda b: oj.evaluate(b, ["wis"], return_bounds=(1,)), "return_bounds"),
    "evaluate, falling bounds": (
        lambda b: oj.evaluate(b, ["wis"], return_bounds=(1, 0)),
        "return_bounds",
    ),
    "evaluate, weight bound of 0": (
        lambda b: oj.evaluate(b, ["wis"], weight_bound=0),
        "weight_bound",
    ),
    "evaluate, a key of a number": (lambda b: oj.evaluate(b, ["wis"], key=3), "key"),
    "intervals of an unknown method": (lambda b: oj.intervals(b, "wis", methods=["x"]), "method"),
    "intervals of an unknown": (lambda b: oj.intervals(b, "nope"), "estimator|nope"),
    "pad to less": (lambda b: oj.pad_to(b, 1), "steps"),
    "fit by nonsense": (lambda b: oj.fit_behavior(b, method="nope"), "method"),
    "an unknown world": (lambda b: oj.make("mars\x1b[2J"), "world|mars"),
    "bins of NaN": (lambda b: oj.LinearBins([[NAN]]), "edges"),
    "bins of text": (lambda b: oj.LinearBins("ab"), "edges"),
    "bins of None": (lambda b: oj.LinearBins(None), "edges"),
    "a study of nothing": (lambda b: oj.Study(world="mars"), "world"),
    "a study of no trials": (lambda b: oj.Study(world="express", trials=0), "trials"),
}


def all_calls():
    """Every call as a case, on one small log."""
    truth = draw(np.random.default_rng(5), size=8)
    batch = oj.from_episodes(episodes_of(truth, "both"))

    def estimates(arguments, options):
        return lambda: jax.block_until_ready(oj.estimate(batch, *arguments, **options))

    cases = [
        Case(f"estimate: {what}", estimates(arguments, options), truth, REFUSAL, field)
        for what, (arguments, options, field) in SOME_ESTIMATES.items()
    ]
    return cases + [
        Case(what, lambda call=call: call(batch), truth, REFUSAL, field)
        for what, (call, field) in OTHERS.items()
    ]
