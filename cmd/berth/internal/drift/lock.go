package drift

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/hashicorp/hcl/v2/gohcl"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclwrite"

	"github.com/berth-eval/berth/cmd/berth/internal/config"
)

// LockedPlugin is a plugin as the lock file of an experiment names it.
type LockedPlugin struct {
	Kind    string `hcl:"kind,label"`
	Name    string `hcl:"name,label"`
	Version string `hcl:"version,optional"` // for people; the digest decides
	Digest  string `hcl:"digest"`
}

func (p LockedPlugin) who() string { return fmt.Sprintf("%s %q", p.Kind, p.Name) }

type lockFile struct {
	Plugins []LockedPlugin `hcl:"plugin,block"`
}

// maxLock bounds a lock file, in bytes.
const maxLock = 1 << 20

// ReadLock reads the lock file in the folder of an experiment. locked is false if
// there is none.
func ReadLock(dir string) (list []LockedPlugin, locked bool, err error) {
	path := filepath.Join(dir, config.LockFile)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, false, nil
	case err != nil:
		return nil, true, err
	case !info.Mode().IsRegular() || info.Size() > maxLock:
		return nil, true, fmt.Errorf("%s: not a file of at most %d KiB", path, maxLock>>10)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, true, err
	}
	file, diags := hclparse.NewParser().ParseHCL(text, path)
	var lock lockFile
	if !diags.HasErrors() {
		diags = append(diags, gohcl.DecodeBody(file.Body, nil, &lock)...)
	}
	if diags.HasErrors() {
		return nil, true, fmt.Errorf("%s. Write the file again with berth plugin lock", strings.TrimSuffix(diags.Error(), "."))
	}
	return lock.Plugins, true, nil
}

// WriteLock writes the lock file in the folder of an experiment, and returns its
// path. Other plugins that the file names stay in it: other experiments in the
// folder may use them.
func WriteLock(dir string, list []LockedPlugin) (string, error) {
	list = slices.Clone(list)
	before, _, err := ReadLock(dir)
	if err != nil {
		before = nil // the file is written again
	}
	for _, p := range before {
		if !slices.ContainsFunc(list, func(now LockedPlugin) bool { return now.who() == p.who() }) {
			list = append(list, p)
		}
	}
	slices.SortFunc(list, func(a, b LockedPlugin) int { return strings.Compare(a.who(), b.who()) })
	file := hclwrite.NewEmptyFile()
	gohcl.EncodeIntoBody(&lockFile{list}, file.Body())
	text := append([]byte("# Written by berth plugin lock. Other plugins are refused.\n"), hclwrite.Format(file.Bytes())...)
	path := filepath.Join(dir, config.LockFile)
	return path, renameio.WriteFile(path, text, 0o644)
}

// ChangedPlugins returns a line for each plugin that is not as it was locked, and
// says what to do. The plugins are those that an experiment uses.
func ChangedPlugins(locked, used []LockedPlugin) []string {
	var lines []string
	for _, now := range used {
		i := slices.IndexFunc(locked, func(p LockedPlugin) bool { return p.Kind == now.Kind && p.Name == now.Name })
		switch {
		case i < 0:
			lines = append(lines, fmt.Sprintf("%s is not in %s. Add it with berth plugin lock.", now.who(), config.LockFile))
		case locked[i].Digest != now.Digest:
			lines = append(lines, fmt.Sprintf("%s is %s (%s). Locked is %s (%s). Install that one, or accept the change with berth plugin lock.",
				now.who(), now.Digest, version(now), locked[i].Digest, version(locked[i])))
		}
	}
	return lines
}

func version(p LockedPlugin) string {
	if p.Version == "" {
		return "no version"
	}
	return "version " + p.Version
}
