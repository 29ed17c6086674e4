package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/environment"
)

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can run, and how to fix what is missing",
		Long: `Checks this machine, and asks every environment plugin whether it could run a
plain task. The exit code is 1 if none can.`,
		Example: "  berth doctor\n  berth doctor --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			res, err := a.doctor(cmd.Context())
			if err != nil {
				return err
			}
			if err := a.say(res, func() { a.sayDoctor(res) }); err != nil {
				return err
			}
			if !res.Ready {
				return &exit{exitErrors, nil}
			}
			return nil
		},
	}
}

// brokenPlugin is the prefix of the name of a check about a file that is not a
// working plugin.
const brokenPlugin = "plugin "

func (a *app) doctor(ctx context.Context) (*output.Doctor, error) {
	res := &output.Doctor{Checks: machineChecks(), Environments: []output.DoctorEnvironment{}}
	h, err := a.host()
	if err != nil {
		return nil, err
	}
	defer h.Stop()
	entries, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	counts := map[plugins.Kind]int{}
	for i := range entries {
		e := &entries[i]
		if e.Error != "" {
			res.Checks = append(res.Checks, output.DoctorCheck{
				Name: brokenPlugin + report.Display(e.Path), Text: e.Error, Remedy: "remove it from the folder of plugins, or fix it",
			})
			continue
		}
		counts[e.Kind]++
		if e.Kind != plugins.KindEnvironment || e.ShadowedBy != "" {
			continue
		}
		d, machine := examine(ctx, h, e)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for _, c := range machine {
			if !slices.Contains(res.Checks, c) { // another environment reported the same check
				res.Checks = append(res.Checks, c)
			}
		}
		res.Ready = res.Ready || d.OK && !d.SurfaceOnly
		res.Environments = append(res.Environments, d)
	}
	c := output.DoctorCheck{
		Name: "plugins", OK: counts[plugins.KindAgent] > 0 && counts[plugins.KindEnvironment] > 0 && counts[plugins.KindVerifier] > 0,
		Text: fmt.Sprintf("%s, %s, %s", terminal.Count(counts[plugins.KindAgent], "agent", "agents"),
			terminal.Count(counts[plugins.KindEnvironment], "environment", "environments"), terminal.Count(counts[plugins.KindVerifier], "verifier", "verifiers")),
	}
	if !c.OK {
		c.Remedy = "run make build, or set BERTH_PLUGIN_PATH to a folder of plugins"
	}
	c.Text += notStarted(ctx, h, "; ")
	res.Checks = append(res.Checks, c)
	for _, c := range res.Checks {
		res.Ready = res.Ready && (c.OK || strings.HasPrefix(c.Name, brokenPlugin)) // the other plugins may work
	}
	return res, nil
}

// examine asks an environment what it can do on this machine and what it
// depends on.
func examine(ctx context.Context, h *plugin.Host, e *plugin.Entry) (d output.DoctorEnvironment, machine []output.DoctorCheck) {
	d = output.DoctorEnvironment{Name: e.Name, Version: e.Version, SurfaceOnly: slices.Contains(e.Capabilities, environment.CapabilityNoSandboxes)}
	env, _, err := h.Environment(ctx, e.Name)
	if err == nil {
		var r environment.Report
		r, err = check(ctx, env)
		d.Refusals, d.Degraded, d.About = r.Refusals, r.Degraded, r.About
		for _, c := range r.Machine {
			machine = append(machine, output.DoctorCheck{Name: c.Name, OK: true, Text: c.Text, Remedy: c.Remedy})
		}
	}
	if err != nil {
		d.Error = err.Error()
	}
	if d.SurfaceOnly { // that it makes no sandboxes is not a fault of this machine
		d.Refusals = nil
	}
	d.OK = err == nil && len(d.Refusals) == 0
	return d, machine
}

// check asks an environment about a plain task: its base, no network, a
// gigabyte of memory.
func check(ctx context.Context, e environment.Environment) (environment.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return e.Check(ctx, environment.Spec{
		Network: environment.Network{Mode: environment.NetworkNone}, Limits: environment.Limits{MemoryMiB: 1024},
	})
}

// machineChecks checks what every environment needs.
func machineChecks() []output.DoctorCheck {
	var checks []output.DoctorCheck
	add := func(name, text, remedy string, err error) {
		c := output.DoctorCheck{Name: name, OK: err == nil, Text: text}
		if err != nil {
			c.Text, c.Remedy = err.Error(), remedy
		}
		checks = append(checks, c)
	}
	dir, err := node.Dir()
	add("runtime folder", dir, "set "+node.EnvDir+" to your own short path on a local disk", err)
	if err == nil { // otherwise the runtime folder is already reported
		err = machineReady()
	}
	path, missing := sandboxdPath()
	if missing != nil {
		add("sandboxd", path, "run make build", missing)
	} else if dir != "" {
		add("sandboxd", path, "free some space in "+dir, err)
	}
	cache := output.DoctorCheck{Name: "cache folder", OK: true}
	if cache.Text, err = cacheFolder(); err != nil { // nothing fails without a cache
		cache.Text = err.Error() + ": every command has to start every plugin to ask what it serves"
		cache.Remedy = "set XDG_CACHE_HOME to your own folder"
	}
	return append(checks, cache)
}

func (a *app) sayDoctor(res *output.Doctor) {
	a.sayChecks(res)
	if res.Ready {
		can := []string{}
		for _, e := range res.Environments {
			if e.OK && !e.SurfaceOnly {
				can = append(can, e.Name)
			}
		}
		a.Printf("\nThis machine can run tasks with environment %s.\nNo sandbox was started to find out. Try one: berth try DIR\n", strings.Join(can, " or "))
	} else {
		a.Printf("\nThis machine cannot run tasks yet; see the lines above.\n")
	}
}

// sayChecks prints checks, and what environments said.
func (a *app) sayChecks(res *output.Doctor) {
	mark := func(ok bool) string {
		if ok {
			return terminal.Paint(a.Color, terminal.Good, "ok     ")
		}
		return terminal.Paint(a.Color, terminal.Bad, "missing")
	}
	for _, c := range res.Checks {
		m := mark(c.OK)
		if c.OK && c.Remedy != "" {
			m = terminal.Paint(a.Color, terminal.Odd, "note   ")
		}
		a.Printf("%s  %s: %s\n", m, c.Name, terminal.Clean(c.Text))
		if c.Remedy != "" {
			a.Printf("         → %s\n", terminal.Clean(c.Remedy))
		}
	}
	for _, e := range res.Environments {
		about := ""
		if e.About != "" {
			about = ": " + terminal.Clean(e.About)
		}
		kind := "environment"
		if e.SurfaceOnly {
			kind = "surface"
		}
		a.Printf("%s  %s %s%s\n", mark(e.OK), kind, e.Name, about)
		if e.Error != "" {
			a.Printf("         %s\n", terminal.Clean(e.Error))
		}
		for _, p := range e.Refusals {
			a.Printf("         %s\n         → %s\n", terminal.Clean(p.Summary), terminal.Clean(p.Detail))
		}
		for _, p := range e.Degraded {
			a.Printf("         %s %s: %s\n", terminal.Paint(a.Color, terminal.Odd, "note:"), terminal.Clean(p.Summary), terminal.Clean(p.Detail))
		}
	}
}
