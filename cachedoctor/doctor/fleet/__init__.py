"""Many logs, each analysed on its own by one of several processes; what was found stays in a folder of tables."""
