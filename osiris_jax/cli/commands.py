"""The command line: `osiris-jax`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from osiris_jax.cli import arguments
from osiris_jax.cli.ending import finish
from osiris_jax.cli.parsing import chosen, level, levels, numbers, words
from osiris_jax.core.compilations import keep_compilations

app = typer.Typer(
    name="osiris-jax",
    help="Off-policy evaluation in JAX.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback()
def _osiris_jax() -> None:
    """Off-policy evaluation in JAX."""


@app.command()
def show(
    world: Annotated[str, typer.Argument(help="A world, such as dilly-dallying.")],
    episodes: Annotated[
        int | None, typer.Option(help="Simulated episodes of each policy; default by world.")
    ] = None,
    seed: arguments.Seed = 0,
    out: arguments.Out = Path("runs/world"),
) -> None:
    """What a world is like: values, lengths, exact answers, and pictures.

    Example: osiris-jax show dilly-dallying --out runs/dilly-dallying
    """
    from osiris_jax.cli.show import show_world

    show_world(world, episodes, seed, out)


@app.command("list")
def list_all(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="The reference page, with needs and options.")
    ] = False,
) -> None:
    """Worlds, estimators and relevance tests, with one line each.

    Example: osiris-jax list
    """
    if markdown:
        from osiris_jax.cli.reference import reference

        print(reference(), end="")
        return
    from osiris_jax.cli.listing import show_lists

    show_lists()


@app.command()
def study(
    toml: Annotated[
        Path | None, typer.Argument(help="A study as a TOML file; options replace its fields.")
    ] = None,
    world: Annotated[str | None, typer.Option(help="A world, see `osiris-jax list`.")] = None,
    trials: Annotated[int | None, typer.Option(help="Independent data sets.")] = None,
    sizes: Annotated[str | None, typer.Option(help="Trajectories in a data set: 25,50.")] = None,
    alphas: Annotated[
        str | None, typer.Option(help="Levels of relevance: 0.05,0.1,1,auto.")
    ] = None,
    thresholds: Annotated[
        str | None, typer.Option(help="Levels of effect and nn-q: 0.2,0.4.")
    ] = None,
    estimators: Annotated[
        str | None, typer.Option(help="is,wis,osirwis,cwpdis:finished=drop,on-policy")
    ] = None,
    relevance: Annotated[
        str | None, typer.Option(help="welch,smirnov,welch:weighting=none,oracle,true")
    ] = None,
    weighting: Annotated[str | None, typer.Option(help="none, future or to-go.")] = None,
    ddof: Annotated[int | None, typer.Option(help="1 or 0.")] = None,
    discount: Annotated[float | None, typer.Option(help="In [0, 1].")] = None,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of all data.")] = None,
    truth_episodes: Annotated[
        int | None, typer.Option(help="On-policy episodes where the truth is not exact.")
    ] = None,
    out: arguments.Out = Path("runs/study"),
    memory: Annotated[
        str | None, typer.Option(help="What a chunk of trials may take, such as 512M.")
    ] = None,
    chunk_size: Annotated[int | None, typer.Option(help="Trials in a chunk.")] = None,
    cpu_devices: Annotated[
        int | None, typer.Option(help="Divide the CPU into so many devices.")
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option(help="host:port of process 0, for several processes.")
    ] = None,
    num_processes: Annotated[int | None, typer.Option(help="How many processes.")] = None,
    process_id: Annotated[int | None, typer.Option(help="The number of this one.")] = None,
    distributed: Annotated[
        bool | None,
        typer.Option(help="Join the cluster's other processes; by default where one is found."),
    ] = None,
) -> None:
    """Bias, variance and RMSE of estimators over many data sets. Run again, it resumes.

    Example: osiris-jax study --world dilly-dallying --trials 10000 --sizes 25,50
    --alphas 0.05,0.1,1 --estimators is,wis,osirwis --out runs/dd
    """
    from osiris_jax.cli.study import make_study, read_memory, run_study
    from osiris_jax.study.run import start_devices

    start_devices(
        cpu_devices=cpu_devices,
        coordinator=coordinator,
        num_processes=num_processes,
        process_id=process_id,
        distributed=distributed,
    )
    given = {
        "world": world,
        "trials": trials,
        "sizes": numbers("sizes", sizes, int),
        "alphas": levels(alphas),
        "thresholds": numbers("thresholds", thresholds, float),
        "estimators": words(estimators),
        "relevance": words(relevance),
        "weighting": weighting,
        "ddof": ddof,
        "discount": discount,
        "dtype": dtype,
        "seed": seed,
        "truth_episodes": truth_episodes,
    }
    run_study(make_study(toml, given), out, read_memory(memory), chunk_size)


@app.command()
def reproduce(
    target: Annotated[
        str,
        typer.Argument(help="table1, tableS1, tableS2, ablation, fig1 to fig4, figS2-4 or all."),
    ],
    protocol: Annotated[
        str | None,
        typer.Option(help="published, independent or both; figures are independent by default."),
    ] = None,
    worlds: Annotated[
        str | None, typer.Option(help="dilly-dallying,express,cartpole,lunar-lander or all.")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Data sets; default by world and protocol.")
    ] = None,
    seed: arguments.Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Folder for tables and pictures; default runs/TARGET.")
    ] = None,
) -> None:
    """The paper's tables and figures, as published and with independent trials.

    Tables resume when run again. `all` also writes a page that shows everything.

    Example: osiris-jax reproduce table1 --protocol published --worlds dilly-dallying,express
    --trials 200 --out runs/table1
    """
    from osiris_jax.cli.reproduce import read_request
    from osiris_jax.cli.reproduce import reproduce as run

    run(read_request(target, protocol, words(worlds), trials, seed, out))


@app.command()
def calibrate(
    world: arguments.Tabular = "waiting-room",
    trials: arguments.Trials = 1000,
    sizes: arguments.Sizes = "25,100",
    alphas: arguments.Levels = None,
    thresholds: arguments.Thresholds = None,
    tests: Annotated[str, typer.Option(help="welch,smirnov,effect,nn-q")] = "welch,smirnov,effect",
    weightings: Annotated[str, typer.Option(help="to-go,future,none")] = "to-go,future,none",
    variants: Annotated[
        str, typer.Option(help="all, or of: plain,first visit,leave one out")
    ] = "all",
    seed: arguments.Seed = 0,
    out: arguments.Out = Path("runs/calibration"),
) -> None:
    """Size and power of the relevance tests against exact relevance.

    Example: osiris-jax calibrate --world waiting-room --trials 2000 --sizes 25,100
    --alphas 0.05,0.25 --out runs/calibration
    """
    from osiris_jax.cli.calibrate import calibrate as run
    from osiris_jax.study.calibration import VARIANTS, Calibration

    wanted = tuple(VARIANTS) if variants == "all" else tuple(words(variants) or ())
    calibration = Calibration(
        world=world,
        trials=trials,
        sizes=numbers("sizes", sizes, int) or (),
        tests=words(tests) or (),
        weightings=words(weightings) or (),
        variants=tuple("" if name == "plain" else name for name in wanted),
        seed=seed,
        **chosen(
            alphas=numbers("alphas", alphas, float),
            thresholds=numbers("thresholds", thresholds, float),
        ),
    )
    run(calibration, out)


@app.command()
def coverage(
    world: arguments.Tabular = "dilly-dallying",
    trials: arguments.Trials = 2000,
    sizes: arguments.Sizes = "25,100",
    estimators: Annotated[str, typer.Option(help="is,wis,osirwis")] = "is,wis,osirwis",
    methods: Annotated[
        str, typer.Option(help="all, or of: percentile,bca,t,bernstein,hoeffding,hcope")
    ] = "all",
    relevance: arguments.Relevance = None,
    alpha: arguments.Alpha = None,
    threshold: arguments.Threshold = None,
    weighting: arguments.Weighting = None,
    discount: arguments.Discount = 1.0,
    confidence: arguments.Confidence = 0.95,
    resamples: arguments.Resamples = None,
    seed: arguments.Seed = 0,
    out: arguments.Out = Path("runs/coverage"),
) -> None:
    """How often intervals contain the truth, over many data sets of a tabular world.

    Example: osiris-jax coverage --world dilly-dallying --trials 2000 --sizes 25,100
    --estimators is,wis,osirwis --methods percentile,bca,t --out runs/coverage
    """
    from osiris_jax.cli.coverage import coverage as run
    from osiris_jax.inference import INTERVALS
    from osiris_jax.study.coverage import Coverage

    study = Coverage(
        world=world,
        trials=trials,
        sizes=numbers("sizes", sizes, int) or (),
        estimators=words(estimators) or (),
        methods=tuple(INTERVALS) if methods == "all" else words(methods) or (),
        discount=discount,
        confidence=confidence,
        seed=seed,
        **chosen(
            relevance=relevance,
            alpha=level(alpha),
            threshold=threshold,
            weighting=weighting,
            resamples=resamples,
        ),
    )
    run(study, out)


@app.command()
def evaluate(
    log: Annotated[Path, typer.Argument(help="Parquet, CSV (also .csv.gz, .tsv) or .npz.")],
    columns: Annotated[
        str | None, typer.Option(help="field=column: episode=patient_id,action=drug.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The policy to evaluate: a saved network or a table, .npz.")
    ] = None,
    epsilon: arguments.Epsilon = None,
    behavior: Annotated[
        str | None,
        typer.Option(
            help="The policy that made the log, .npz; or auto, tabular, logistic or "
            "network, to fit it. Fitted anyway if nothing tells it."
        ),
    ] = None,
    behavior_epsilon: arguments.BehaviorEpsilon = None,
    compare: Annotated[
        str | None, typer.Option(help="Another target, .npz, or behavior: gives differences.")
    ] = None,
    estimators: Annotated[
        str | None, typer.Option(help="wis,osirwis; by default all the usual ones.")
    ] = None,
    relevance: arguments.Relevance = None,
    alpha: arguments.Alpha = None,
    threshold: arguments.Threshold = None,
    weighting: arguments.Weighting = None,
    discount: arguments.Discount = 1.0,
    confidence: arguments.Confidence = 0.95,
    methods: Annotated[
        str, typer.Option(help="Of: percentile,bca,t,bernstein,hoeffding,hcope")
    ] = "percentile,bca",
    resamples: arguments.Resamples = None,
    weight_bound: Annotated[
        float | None, typer.Option(help="The largest weight possible, for bounds that hold always.")
    ] = None,
    return_bounds: Annotated[
        str | None, typer.Option(help="The smallest and the largest return possible: 0,1.")
    ] = None,
    seed: arguments.Seed = 0,
    out: arguments.Out = Path("runs/log"),
) -> None:
    """Your own log: estimates with intervals, how far to trust them, and a report to look at.

    Example: osiris-jax evaluate log.parquet --columns episode=patient_id --target policy.npz
    --estimators wis,osirwis --out runs/log
    """
    from osiris_jax.cli.evaluate import Request, evaluate_log

    asked = chosen(
        columns=columns,
        target=target,
        epsilon=epsilon,
        behavior=behavior,
        behavior_epsilon=behavior_epsilon,
        compare=compare,
        estimators=words(estimators),
        relevance=relevance,
        alpha=level(alpha),
        threshold=threshold,
        weighting=weighting,
        discount=discount,
        confidence=confidence,
        methods=words(methods),
        resamples=resamples,
        weight_bound=weight_bound,
        return_bounds=numbers("return_bounds", return_bounds, float),
        seed=seed,
        out=out,
    )
    evaluate_log(Request(log=log, **asked))


@app.command()
def bench(
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny shapes: does everything run? Not for figures.")
    ] = False,
    only: Annotated[
        str | None, typer.Option(help="Groups: pipeline,estimators,relevance,scaling,cores,...")
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Data sets of the whole pipeline; default 10000.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32 or float64.")] = "float32",
    out: arguments.Out = Path("runs/bench"),
) -> None:
    """How fast everything is on this machine, beside plain NumPy and the memory's speed.

    Compilation and steady state apart. Exit code 1 if a rival gives other numbers than ours.

    Example: osiris-jax bench --only pipeline,scaling --dtype float32 --out runs/bench
    """
    from osiris_jax.bench.case import Settings
    from osiris_jax.cli.bench import bench as run

    results = run(Settings(quick=quick, trials=trials, dtype=dtype), words(only), out)
    if results.disagreements:
        raise typer.Exit(1)


@app.command("train-policy")
def train_policy(
    world: Annotated[str, typer.Argument(help="cartpole or lunar-lander.")],
    seed: arguments.Seed = 0,
    runs: Annotated[int | None, typer.Option(help="Networks to train; default by world.")] = None,
    updates: Annotated[
        int | None, typer.Option(help="Gradient steps of each; default by world.")
    ] = None,
    out: arguments.Out = Path("runs/policy"),
) -> None:
    """Trains Q-networks by double DQN, selects one, and writes it with its card and curve.

    Example: osiris-jax train-policy cartpole --seed 1 --out runs/cartpole
    """
    from osiris_jax.cli.train import train

    train(world, seed, runs, updates, out)


def main() -> None:
    """Runs the command line; what the user can mend is one line and exit code 2."""
    words_given = sys.argv[1:] or ["--help"]
    if "--help" not in words_given:
        keep_compilations()
    sys.exit(finish(lambda: app(words_given, standalone_mode=False)))
