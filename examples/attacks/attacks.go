// Package attacks holds the attack suite that `berth attest` runs: a task for
// each attack, whose reference solution is the attack, and what is expected to
// come of it.
//
// It must not hold anything but these files: what is done with them is decided
// in cmd/berth/internal/attest.
package attacks

import "embed"

// Files are attacks.yaml, the folder tasks, and the scripts of a harness without
// guards. Modes of files are lost: a file that begins with #! is executable.
//
//go:embed all:tasks attacks.yaml unguarded.sh harness.sh
var Files embed.FS
