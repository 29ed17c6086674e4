package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/sandbox/system"
)

// ErrUnfit means that our own program in a sandbox could not read or write its files:
// they decide that.
var ErrUnfit = errors.New("the files of the sandbox cannot be copied")

// Keep writes an archive of what was written in a sandbox, as root: everything that
// differs from its image. made is a moment after the image was complete and before the
// sandbox was made, and maxBytes bounds the content of the files. s is the core's session. A process that changes a file meanwhile
// may make it fail. Fails with ErrUnfit.
func Keep(ctx context.Context, s sandbox.Shell, made time.Time, maxBytes int64, out io.Writer) error {
	return inside(ctx, s, system.Keep, line(system.KeepQuery{MaxBytes: maxBytes, Made: nanos(made)}), out)
}

// Restore takes files of an archive of Keep into a new sandbox of the same image, in
// which nothing was started. It follows no link there. Fails with ErrUnfit.
func Restore(ctx context.Context, s sandbox.Shell, q system.RestoreQuery, in io.Reader) (done system.Restored, err error) {
	err = answer(ctx, s, system.Restore, io.MultiReader(line(q), in), &done)
	return done, err
}

// SetAside removes links that were made in a sandbox since it was made and lead into some
// folders (absolute), and names them. s is the core's session. Fails with ErrUnfit.
func SetAside(ctx context.Context, s sandbox.Shell, made time.Time, folders []string) (gone system.Names, err error) {
	err = answer(ctx, s, system.Aside, line(system.AsideQuery{Folders: folders, Made: nanos(made)}), &gone)
	return gone, err
}

// nanos is a moment as our program takes it.
func nanos(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixNano()
}

// answer runs our own program and reads what it answers.
func answer(ctx context.Context, s sandbox.Shell, word string, in io.Reader, to any) error {
	out := output.NewTail(mostAnswer)
	if err := inside(ctx, s, word, in, out); err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out.String()), to); err != nil {
		return fmt.Errorf("%s files: read the answer: %w", word, err)
	}
	return nil
}

// mostAnswer is how many bytes our program may answer: two lists of 100 names.
const mostAnswer = 2 << 20

// line is a query as our program reads it.
func line(q any) io.Reader {
	text, _ := json.Marshal(q) //nolint:errcheck,errchkjson // texts and numbers
	return bytes.NewReader(append(text, '\n'))
}

// inside runs our own program in a sandbox, as root by number.
func inside(ctx context.Context, s sandbox.Shell, word string, in io.Reader, out io.Writer) error {
	said := output.NewTail(4 << 10)
	r, err := s.Exec(ctx, sandbox.Command{
		Argv: []string{"/berth/sandboxd", system.Word, word}, User: "0:0", Dir: "/", Env: []string{"GOMAXPROCS=2", "GODEBUG=", "GOTRACEBACK="},
		Stdin: in, Stdout: out, Stderr: said,
	})
	if err == nil && !r.OK() {
		err = fmt.Errorf("%w: exit code %d: %s", ErrUnfit, r.ExitCode, strings.TrimSpace(said.String()))
	}
	if err != nil {
		return fmt.Errorf("%s files: %w", word, err)
	}
	return nil
}
