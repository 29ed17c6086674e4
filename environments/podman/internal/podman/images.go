//go:build remote && containers_image_openpgp && exclude_graphdriver_btrfs

package podman

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/containers/podman/v5/pkg/bindings"
	"github.com/containers/podman/v5/pkg/bindings/images"

	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
)

// Inspect returns the settings of an image.
func (p *podman) Inspect(ctx context.Context, ref string) (engine.Image, error) {
	on, err := p.on(ctx)
	if err != nil {
		return engine.Image{}, err
	}
	r, err := images.GetImage(on, ref, nil)
	if err != nil {
		return engine.Image{}, told(err)
	}
	im := engine.Image{
		ID: "sha256:" + strings.TrimPrefix(r.ID, "sha256:"), Labels: r.Labels,
		ImageFacts: environment.ImageFacts{Ref: ref, Env: map[string]string{}},
	}
	im.Digest = im.ID
	for _, d := range r.RepoDigests {
		if !strings.HasPrefix(d, "localhost/") && im.Named == "" {
			im.Named, im.Ref = d, d
		}
	}
	if im.Named == "" && len(r.RepoTags) > 0 && strings.HasPrefix(ref, "sha256:") {
		im.Ref = r.RepoTags[0]
	}
	im.User = r.User
	if c := r.Config; c != nil {
		im.Entrypoint, im.Cmd, im.Workdir = c.Entrypoint, c.Cmd, c.WorkingDir
		im.Volumes = slices.Sorted(maps.Keys(c.Volumes))
		for _, kv := range c.Env {
			k, v, _ := strings.Cut(kv, "=")
			im.Env[k] = v
		}
	}
	return im, nil
}

// lineWriter passes on complete lines.
type lineWriter struct {
	log  func(string)
	rest string
}

func (w *lineWriter) Write(p []byte) (int, error) {
	text := w.rest + string(p)
	for {
		line, rest, ok := strings.Cut(text, "\n")
		if !ok {
			break
		}
		if line = strings.TrimSpace(line); line != "" {
			w.log(line)
		}
		text = rest
	}
	w.rest = text[max(0, len(text)-4096):]
	return len(p), nil
}

// Pull fetches an image.
func (p *podman) Pull(ctx context.Context, ref string, log func(string)) error {
	on, err := p.on(ctx)
	if err != nil {
		return err
	}
	_, err = images.Pull(on, ref, new(images.PullOptions).WithProgressWriter(&lineWriter{log: log}))
	return engine.PullError(err)
}

// CannotBuild returns an empty string: the engine's builder supports what
// BuildKit supports.
func (p *podman) CannotBuild(dockerfile.Wants) string { return "" }

// Build makes an image. It calls the endpoint directly, because Build of the
// bindings packs a folder by itself and prints to our output.
func (p *podman) Build(ctx context.Context, b engine.Build, log func(string)) error {
	on, err := p.on(ctx)
	if err != nil {
		return err
	}
	conn, err := bindings.GetClient(on)
	if err != nil {
		return err
	}
	files, err := json.Marshal([]string{b.File})
	if err != nil {
		return err
	}
	labels, err := json.Marshal(b.Labels)
	if err != nil {
		return err
	}
	args, err := json.Marshal(b.Args)
	if err != nil {
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
	r, err := conn.DoRequest(on, b.Context, http.MethodPost, "/build", query, http.Header{"Content-Type": {"application/x-tar"}})
	if err != nil {
		return err
	}
	defer drain(r.Body)
	if !r.IsSuccess() {
		return fmt.Errorf("%w: %w", engine.ErrBuild, r.Process(nil))
	}
	if err := engine.Messages(r.Body, log, nil); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", engine.ErrBuild, err)
	} else if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// Load reads an archive.
func (p *podman) Load(ctx context.Context, r io.Reader) ([]string, error) {
	on, err := p.on(ctx)
	if err != nil {
		return nil, err
	}
	out, err := images.Load(on, r)
	if err != nil {
		return nil, err
	}
	return out.Names, nil
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

// Tag gives an image another name.
func (p *podman) Tag(ctx context.Context, ref, name string) error {
	on, err := p.on(ctx)
	if err != nil {
		return err
	}
	repo, tag := split(name)
	return told(images.Tag(on, ref, tag, repo, nil))
}

// RemoveImage removes a name.
func (p *podman) RemoveImage(ctx context.Context, ref string) error {
	on, err := p.on(ctx)
	if err != nil {
		return err
	}
	_, errs := images.Remove(on, []string{ref}, nil)
	err = errors.Join(errs...)
	if err != nil && strings.Contains(err.Error(), "image not known") {
		return fmt.Errorf("%w: %w", engine.ErrAbsent, err)
	}
	if code, _ := bindings.CheckResponseCode(err); err != nil && code == http.StatusConflict || err != nil && strings.Contains(err.Error(), "image is in use") {
		return fmt.Errorf("%w: %w", engine.ErrInUse, err)
	}
	return told(err)
}

// Images lists images by labels. Podman 4.3 finds no image when it is asked for
// several labels at once, so that it is asked for one.
func (p *podman) Images(ctx context.Context, labels map[string]string) ([]engine.Listed, error) {
	on, err := p.on(ctx)
	if err != nil {
		return nil, err
	}
	one := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(labels))[:min(1, len(labels))] {
		one[name] = labels[name]
	}
	list, err := images.List(on, new(images.ListOptions).WithFilters(filters(one)))
	if err != nil {
		return nil, err
	}
	var all []engine.Listed
	for _, im := range list {
		if !has(im.Labels, labels) {
			continue
		}
		for _, tag := range im.RepoTags {
			all = append(all, engine.Listed{ID: im.ID, Name: tag, Labels: im.Labels, Size: im.Size, Created: time.Unix(im.Created, 0)})
		}
	}
	return all, nil
}
