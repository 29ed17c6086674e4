#!/bin/sh
: > /app/two
