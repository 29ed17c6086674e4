package run

import (
	"fmt"
	"path/filepath"

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
	return installed, nil
}
