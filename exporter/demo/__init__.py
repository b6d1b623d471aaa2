"""The logs that `gpufault demo` replays: written from the emitters' format strings, no line of a real machine."""
