package run

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-eval/berth/core/store/node"
	"github.com/berth-eval/berth/plugins/sandbox/host"
)

// InstallSandboxd copies the program to a place that control folders can link
// to, and returns the path of the copy. If it fails, no run can start on this
// machine.
func InstallSandboxd(program string) (string, error) {
	dir, err := node.Dir()
	if err != nil {
		return "", err
	}
	installed, _, err := host.Install(filepath.Join(dir, "d"), program)
	if err != nil {
		return "", fmt.Errorf("install sandboxd in the runtime folder: %w: make room in %s, or set %s to your own short path on a local disk", err, dir, node.EnvDir)
	}
	pruneSandboxd(installed)
	return installed, nil
}

// pruneSandboxd removes copies of other builds that were not used for a day,
// because they may take up memory. A living process may still link to its own
// copy.
func pruneSandboxd(keep string) {
	now := time.Now()
	_ = os.Chtimes(keep, now, now) // it is in use
	if living, err := node.Living(); err != nil || len(living) > 1 {
		return
	}
	old, _ := filepath.Glob(filepath.Join(filepath.Dir(keep), "sandboxd-*")) // the pattern is good
	for _, path := range old {
		if fi, err := os.Stat(path); err == nil && path != keep && now.Sub(fi.ModTime()) > 24*time.Hour {
			_ = os.Remove(path) // if it fails, the next call tries again
		}
	}
}
