package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/conform"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/conformance"
	"github.com/berth-eval/berth/plugins/environment"
	"github.com/berth-eval/berth/plugins/suggest"
	"github.com/berth-eval/berth/plugins/verifier/verifiertest"
)

func (a *app) pluginCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "plugin",
		Short:   "List, test, create, install and lock plugins",
		Example: "  berth plugin list",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.pluginListCommand(), a.pluginInfoCommand(), a.pluginTestCommand(), a.pluginNewCommand(), a.pluginInstallCommand(), a.pluginLockCommand())
	return cmd
}

func (a *app) pluginListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the installed plugins",
		Long: `Searches for plugins beside this program, in $BERTH_PLUGIN_PATH, and in the
user's own folder, in this order. The first plugin with a name wins.

A plugin is an executable file berth-plugin-NAME, or a folder berth-plugin-NAME
that contains an executable file of the same name and all that it loads. Files
and folders that other users could change are refused.`,
		Example: "  berth plugin list\n  berth plugin list --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			res, err := a.pluginEntries(cmd.Context())
			if err != nil {
				return err
			}
			if done, err := a.Answer(res); done {
				return err
			}
			t := terminal.Table{Head: []string{"kind", "name", "version", "protocol", "digest", "path"}, Right: []bool{3: true}}
			for _, e := range res.Plugins {
				switch {
				case e.Error != "":
					a.Notef("%s %s: %s\n", terminal.Paint(a.ErrColor, terminal.Odd, "Warning:"), report.Display(e.Path), terminal.Clean(e.Error))
				case e.ShadowedBy != "":
					a.Notef("%s %s %q of %s is hidden by %s\n", terminal.Paint(a.ErrColor, terminal.Odd, "Warning:"), e.Kind, e.Name,
						report.Display(e.Path), report.Display(e.ShadowedBy))
				default:
					t.Row(e.Kind, e.Name, terminal.Clean(e.Version), strconv.Itoa(e.Protocol), e.Digest[:min(len(e.Digest), 19)], report.Display(e.Path))
				}
			}
			if len(res.NotStarted) > 0 {
				a.Notef("%s %s\n", terminal.Paint(a.ErrColor, terminal.Odd, "Note:"), terminal.Clean(plugin.Ignored(res.NotStarted)))
			}
			if t.Len() == 0 {
				return fmt.Errorf("no plugins in %s: run make build, or set BERTH_PLUGIN_PATH", strings.Join(res.Folders, ", "))
			}
			t.Write(a.Printer)
			return nil
		},
	}
}

// pluginEntries asks the host for all plugins.
func (a *app) pluginEntries(ctx context.Context) (output.PluginList, error) {
	res := output.PluginList{Folders: plugin.SearchPath(os.Getenv), Plugins: []output.PluginEntry{}}
	h, err := a.host()
	if err != nil {
		return res, err
	}
	defer h.Stop()
	entries, err := h.List(ctx)
	if err != nil {
		return res, err
	}
	for i := range entries {
		res.Plugins = append(res.Plugins, pluginEntry(&entries[i]))
	}
	res.NotStarted, err = h.NotStarted(ctx)
	return res, err
}

func pluginEntry(e *plugin.Entry) output.PluginEntry {
	return output.PluginEntry{
		Kind: string(e.Kind), Name: e.Name, Version: e.Version, Protocol: e.Protocol, Path: e.Path, Digest: e.Digest,
		Capabilities: e.Capabilities, Doc: e.Doc, ShadowedBy: e.ShadowedBy, Error: e.Error,
	}
}

