"""A report as it is to be shown: the requests that were asked for, and fixes in the form that was asked for."""

from __future__ import annotations

from cachedoctor.doctor.analysis.filtering import Wanted, filtered
from cachedoctor.doctor.fixing.fixes import Told, fixes
from cachedoctor.model import Report


def shown_part(report: Report, wanted: Wanted | None, told: Told | None) -> Report:
    """Return the report with the requests that are wanted, and with the fixes of their findings.

    Raises:
        CacheDoctorError: there are no such requests, or the log has no clock to choose them by.
    """
    if wanted is not None:
        report = filtered(report, wanted)
    report.fix = fixes(report.findings, report.sessions, report.inputs, told)
    return report
