// Command gendocs writes docs/reference from the code: the command line, the
// experiment file, and the plugins of this tree. CI compares what it writes with
// what is committed.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-eval/berth/cmd/berth/internal/cli"
	"github.com/berth-eval/berth/cmd/berth/internal/config"
	"github.com/berth-eval/berth/cmd/berth/internal/selection"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/core/plugin"
	pluginconfig "github.com/berth-eval/berth/plugins/config"
)

//go:generate go run . ../../../../docs/reference

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gendocs FOLDER")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

// tags are the build tags of the Makefile.
const tags = "grpcnotrace"

const head = "<!-- Written by cmd/berth/internal/gendocs: change the code, then run make generate. -->\n\n"

func run(ctx context.Context, dir string) error {
	plugins, err := pluginReference(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"README.md": index, "cli.md": cliReference(), //nolint:contextcheck // no command is executed
		"experiment.md": experimentReference(), "plugins.md": plugins, "selection.md": selectionReference(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(head+strings.TrimRight(text, "\n")+"\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

const index = `# Reference

- [The command line](cli.md)
- [The experiment file](experiment.md), block by block
- [The task format harbor](task.md): files and folders, and the settings in task.toml, key by key
- The other task formats: [uniclaw](../closed-loop.md#the-task-format-uniclaw), [gauntlet](../gauntlet.md), [sokoban](../games.md), [webui](../webui.md)
- [The plugins](plugins.md) that come with Berth, and their options
- [The comparators](compare.md): the verifiers that compare answers and exports with a ground truth
- [Selecting attempts](selection.md): the expressions of ` + "`--select`" + `
- [The files that Berth writes](../../schemas/), as JSON Schema
`

// selectionReference lists what expressions may use.
func selectionReference() string {
	var b strings.Builder
	b.WriteString("# Selecting attempts\n\n`--select` takes an expression that is true or false for one attempt. " +
		"The language is that of [Expr](https://expr-lang.org/docs/language-definition).\n\n" +
		"    berth show last --select 'outcome == \"failed\" && cell.agent == \"nop\"'\n" +
		"    berth show last --select '\"git\" in tags && score < 0.5'\n" +
		"    berth show last --select 'agent_time > 300 || cost > 1.5'\n" +
		"    berth show last --select 'task startsWith \"org/\" && not measured'\n\n" +
		"A command that is about trials looks at the accepted attempt of each. " +
		"A text that a field never has in the run is an error, so that a typing mistake does not select nothing. " +
		"The values on axes are text: write `float(cell.effort) > 2`.\n\n")
	for i := range selection.Fields {
		f := &selection.Fields[i]
		b.WriteString(entryOf(f.Name, f.Type, nil, strings.ReplaceAll(f.Text, "](experiment.md", "](../experiment.md")).text)
	}
	return b.String()
}

// cliReference is every command with its help.
func cliReference() string {
	var b strings.Builder
	b.WriteString("# The command line\n\nThe answer goes to stdout, everything else to stderr. Exit codes: 0 complete, whatever the scores; " +
		"1 complete, but a trial has an error outcome or a requirement is not met; 2 usage or configuration, nothing was started; " +
		"3 incomplete, can be resumed; 130 interrupted, after cleanup.\n\nWith `--json` the answer is one object, described in " +
		"[schemas/](../../schemas/); errors that are not part of the answer are printed on the last line of stderr, " +
		"as one object ([cli-failure](../../schemas/cli-failure.json)).\n")
	commands := documented(cli.Command())
	common := commonFlags(commands)
	fmt.Fprintf(&b, "\n## Flags of several commands\n\n%s\n", indent(common.FlagUsagesWrapped(usage.Width)))
	for _, c := range commands {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", c.CommandPath(), firstOf(c.Long, c.Short))
		if c.HasSubCommands() && c.HasParent() {
			continue // its examples are those of the commands below it
		}
		fmt.Fprintf(&b, "\n    %s\n", c.UseLine())
		if c.Example != "" {
			fmt.Fprintf(&b, "\n%s\n", indent(c.Example))
		}
		own := pflag.NewFlagSet("", pflag.ContinueOnError)
		var also []string
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			switch g := common.Lookup(f.Name); {
			case g == nil || same(f) != same(g):
				own.AddFlag(f)
			case !f.Hidden:
				also = append(also, "`--"+f.Name+"`")
			}
		})
		if flags := strings.TrimRight(own.FlagUsagesWrapped(usage.Width), "\n"); flags != "" {
			fmt.Fprintf(&b, "\n%s\n", indent(flags))
		}
		if len(also) > 0 {
			fmt.Fprintf(&b, "\n[Also](#flags-of-several-commands): %s.\n", strings.Join(also, ", "))
		}
	}
	return b.String()
}

// documented is a command with those below it, in their order.
func documented(c *cobra.Command) []*cobra.Command {
	if c.Hidden || c.Name() == "help" {
		return nil
	}
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		all = append(all, documented(sub)...)
	}
	return all
}

// same is equal for flags that the reference describes once.
func same(f *pflag.Flag) string { return f.Name + "\n" + f.Usage + "\n" + f.DefValue }

// commonFlags are the flags that at least three commands have.
func commonFlags(commands []*cobra.Command) *pflag.FlagSet {
	common := pflag.NewFlagSet("", pflag.ContinueOnError)
	times := map[string]int{}
	for _, c := range commands {
		c.Flags().VisitAll(func(f *pflag.Flag) { // LocalFlags would change the usage lines
			if times[same(f)]++; times[same(f)] == 3 && common.Lookup(f.Name) == nil {
				common.AddFlag(f)
			}
		})
	}
	return common
}

func firstOf(long, short string) string {
	if long != "" {
		return long
	}
	return short + "."
}

func indent(text string) string {
	lines := strings.Split(strings.Trim(text, "\n"), "\n")
	for i, l := range lines {
		lines[i] = strings.TrimRight("    "+strings.TrimPrefix(l, "  "), " ")
	}
	return strings.Join(lines, "\n")
}

// experimentReference is every block and attribute.
func experimentReference() string {
	var b strings.Builder
	b.WriteString("# The experiment file\n\n[The guide](../experiment.md) explains how these fit together.\n")
	known := written{}
	var block func(s *config.BlockSpec, path string)
	block = func(s *config.BlockSpec, path string) {
		labels := make([]string, len(s.Labels))
		for i, l := range s.Labels {
			labels[i] = strconv.Quote(l)
		}
		name := strings.TrimSpace(path + " " + s.Name)
		fmt.Fprintf(&b, "\n## %s\n\n%s\n", strings.Join(append([]string{name}, labels...), " "), s.Doc)
		if s.Free != "" {
			fmt.Fprintf(&b, "\nTakes any attribute: %s\n", s.Free)
		}
		switch {
		case s.Plugin && path == "dataset":
			b.WriteString("\n`harbor` has none; [the other formats](README.md) have a page each.\n")
		case s.Plugin:
			b.WriteString("\n[The plugins](plugins.md) and their options.\n")
		}
		var attributes []entry
		for _, a := range s.Attributes {
			doc := a.Doc
			if len(a.Enum) > 0 {
				doc += " One of " + strings.Join(a.Enum, ", ") + "."
			}
			if a.Required {
				doc += " Required."
			}
			attributes = append(attributes, entryOf(a.Name, string(a.Type), a.Default, doc))
		}
		b.WriteString(known.list(name, attributes))
		for i := range s.Blocks {
			block(&s.Blocks[i], name)
		}
	}
	spec := config.Spec()
	for i := range spec {
		block(&spec[i], "")
	}
	return b.String()
}

// entry is an attribute or option in a list.
type entry struct{ name, text string }

func entryOf(name, typ string, value json.RawMessage, doc string) entry {
	if len(value) > 0 && string(value) != `""` {
		typ += ", `" + string(value) + "`"
	}
	return entry{name, fmt.Sprintf("- `%s` (%s): %s\n", name, typ, strings.Join(strings.Fields(doc), " "))}
}

// written has the texts of entries, with the section in which each is.
type written map[string]string

// list is a section's entries. Those that an earlier section has are only named.
func (w written) list(section string, entries []entry) string {
	text, again := "", map[string][]string{}
	for _, e := range entries {
		if before := w[e.text]; before != "" {
			again[before] = append(again[before], "`"+e.name+"`")
			continue
		}
		w[e.text] = section
		text += e.text
	}
	for _, before := range slices.Sorted(maps.Keys(again)) {
		text += fmt.Sprintf("- %s: as in `%s`\n", strings.Join(again[before], ", "), before)
	}
	if text == "" {
		return ""
	}
	return "\n" + text
}

// describe builds the plugins of this tree and asks each for its description.
func describe(ctx context.Context) ([]plugin.Entry, error) {
	dir, err := os.MkdirTemp("", "gendocs")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return nil, fmt.Errorf("find the module: %w", err)
	}
	top := strings.TrimSpace(string(root))
	var mains, programs []string
	for _, room := range []string{"agents", "environments", "verifiers"} {
		found, bad := filepath.Glob(filepath.Join(top, room, "*", "main.go"))
		if bad != nil {
			return nil, bad
		}
		for _, f := range found {
			mains = append(mains, filepath.Dir(f))
			programs = append(programs, filepath.Join(dir, filepath.Base(filepath.Dir(f))))
		}
	}
	build := exec.CommandContext(ctx, "go", append([]string{"build", "-tags", tags, "-o", dir + "/"}, mains...)...)
	build.Dir, build.Env = top, append(os.Environ(), "CGO_ENABLED=0")
	if text, bad := build.CombinedOutput(); bad != nil {
		return nil, fmt.Errorf("build the plugins: %w: %s", bad, text)
	}
	host, err := plugin.New(plugin.Options{Programs: slices.Sorted(slices.Values(programs)), Dirs: []string{}})
	if err != nil {
		return nil, err
	}
	defer host.Stop()
	return host.List(ctx)
}

