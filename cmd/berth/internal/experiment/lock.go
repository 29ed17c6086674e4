package experiment

import (
	"context"
	"os"
	"path/filepath"
	"slices"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/plugins"
)

// Plugins returns the plugins that the cells and the tasks use, as they are
// installed. Those that are missing are left out; the plan names them.
func (l *Loaded) Plugins(ctx context.Context) ([]drift.LockedPlugin, error) {
	if l.Experiment == nil || l.Plan == nil {
		return nil, nil
	}
	entries, err := l.Host.List(ctx)
	if err != nil {
		return nil, err
	}
	var used []drift.LockedPlugin
	add := func(kind plugins.Kind, name string) {
		for i := range entries {
			if e := &entries[i]; e.Kind == kind && e.Name == name && e.ShadowedBy == "" && e.Error == "" {
				p := drift.LockedPlugin{Kind: string(kind), Name: name, Version: e.Version, Digest: e.Digest}
				if !slices.Contains(used, p) {
					used = append(used, p)
				}
			}
		}
	}
	for _, c := range l.Experiment.Cells {
		add(plugins.KindAgent, c.Agent.Plugin)
		add(plugins.KindEnvironment, c.Environment.Plugin)
		add(plugins.KindEnvironment, c.Environment.Surface)
		if c.User != nil {
			add(plugins.KindAgent, c.User.Agent.Plugin)
		}
		for _, name := range l.verifiers() {
			if v := c.Verifiers[name]; v.Plugin != "" {
				name = v.Plugin
			}
			add(plugins.KindVerifier, name)
		}
	}
	return used, nil
}

// checkLock adds an error for each plugin that differs from the lock file in the
// folder of the experiment, or as Options.LockAbove says.
func (l *Loaded) checkLock(ctx context.Context, above string) error {
	problem := func(summary, detail string) {
		l.Diagnostics = append(l.Diagnostics, config.Diagnostic{Severity: config.Error, Summary: summary, Detail: detail})
	}
	dir, name := l.Experiment.Dir, config.LockFile
	if above != "" {
		dir = lockAbove(above)
		name = filepath.Join(dir, name)
	}
	locked, there, err := drift.ReadLock(dir)
	if err != nil {
		problem(name+" cannot be read", err.Error()+".")
		return nil //nolint:nilerr // it is among the diagnostics
	}
	if !there {
		return nil
	}
	used, err := l.Plugins(ctx)
	if err != nil {
		return err
	}
	if above != "" {
		used = slices.DeleteFunc(used, func(p drift.LockedPlugin) bool {
			return !slices.ContainsFunc(locked, func(q drift.LockedPlugin) bool { return p.Kind == q.Kind && p.Name == q.Name })
		})
	}
	for _, line := range drift.ChangedPlugins(locked, used) {
		problem("Plugin differs from "+name, line)
	}
	return nil
}

// lockAbove returns the nearest folder at or above dir that has a lock file, or
// else the root.
func lockAbove(dir string) string {
	for {
		if _, err := os.Lstat(filepath.Join(dir, config.LockFile)); err == nil || filepath.Dir(dir) == dir {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
