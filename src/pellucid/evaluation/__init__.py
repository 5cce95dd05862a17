"""Evaluation of translations: scores with signatures, significance, and sentences worth a look.

from pellucid.evaluation import evaluate
found = evaluate("runs/toy/bundle", source="test.fr", references="test.en")
found.scores["bleu"].value
"""

from pellucid.evaluation.evaluate import evaluate
from pellucid.evaluation.results import Comparison, Evaluation, Score, SystemEvaluation

__all__ = ["Comparison", "Evaluation", "Score", "SystemEvaluation", "evaluate"]
