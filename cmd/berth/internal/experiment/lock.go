package experiment

import (
	"context"
	"fmt"
	"slices"

	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/core/config"
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

// verifiers returns the names of verifiers that tasks use.
func (l *Loaded) verifiers() []string {
	var names []string
	for i := range l.Plan.Tasks {
		t := l.Plan.Tasks[i].Task
		if t == nil {
			continue
		}
		for s := range t.Stages {
			for _, u := range t.Stages[s].Verifiers {
				if !slices.Contains(names, u.Name) {
					names = append(names, u.Name)
				}
			}
		}
	}
	return names
}

// checkLock adds an error for each plugin that differs from the lock file in the
// folder of the experiment.
func (l *Loaded) checkLock(ctx context.Context) error {
	problem := func(summary, detail string) {
		l.Diagnostics = append(l.Diagnostics, config.Diagnostic{Severity: config.Error, Summary: summary, Detail: detail})
	}
	locked, there, err := drift.ReadLock(l.Experiment.Dir)
	if err != nil {
		problem(fmt.Sprintf("%s cannot be read", config.LockFile), err.Error()+".")
		return nil //nolint:nilerr // it is among the diagnostics
	}
	if !there {
		return nil
	}
	used, err := l.Plugins(ctx)
	if err != nil {
		return err
	}
	for _, line := range drift.ChangedPlugins(locked, used) {
		problem("Plugin differs from "+config.LockFile, line)
	}
	return nil
}