func (a *app) pluginInfoCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "info NAME",
		Short:   "Describe a plugin and its configuration",
		Example: "  berth plugin info local\n  berth plugin info \"verifier script\" --json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := a.host()
			if err != nil {
				return err
			}
			defer h.Stop()
			entries, err := h.List(cmd.Context())
			if err != nil {
				return err
			}
			kind, name, ok := strings.Cut(args[0], " ")
			if !ok {
				kind, name = "", args[0]
			}
			var found []output.PluginEntry
			var fields []pluginconfig.Schema
			for i := range entries {
				e := &entries[i]
				if e.Name != name || kind != "" && string(e.Kind) != kind {
					continue
				}
				pe := pluginEntry(e)
				if pe.Schema, err = e.Schema.JSONSchema(); err != nil {
					return err
				}
				found, fields = append(found, pe), append(fields, e.Schema)
			}
			if len(found) == 0 {
				return fmt.Errorf("no plugin %q: %s%s", args[0], instead(entries, args[0]), notStarted(cmd.Context(), h, "\n"))
			}
			if done, err := a.Answer(output.PluginList{Folders: plugin.SearchPath(os.Getenv), Plugins: found}); done {
				return err
			}
			for i := range found {
				if i > 0 {
					a.Printf("\n")
				}
				a.pluginText(&found[i], fields[i].Fields)
			}
			return nil
		},
	}
}

// notStarted returns, after before, a hint at executable files in plugin folders
// that are not started because of their names; empty if there are none.
func notStarted(ctx context.Context, h *plugin.Host, before string) string {
	ignored, err := h.NotStarted(ctx)
	if err != nil || len(ignored) == 0 {
		return ""
	}
	return before + plugin.Ignored(ignored)
}

// instead returns what to do when no plugin has the name. A binary may serve
// plugins with names other than its own.
func instead(entries []plugin.Entry, name string) string {
	kind, bare, ok := strings.Cut(name, " ")
	if kinds := []string{string(plugins.KindAgent), string(plugins.KindEnvironment), string(plugins.KindVerifier)}; ok && !slices.Contains(kinds, kind) {
		return fmt.Sprintf("%q is not a kind of plugin%s", kind, suggest.After(kind, kinds))
	} else if !ok {
		bare = name
	}
	var served, known []string
	for i := range entries {
		known = append(known, entries[i].Name)
		if e := &entries[i]; strings.TrimPrefix(filepath.Base(e.Path), plugins.ProgramPrefix) == strings.TrimPrefix(filepath.Base(name), plugins.ProgramPrefix) && e.Name != "" {
			served = append(served, fmt.Sprintf("%s %q", e.Kind, e.Name))
		}
	}
	if len(served) > 0 {
		return "the binary of that name serves " + strings.Join(served, ", ")
	}
	if best := suggest.Word(bare, known); best != "" {
		return fmt.Sprintf("did you mean %q?", best)
	}
	return "`berth plugin list` names those that were found"
}

func (a *app) pluginText(e *output.PluginEntry, fields []pluginconfig.Field) {
	a.Printf("%s %s %s\n", e.Kind, terminal.Paint(a.Color, terminal.Bold, e.Name), terminal.Clean(e.Version))
	if e.Doc != "" {
		a.Printf("%s\n", terminal.Clean(e.Doc))
	}
	a.Printf("path          %s\ndigest        %s\nprotocol      %d\n", e.Path, e.Digest, e.Protocol)
	if len(e.Capabilities) > 0 {
		a.Printf("capabilities  %s\n", terminal.Clean(strings.Join(e.Capabilities, ", ")))
	}
	if len(fields) == 0 {
		a.Printf("no configuration\n")
		return
	}
	a.Printf("\n")
	t := terminal.Table{Head: []string{"config", "type", "default", "what"}}
	fieldRows(&t, "", fields)
	t.Write(a.Printer)
}

func fieldRows(t *terminal.Table, prefix string, fields []pluginconfig.Field) {
	for _, f := range fields {
		def := string(f.Default)
		if f.Required {
			def = "(required)"
		}
		doc := f.Doc
		if len(f.Enum) > 0 {
			doc += " One of " + strings.Join(f.Enum, ", ") + "."
		}
		if f.Secret {
			doc += " A secret."
		}
		t.Row(prefix+terminal.Clean(f.Name), string(f.Type), terminal.Clean(def), terminal.Clean(doc))
		fieldRows(t, prefix+terminal.Clean(f.Name)+".", f.Fields)
	}
}

