#!/usr/bin/env python3
"""libparley's parameters against parleyd, number for number: params_calls does the work.

usage: test_params_calls.py PARLEYD PARAMS_CALLS
"""
import sys

import children
import harness

parleyd, params_calls = sys.argv[1:]
with harness.Parleyd(parleyd) as parley:
    children.run([params_calls, parley.address], check=True)
