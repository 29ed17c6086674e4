package cli

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/klauspost/compress/zstd"
	"github.com/spf13/cobra"

	"github.com/berth-eval/berth/cmd/berth/internal/drift"
	"github.com/berth-eval/berth/cmd/berth/internal/experiment"
	"github.com/berth-eval/berth/cmd/berth/internal/report"
	"github.com/berth-eval/berth/cmd/berth/internal/terminal"
	"github.com/berth-eval/berth/cmd/berth/output"
	"github.com/berth-eval/berth/core/plugin"
	"github.com/berth-eval/berth/plugins/sandbox/archive"
)

func (a *app) pluginInstallCommand() *cobra.Command {
	replace := false
	cmd := &cobra.Command{
		Use:   "install PATH",
		Short: "Install a plugin for this user",
		Long: `Copies a plugin to the user's own folder of plugins. PATH is the file or folder
berth-plugin-NAME, or an archive (tar, also compressed with gzip or Zstandard)
that contains only this. The plugin is started once, to ask what it serves; if
it does not answer, nothing is installed.`,
		Example: "  berth plugin install ./berth-plugin-exact\n  berth plugin install berth-plugin-exact.tar.gz --force",
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
	if path, err = unpacked(path, filepath.Join(work, "unpacked")); err != nil {
		return res, err
	}
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

// unpacked extracts an archive into dir and returns the path of the plugin in it.
// Another file or a folder is returned as it is.
func unpacked(path, dir string) (string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", errors.New("no such file or folder: give the program of a plugin, its folder, or an archive of one of them")
	}
	if err != nil || !info.Mode().IsRegular() {
		return path, err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	in, err := tarOf(bufio.NewReaderSize(f, 1<<16))
	if in == nil || err != nil {
		return path, err
	}
	defer in.Close() //nolint:errcheck // only read
	_, err = archive.ExtractFolder(dir, in, archive.Extraction{Strict: true, Links: true})
	if err != nil {
		return "", fmt.Errorf("the archive: %w", err)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	if len(list) != 1 {
		return "", fmt.Errorf("the archive has %d files and folders at its top; it must have one, berth-plugin-NAME", len(list))
	}
	return filepath.Join(dir, list[0].Name()), nil
}

// tarOf returns the tar stream in r; nil if r is not an archive.
func tarOf(r *bufio.Reader) (io.ReadCloser, error) {
	const magicAt = 257 // of "ustar"
	head, err := r.Peek(magicAt + 5)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch {
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		return gzip.NewReader(r)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(256<<20))
		if err != nil {
			return nil, err
		}
		return z.IOReadCloser(), nil
	case len(head) > magicAt && string(head[magicAt:]) == "ustar":
		return io.NopCloser(r), nil
	default:
		return nil, nil
	}
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
			if done, err := a.Answer(res); done {
				return err
			}
			a.Printf("wrote %s: %s\n", report.Display(res.File), terminal.Count(len(used), "plugin", "plugins"))
			return nil
		},
	}
	f.Register(cmd)
	return cmd
}
