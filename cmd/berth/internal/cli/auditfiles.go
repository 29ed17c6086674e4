package cli

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-eval/berth/cmd/berth/internal/audit"
	"github.com/berth-eval/berth/cmd/berth/internal/export"
	"github.com/berth-eval/berth/cmd/berth/internal/numbers"
	"github.com/berth-eval/berth/cmd/berth/internal/report/page"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/store"
	"github.com/berth-eval/berth/plugins/task"
)

// tasksOf computes the digests of the tasks of an archive; nil for the folder of a
// run, which has none. Datasets that this berth cannot read are left out.
func (a *app) tasksOf(ctx context.Context, o *opened) (audit.Tasks, error) {
	if o.datasets == nil {
		return nil, nil
	}
	all := audit.Tasks{}
	for label, how := range o.read {
		at := slices.IndexFunc(a.formats, func(f task.Format) bool { return f.Name() == how.Format })
		folder, there := o.datasets[label]
		if at < 0 || !there {
			continue
		}
		listing, err := task.List(ctx, a.formats[at], folder, task.ListOptions{
			Options: task.Options{Lenient: true, AllowEnv: how.AllowEnv, LookupEnv: a.env, Config: how.Config, All: true},
		})
		if err != nil {
			return nil, fmt.Errorf("tasks of the dataset %q: %w", label, err)
		}
		all[label] = map[string]string{}
		for i := range listing.Items {
			it := &listing.Items[i]
			switch outside := slices.ContainsFunc(it.Problems, func(p task.Problem) bool { return p.Outside }); {
			case it.Task != nil:
				all[label][it.Name()] = it.Task.Digest
			case outside:
				all[label][it.Name()] = ""
			}
		}
	}
	return all, nil
}

// reportCheck is the name of the check of reports and tables.
const reportCheck = "report"

// compareReport makes a report or a table again and compares it with a file.
func compareReport(now *output.Audit, dir, file string) error {
	was, err := usage.Read(file)
	if err != nil {
		return err
	}
	c := output.AuditCheck{Name: reportCheck, What: "Each line of the report " + file + ", made again.", Checked: bytes.Count(was, []byte("\n"))}
	var again []byte
	format := export.Format(strings.TrimPrefix(filepath.Ext(file), "."))
	switch format {
	case export.CSV, export.JSONL, export.Parquet:
		c.What = "Each row of the table " + file + ", made again."
		again, err = tableAgain(dir, format)
	default:
		again, err = reportAgain(dir, was)
	}
	if err != nil {
		return fmt.Errorf("make %s again: %w", file, err)
	}
	if !bytes.Equal(again, was) {
		text := "it is not what the records give: another berth made it, with other flags, or it was changed"
		n := 0 // bytes in common
		for n < min(len(was), len(again)) && was[n] == again[n] {
			n++
		}
		line := 1 + bytes.Count(was[:n], []byte("\n"))
		if format == export.Parquet { // it has no lines
			line, text = 0, fmt.Sprintf("byte %d: %s", n+1, text)
		}
		c.Problems = []output.AuditProblem{{File: file, Line: line, Text: text}}
		now.Problems++
	}
	now.Checks = append(now.Checks, c)
	return nil
}

func reportAgain(dir string, was []byte) (again []byte, err error) {
	runs, err := numbers.Read(dir)
	if err != nil {
		return nil, err
	}
	rules, err := numbers.RulesOf(runs)
	if err != nil {
		return nil, err
	}
	for _, force := range []bool{false, true} { // a report that was refused was written with --force
		o := page.Options{Berth: version, Rules: rules}
		o.Seed, o.Force = 1, force
		if again, err = page.Make(runs, &o); err == nil && bytes.Equal(again, was) {
			break
		}
	}
	return again, err
}

func tableAgain(dir string, format export.Format) ([]byte, error) {
	m, x, err := store.Read(dir)
	if err != nil {
		return nil, err
	}
	tmp, err := tempDir("berth-audit-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "table")
	if _, err = export.Table(&export.Run{Dir: dir, Manifest: m, Index: x, Trials: x.Trials}, format, file); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}
