"""`gaussport report`: how well a bundle does on labelled pictures, as one page, a model card and JSON; free of torch.

labelled ─▶ answers (one model's probabilities) ─▶ scores, comparison ─▶ document ─▶ figures, page, card ─▶ folder
"""
