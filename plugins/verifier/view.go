package verifier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/berth-eval/berth/plugins/config"
	"github.com/berth-eval/berth/plugins/output"
	"github.com/berth-eval/berth/plugins/sandbox"
	"github.com/berth-eval/berth/plugins/untrusted"
)

// ReadFile reads a file of the view, by its slash-separated name, such as
// "attempt/artifacts/answer.txt". Below attempt/ everything comes from the agent,
// so a link, a pipe, a device or more than limit bytes is an error, and nothing
// outside the view is opened. A file that is not there is ErrArtifactMissing.
func (r *Request) ReadFile(name string, limit int64) ([]byte, error) {
	data, err := untrusted.Read(r.View, name, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w%s", name, ErrArtifactMissing, r.undeclared(name))
	}
	if err != nil {
		return nil, fmt.Errorf("view: %w", untrusted.Below(err)) // a verdict may say it, and a model read that
	}
	return data, nil
}

// The bounds of a record, in bytes.
const (
	maxLine   = 32 << 20
	maxRecord = 4 << 30
)

// Lines calls each with the lines of a record of the view, such as
// "attempt/steps.jsonl". Fails with fs.ErrNotExist, and if a line or all of them are
// too long.
func (r *Request) Lines(name string, each func(line []byte)) error {
	cut, err := untrusted.Lines(r.View, name, maxLine, maxRecord, each)
	if err == nil && cut {
		err = fmt.Errorf("it has a line of more than %d MiB, or more than %d MiB in all", maxLine>>20, maxRecord>>20)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// AnyLines is Lines for a record that may be absent, and has no lines then.
func (r *Request) AnyLines(name string, each func(line []byte)) error {
	if err := r.Lines(name, each); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// DecodeSettings reads the settings of the task, and the configuration of the
// experiment over them, into a struct with config tags.
func (r *Request) DecodeSettings(into any) error {
	raw, err := config.Over(r.Settings, r.Config)
	if err == nil {
		if ps := config.Validate(raw, into); len(ps) > 0 {
			err = config.Problems(ps)
		}
	}
	if err != nil {
		return fmt.Errorf("settings for this verifier: %w", err)
	}
	return nil
}

// ViewFolder is where PlaceView puts the view in a sandbox.
const ViewFolder = "/view"

// PlaceView copies the view to ViewFolder in the verifier's own sandbox, for the
// commands that run as the request's user. What an earlier judgement left there is
// removed. Call it when the files are needed: they may be many. Links are copied
// as links. Fails with the errors of box, such as sandbox.ErrNoRoom.
func (r *Request) PlaceView(ctx context.Context, box sandbox.Shell) error {
	_, err := box.Lstat(ctx, ViewFolder)
	if err == nil {
		err = removeView(ctx, box)
	} else if errors.Is(err, sandbox.ErrNotFound) {
		err = nil
	}
	if err == nil {
		err = box.UploadFolder(ctx, r.View, ViewFolder, sandbox.UploadOptions{User: r.User})
	}
	if err != nil {
		return fmt.Errorf("place the view: %w", err)
	}
	return nil
}

// removeView removes the view of an earlier judgement.
func removeView(ctx context.Context, box sandbox.Shell) error {
	said := output.NewTail(1 << 10)
	res, err := box.Exec(ctx, sandbox.Command{Argv: []string{"rm", "-rf", "--", ViewFolder}, User: "0", Dir: "/", Stdout: said, Stderr: said})
	if err == nil && !res.OK() {
		err = fmt.Errorf("rm ended with exit code %d: %s", res.ExitCode, strings.TrimSpace(said.String()))
	}
	return err
}

// artifacts is the folder of the view with the artifacts of the task.
const artifacts = "attempt/artifacts/"

// undeclared is the end of an error about a missing artifact, if the task does
// not declare it, so that no agent could have left it.
func (r *Request) undeclared(name string) string {
	if !strings.HasPrefix(name, artifacts) {
		return ""
	}
	data, err := untrusted.Read(r.View, artifacts+"manifest.json", 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return ": the task declares no artifacts"
	}
	var entries []struct {
		Destination string `json:"destination"`
	}
	if err != nil || json.Unmarshal(data, &entries) != nil {
		return ""
	}
	var declared []string
	for _, e := range entries {
		path := "attempt/" + e.Destination
		if name == path || strings.HasPrefix(name, path+"/") {
			return ""
		}
		declared = append(declared, strings.TrimPrefix(path, artifacts))
	}
	return fmt.Sprintf(": the task declares no artifact %q; there are %s", strings.TrimPrefix(name, artifacts), strings.Join(declared, ", "))
}
