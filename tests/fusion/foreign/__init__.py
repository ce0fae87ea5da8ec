"""Attention modules as other people would write them, from the formulas alone: nothing of gaussport is imported here."""
