"""sleeper.py DIR: creates DIR/RANK.ready with its pid inside, then sleeps for ever."""

import sys

from ready import announce, sleep_for_ever

announce(sys.argv[1])
sleep_for_ever()