func (a *app) pluginTestCommand() *cobra.Command {
	var config, image string
	var o conform.Options
	cmd := &cobra.Command{
		Use:   "test PATH",
		Short: "Run the conformance kit on a plugin",
		Long: `Starts the program at PATH, written in any language, and runs every clause of
the conformance kit on each plugin that it serves. The test stops at the first
clause that uses up its time.

An agent passes only if it wrote the file that it was asked for and said that it
is done, and a verifier only if it returned a verdict. Give a verifier works to
judge with --case. docs/plugin-authors.md says what a case has.

The exit code is 1 if a clause failed, and 2 if a plugin could not be tested.`,
		Example: "  berth plugin test bin/plugins/berth-plugin-local\n  berth plugin test ./my-verifier.py --case cases --config '{\"tolerance\": 0.1}'\n  berth plugin test ./my-agent --only \"a turn\"",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if config != "" && !json.Valid([]byte(config)) {
				return fmt.Errorf("--config %q is not JSON", config)
			}
			runtime, err := node.Dir()
			if err != nil {
				return err
			}
			sandboxd, err := sandboxdPath()
			if err != nil {
				return err
			}
			res := output.PluginTest{Path: args[0], Clauses: []conform.Result{}}
			o.Binary, o.Config, o.Spec.Image = args[0], json.RawMessage(config), environment.Image{Ref: image}
			o.Sandboxd, o.Runtime, o.Log = sandboxd, runtime, a.log
			err = conform.Test(cmd.Context(), o, func(r conform.Result) { a.clause(&res, r) })
			if err != nil && res.Failed == 0 {
				return err
			}
			return a.sayPluginTest(&res, err)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&config, "config", "", "configuration of the plugins, as `JSON`")
	fs.StringVar(&image, "image", "", "`IMAGE` for the sandboxes of an environment plugin (default: its base)")
	fs.StringVar(&o.Shells, "environment", defaultEnvironment, "`ENVIRONMENT` whose sandboxes are used to test agents and verifiers")
	fs.StringVar(&o.Only, "only", "", "try only clauses with these `WORDS` in their names")
	fs.StringArrayVar(&o.Cases, "case", nil, "`DIR` with a work for a verifier to judge, or with folders of works; may be repeated")
	fs.StringVar(&o.Level, "level", "", "`LEVEL` that the surface of an environment plugin begins with")
	fs.StringVar(&o.Replies, "replies", "", "`FILE` of replies for the models of agents and verifiers, as for a scripted model")
	return cmd
}

// clause records a result and prints it at once.
func (a *app) clause(res *output.PluginTest, r conform.Result) {
	style := terminal.Good
	switch r.Status {
	case conformance.Pass:
		res.Passed++
	case conformance.Skip:
		res.Skipped++
		style = terminal.Faint
	default:
		res.Failed++
		style = terminal.Bad
	}
	res.Clauses = append(res.Clauses, r)
	if a.JSON {
		return
	}
	a.Printf("%s  %s %s: %s  %s\n", terminal.Paint(a.Color, style, fmt.Sprintf("%-4s", r.Status)), r.Kind, terminal.Clean(r.Plugin), terminal.Clean(r.Clause),
		terminal.Paint(a.Color, terminal.Faint, r.Took.Round(time.Millisecond).String()))
	for _, d := range r.Detail {
		for _, line := range terminal.Lines(d) {
			a.Printf("        %s\n", line)
		}
	}
	if r.Status == conformance.Fail {
		a.Printf("        guards against: %s\n", terminal.Clean(r.Guards))
	}
}

// sayPluginTest says how a test went, and why plugins of the binary were not
// tested.
func (a *app) sayPluginTest(res *output.PluginTest, why error) error {
	if err := a.say(res, func() {
		a.Printf("%s: %d passed, %d failed, %d skipped\n", res.Path, res.Passed, res.Failed, res.Skipped)
		for i := range res.Clauses {
			if r := &res.Clauses[i]; r.Status == conformance.Skip && slices.Contains(r.Detail, verifiertest.NoCases) {
				a.Printf("note: it was not tested whether the verdicts of %s are right. Give works with known verdicts, to pass and to fail: --case DIR\n", terminal.Clean(r.Plugin))
			}
		}
	}); err != nil {
		return err
	}
	if res.Failed > 0 {
		return &exit{exitErrors, why}
	}
	return why
}
