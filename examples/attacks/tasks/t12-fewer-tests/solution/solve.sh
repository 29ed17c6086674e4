#!/bin/sh
rm -f /app/cases/*
