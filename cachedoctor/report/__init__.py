"""One file per output format. Knows only the Report; never a log line, a rule or an engine."""
