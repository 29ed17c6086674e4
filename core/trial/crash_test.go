package trial_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/berth-eval/berth/core/cell"
	"github.com/berth-eval/berth/internal/testlevel"
	"github.com/berth-eval/berth/plugins/task"
)

// withSolution gives the task a reference solution and the cell an oracle.
func withSolution(t *testing.T, b *bench, script string) {
	t.Helper()
	dir := filepath.Join(b.task.Dir, "solution")
	testlevel.Must(t, errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "solve.sh"), []byte(script), 0o600)))
	b.task.Resources = []task.Resource{{
		Name: "solution", Path: "solution", Audience: []task.Role{task.RoleOracle}, Place: "/solution", Phase: task.PlaceTurn, Folder: true,
		Entries: []task.Entry{{Path: "solve.sh", Mode: 0o755}},
	}}
	b.task.Stages[0].Reference = &task.Reference{Resource: "solution", Argv: []string{"sh", "/solution/solve.sh"}}
	b.cell.Agent = cell.Agent{Plugin: "oracle", Oracle: true}
}
