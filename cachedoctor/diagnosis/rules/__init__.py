"""One code file and one page per cause. Rules know Requests and Sessions; no engine, no file, no terminal."""