// paged reports whether a page has the options of a plugin: compare.md.
func paged(name string) bool { return strings.HasPrefix(name, "compare-") }

// pluginReference is every plugin with its options.
func pluginReference(ctx context.Context) (string, error) {
	entries, err := describe(ctx)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("# The plugins that come with Berth\n\nAn option has its type and, after a comma, its default.\n")
	var failed error
	known := written{}
	for i := range entries {
		e := &entries[i]
		if e.Error != "" {
			failed = errors.Join(failed, errors.New(e.Error))
			continue
		}
		if paged(e.Name) {
			fmt.Fprintf(&b, "\n## %s [`%s`](compare.md#%s)\n", e.Kind, e.Name, e.Name)
			continue
		}
		fmt.Fprintf(&b, "\n## %s `%s`\n\n%s\n", e.Kind, e.Name, e.Doc)
		if e.Kind == "environment" && len(e.Capabilities) > 0 {
			fmt.Fprintf(&b, "\nCapabilities: %s.\n", strings.Join(e.Capabilities, ", "))
		}
		own := options(e.Schema.Fields, "")
		if like := base(entries, i, own); like != nil {
			fmt.Fprintf(&b, "\n[The options of `%s`](#%s-%s)\n", like.Name, like.Kind, like.Name)
			of := options(like.Schema.Fields, "")
			own = slices.DeleteFunc(own, func(o entry) bool { return slices.Contains(of, o) })
		}
		b.WriteString(known.list(e.Name, own))
	}
	return b.String(), failed
}

// base returns the plugin whose options are the largest part of those of entries[at],
// if there is one: the first of those with equal options.
func base(entries []plugin.Entry, at int, own []entry) *plugin.Entry {
	var found *plugin.Entry
	most := 1 // a single option is not worth a link
	for i := range entries {
		of := options(entries[i].Schema.Fields, "")
		part := !slices.ContainsFunc(of, func(o entry) bool { return !slices.Contains(own, o) })
		if part && len(of) > most && (len(of) < len(own) || i < at) {
			found, most = &entries[i], len(of)
		}
	}
	return found
}

func options(fields []pluginconfig.Field, prefix string) (entries []entry) {
	for _, f := range fields {
		entries = append(entries, entryOf(prefix+f.Name, string(f.Type), f.Default, f.Doc))
		entries = append(entries, options(f.Fields, prefix+f.Name+".")...)
	}
	return entries
}
