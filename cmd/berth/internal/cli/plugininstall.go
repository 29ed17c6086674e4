package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plugin"
)

func (a *app) pluginInstallCommand() *cobra.Command {
	replace := false
	cmd := &cobra.Command{
		Use:   "install PATH",
		Short: "Install a plugin for this user",
		Long: `Copies a plugin to the user's own folder of plugins. PATH is the file or folder
berth-plugin-NAME. The plugin is started once, to ask what it serves; if it does
not answer, nothing is installed.`,
		Example: "  berth plugin install ./berth-plugin-exact\n  berth plugin install ./berth-plugin-exact --force",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			res, err := a.install(cmd.Context(), args[0], replace)
			if err != nil {
				return fmt.Errorf("install %s: %w", args[0], err)
			}
			if done, err := a.Answer(res); done {
				return err
			}
			for i := range res.Plugins {
				e := &res.Plugins[i]
				a.Printf("%s %s %s  %s\n", e.Kind, terminal.Paint(a.Color, terminal.Bold, e.Name), terminal.Clean(e.Version), e.Digest)
			}
			a.Printf("installed in %s\n", report.Display(res.Path))
			return nil
		},
	}
	cmd.Flags().BoolVar(&replace, "force", false, "replace an installed plugin of this name")
	return cmd
}

// install makes a copy beside the installed plugins, tries it, and gives it its name.
func (a *app) install(ctx context.Context, path string, replace bool) (res output.PluginInstall, err error) {
	own := plugin.OwnFolder(os.Getenv)
	if own == "" {
		return res, errors.New("there is no folder for your plugins: set HOME or XDG_DATA_HOME")
	}
	if err = os.MkdirAll(own, 0o755); err != nil {
		return res, err
	}
	if err = plugin.SafeFolder(own); err != nil { // nothing in it would be started
		return res, err
	}
	work, err := os.MkdirTemp(own, ".installing-")
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	staged := filepath.Join(work, "new")
	if err = os.Mkdir(staged, 0o700); err != nil {
		return res, err
	}
	made, err := copyPlugin(path, staged)
	if err != nil {
		return res, err
	}
	if res.Plugins, err = a.tried(ctx, staged); err != nil {
		return res, err
	}
	res.Path = filepath.Join(own, filepath.Base(made))
	if _, err = os.Lstat(res.Path); err == nil {
		if !replace {
			return res, fmt.Errorf("%s is installed: replace it with --force", res.Path)
		}
		err = os.Rename(res.Path, filepath.Join(work, "old"))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return res, err
	}
	for i := range res.Plugins {
		rel, relErr := filepath.Rel(staged, res.Plugins[i].Path)
		if relErr != nil {
			return res, relErr
		}
		res.Plugins[i].Path = filepath.Join(own, rel)
	}
	return res, os.Rename(made, res.Path)
}

// tried asks the plugin in a folder what it serves.
func (a *app) tried(ctx context.Context, dir string) ([]output.PluginEntry, error) {
	h, err := plugin.New(plugin.Options{Dirs: []string{dir}, Log: a.log})
	if err != nil {
		return nil, err
	}
	defer h.Stop()
	entries, err := h.List(ctx)
	if err != nil {
		return nil, err
	}
	var list []output.PluginEntry
	for i := range entries {
		if entries[i].Error != "" {
			return nil, errors.New(entries[i].Error)
		}
		list = append(list, pluginEntry(&entries[i]))
	}
	return list, nil
}

func (a *app) pluginLockCommand() *cobra.Command {
	var f experiment.Flags
	cmd := &cobra.Command{
		Use:   "lock [PATH]",
		Short: "Lock the plugins of an experiment",
		Long: `Writes berth.lock.hcl into the folder of the experiment, with the version and
the digest of each plugin that the experiment and its tasks use. From then on,
Berth refuses the experiment if one of them differs. PATH is as for berth
validate.`,
		Example: "  berth plugin lock\n  berth plugin lock experiment.hcl",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := a.loadWith(cmd.Context(), experimentPath(args), &f, experiment.Options{IgnoreLock: true})
			if err != nil {
				return err
			}
			defer l.Close()
			if l.Experiment == nil || l.Plan == nil {
				return errors.Join(l.Complain(a.Printer), &exit{exitUsage, nil})
			}
			used, err := l.Plugins(cmd.Context())
			if err != nil {
				return err
			}
			res := output.PluginLock{Plugins: []output.PluginPart{}}
			if res.File, err = drift.WriteLock(l.Experiment.Dir, used); err != nil {
				return err
			}
			for _, p := range used {
				res.Plugins = append(res.Plugins, output.PluginPart(p))
			}
			return a.say(res, func() {
				a.Printf("wrote %s: %s\n", report.Display(res.File), terminal.Count(len(used), "plugin", "plugins"))
			})
		},
	}
	f.Register(cmd)
	return cmd
}

// copyPlugin copies the plugin at path, a file or folder with the name of a plugin,
// into the folder dir, and returns where it is. Of a folder it copies what the
// digest covers: files that links lead to become files. Only the owner can write
// to the copy. It fails with fs.ErrExist if the name is taken in dir.
func copyPlugin(path, dir string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	to := filepath.Join(dir, filepath.Base(path))
	return to, plugin.Walk(path, func(from, name string, info fs.FileInfo) error {
		target := filepath.Join(to, name)
		if info.IsDir() {
			return os.Mkdir(target, 0o755)
		}
		mode := fs.FileMode(0o644)
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		return copyFile(from, target, mode)
	})
}

func copyFile(from, to string, mode fs.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() //nolint:errcheck // only read
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err = io.Copy(out, in); err != nil {
		return fmt.Errorf("copy %s: %w", from, err)
	}
	return out.Chmod(mode) // whatever the umask says
}
