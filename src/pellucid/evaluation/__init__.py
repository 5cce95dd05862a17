"""How good translations are: scores with signatures, significance, and what is worth a look.

from pellucid.evaluation import evaluate
found = evaluate("runs/toy/bundle", source="test.fr", references="test.en")
found.scores["bleu"].value
"""

from pellucid.evaluation.evaluate import evaluate
from pellucid.evaluation.results import Comparison, Evaluation, Judgement, Score

__all__ = ["Comparison", "Evaluation", "Judgement", "Score", "evaluate"]
