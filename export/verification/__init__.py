"""Proving a bundle again: a list of checks, each one question with one sentence for an answer."""

from gaussport.export.verification.checks import CHECKS, WITH_CHECKPOINT, Finding, verify_bundle

__all__ = ["CHECKS", "WITH_CHECKPOINT", "Finding", "verify_bundle"]
