"""The demo: a whole audit of a small model that comes with the package.

``BASE`` is the folder of that model: Llama architecture, its own tokenizer, safetensors. Its card
(``MODEL_CARD.md``) says how it was made and what it is not for.
"""

from pathlib import Path

BASE = Path(__file__).parent / "base"
"""The folder of the embedded base model, as ``from_pretrained`` takes it."""
