"""One code file and one page per cause. Rules work on Requests and Sessions, without engine, file or terminal."""
