package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// similarity measures how long a comparison of two pages takes, and its assignment
// of elements beside that of scipy, on the same matrices. Both are tests of the
// packages, because they are no programs.
func (b *bench) similarity(ctx context.Context, f *figures) error {
	const of = "./verifiers/aes/internal/"
	out, err := exec.CommandContext(ctx, "go", "test", "-vet=off", "-run", "^$", "-bench", "BenchmarkCompare", "-benchtime", "50x", of+"similarity").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	m := regexp.MustCompile(`BenchmarkCompare\S*\s+\d+\s+([0-9.]+) ns/op`).FindSubmatch(out)
	if m == nil {
		return fmt.Errorf("the benchmark printed %q", out)
	}
	ns, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return err
	}
	f.add("similarity of two pages, 200 elements a side", ms(time.Duration(ns)), "", "", "≤ 50 ms")
	out, err = exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-v", "-run", "TestBesideScipy", of+"assign").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	found := regexp.MustCompile(`(?m)beside scipy\|([^|]+)\|(\d+)\|(\d+)$`).FindAllSubmatch(out, -1)
	if len(found) == 0 {
		_, why, _ := strings.Cut(string(out), "scipy_test.go")
		_, why, _ = strings.Cut(why, ": ")
		why, _, _ = strings.Cut(why, "\n")
		f.skipped = append(f.skipped, "assignment beside scipy: "+why)
	}
	for _, m := range found {
		ours, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			return err
		}
		theirs, err := strconv.ParseFloat(string(m[3]), 64)
		if err != nil {
			return err
		}
		f.add("assignment, "+string(m[1])+" (shortest of 15)", ms(time.Duration(ours)), "scipy "+ms(time.Duration(theirs)), fmt.Sprintf("%.2f", ours/theirs), "≤ 2.00, equal costs")
	}
	return nil
}
