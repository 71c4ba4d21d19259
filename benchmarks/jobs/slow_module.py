"""A module that takes long to import."""

import os
import time

time.sleep(float(os.environ["SLOW_MODULE_SECONDS"]))
