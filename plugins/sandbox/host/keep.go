package host

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/system"
)

// Keep writes an archive of some paths of a sandbox, of which those that do not
// exist are recorded as removed. s is the core's session. A process that changes
// a file meanwhile may make it fail.
func Keep(ctx context.Context, s sandbox.Shell, paths []string, out io.Writer) error {
	in, err := json.Marshal(system.Query{Changed: asBytes(paths)})
	if err != nil {
		return err
	}
	return inside(ctx, s, system.Keep, bytes.NewReader(in), out)
}

// Restore makes the paths of an archive of Keep in a sandbox as they were. It
// follows no link there.
func Restore(ctx context.Context, s sandbox.Shell, in io.Reader) error {
	return inside(ctx, s, system.Apply, in, nil)
}
