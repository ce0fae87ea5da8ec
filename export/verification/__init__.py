"""Proving a bundle again: a list of checks, each one question with one sentence for an answer."""

from gaussport.export.verification.checks import CHECKS, Finding, verify_bundle

__all__ = ["CHECKS", "Finding", "verify_bundle"]
