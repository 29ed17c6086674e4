package podman

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	"github.com/berth-eval/berth/environments/internal/dockerapi"
	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/environments/internal/engine"
)

// CannotBuild returns an empty string: the engine's builder supports what
// BuildKit supports.
func (p *podman) CannotBuild(dockerfile.Wants) string { return "" }

// Build makes an image.
func (p *podman) Build(ctx context.Context, b engine.Build, log func(string)) error {
	files, err1 := json.Marshal([]string{b.File})
	labels, err2 := json.Marshal(b.Labels)
	args, err3 := json.Marshal(b.Args)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	query := url.Values{
		"dockerfile": {string(files)}, "labels": {string(labels)}, "t": {b.Name}, "layers": {"1"}, "rm": {"1"}, "forcerm": {"1"},
		"pullpolicy":   {"missing"},
		"outputformat": {"application/vnd.docker.distribution.manifest.v2+json"}, // this format keeps SHELL
	}
	if b.Target != "" {
		query.Set("target", b.Target)
	}
	if b.Network != "" {
		query.Set("networkmode", "NetworkDisabled")
	}
	if len(b.Args) > 0 {
		query.Set("buildargs", string(args))
	}
	r, err := p.send(ctx, "POST /build", query, "application/x-tar", b.Context)
	if _, ok := errors.AsType[*refusal](err); ok {
		return fmt.Errorf("%w: %w", engine.ErrBuild, err)
	} else if err != nil {
		return err
	}
	defer dockerapi.Drain(r)
	if err := engine.Messages(r, log, nil); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", engine.ErrBuild, err)
	} else if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// Share loads an archive into the store that all jobs of this user on this machine
// read, if this is a job.
func (p *podman) Share(ctx context.Context, file, name string) (bool, error) {
	if driver, _, _ := usual(); p.private == nil || !reads(driver) {
		return false, nil
	}
	return true, p.private.load(ctx, file, name)
}

// LoadsOCI is true: every version reads OCI archives.
func (p *podman) LoadsOCI() bool { return true }

// FindsLocal is true: Podman gives the images that it builds names under
// localhost/.
func (p *podman) FindsLocal() bool { return true }
