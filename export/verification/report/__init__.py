"""What verify found, written down: one document for machines, and the same as a text and as one page with pictures."""

from gaussport.export.verification.report.document import document_of
from gaussport.export.verification.report.folder import check_folder, write_reports

__all__ = ["check_folder", "document_of", "write_reports"]
