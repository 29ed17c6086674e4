"""Writes golden.json: what NumPy, SciPy and statsmodels compute for the samples that
the tests of this package use.

    pip install numpy==2.4.6 scipy==1.17.1 statsmodels==0.15.0
    python golden.py > golden.json
"""

import itertools
import json

import numpy as np
import scipy.stats as st
import statsmodels.api as sm
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

rng = np.random.default_rng(20260101)


def cell(tasks, repetitions, rate, partial):
    """Attempts: task, repetition, score, full. Tasks differ in how hard they are."""
    out = []
    for task, p in enumerate(rng.beta(2 * rate, 2 * (1 - rate), tasks)):
        for repetition in range(1, repetitions + 1):
            full = bool(rng.random() < p)
            score = 1.0 if full else (round(float(rng.random()), 3) if partial else 0.0)
            out.append({"Task": f"t{task:03}", "Repetition": repetition, "Score": score, "Full": full})
    return out


def by_task(attempts, key):
    tasks = {}
    for a in attempts:
        tasks.setdefault(a["Task"], []).append(float(a[key]))
    return tasks


def pass_at(attempts, k):
    """By trying all choices of k attempts of each task."""
    some, every, best = [], [], []
    tasks, scores = by_task(attempts, "Full"), by_task(attempts, "Score")
    for t in tasks:
        some.append(np.mean([max(c) for c in itertools.combinations(tasks[t], k)]))
        every.append(np.mean([min(c) for c in itertools.combinations(tasks[t], k)]))
        best.append(np.mean([max(c) for c in itertools.combinations(scores[t], k)]))
    return [float(np.mean(x)) for x in (some, every, best)]


def sample(name, attempts):
    scores = np.array([a["Score"] for a in attempts])
    groups = np.unique([a["Task"] for a in attempts], return_inverse=True)[1]
    fit = sm.OLS(scores, np.ones(len(scores))).fit(cov_type="cluster", cov_kwds={"groups": groups}, use_t=True)
    repetitions = {}
    for a in attempts:
        repetitions.setdefault(a["Repetition"], []).append(a["Score"])
    means = [float(np.mean(repetitions[r])) for r in sorted(repetitions)]
    out = {
        "Name": name, "Attempts": attempts, "Mean": float(scores.mean()), "SE": float(fit.bse[0]),
        "Student": [float(x) for x in fit.conf_int(0.05)[0]],
        "Means": means, "K": {str(k): pass_at(attempts, k) for k in range(1, len(means) + 1)},
    }
    if len(means) > 1:
        out["RepetitionsSE"], out["RepetitionsSD"] = float(st.sem(means)), float(np.std(means))
    if len(means) == 1 and set(scores) <= {0.0, 1.0}:
        out["Wilson"] = [float(x) for x in proportion_confint(int(scores.sum()), len(scores), 0.05, method="wilson")]
    return out


def pair(name, a, b):
    x, y = by_task(a, "Score"), by_task(b, "Score")
    d = np.array([np.mean(x[t]) - np.mean(y[t]) for t in x])
    test = st.permutation_test((d,), np.sum, permutation_type="samples", n_resamples=np.inf, alternative="two-sided") if len(d) <= 18 else None
    interval = st.ttest_rel([np.mean(x[t]) for t in x], [np.mean(y[t]) for t in x]).confidence_interval(0.95)
    out = {"Name": name, "A": a, "B": b, "Difference": float(d.mean()), "Interval": [float(interval.low), float(interval.high)]}
    if test is not None:
        out["P"] = float(test.pvalue)
    if all(len(v) == 1 for v in x.values()):
        table = np.zeros((2, 2))
        for t in x:
            table[int(x[t][0]), int(y[t][0])] += 1
        out["McNemar"] = float(mcnemar(table, exact=True).pvalue)
    return out


def main():
    ps = [float(p) for p in np.round(rng.random(9) ** 3, 6)] + [0.01, 0.01]
    out = {
        "Samples": [
            sample("once", cell(40, 1, 0.4, False)),
            sample("five times", cell(30, 5, 0.5, False)),
            sample("partial scores", cell(25, 4, 0.3, True)),
        ],
        "Pairs": [
            pair("once, 60 tasks", cell(60, 1, 0.3, False), cell(60, 1, 0.6, False)),
            pair("12 tasks, three times", cell(12, 3, 0.3, True), cell(12, 3, 0.6, True)),
            pair("16 tasks, twice, whole scores", cell(16, 2, 0.4, False), cell(16, 2, 0.5, False)),
        ],
        "Ps": ps, "Holm": [float(p) for p in multipletests(ps, method="holm")[1]],
    }
    print(json.dumps(out, indent=None, separators=(",", ":")))


main()
