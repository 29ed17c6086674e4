package podman

import (
	"cmp"
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

	"github.com/berth-eval/berth/environments/internal/dockerfile"
	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
)

// Inspect returns the settings of an image.
func (p *podman) Inspect(ctx context.Context, ref string) (engine.Image, error) {
	var r struct {
		ID, User              string
		RepoTags, RepoDigests []string
		Labels                map[string]string
		Config                struct {
			Entrypoint, Cmd, Env []string
			WorkingDir           string
			Volumes              map[string]struct{}
		}
	}
	if err := p.call(ctx, "GET /images/"+url.PathEscape(ref)+"/json", nil, nil, &r); err != nil {
		return engine.Image{}, err
	}
	im := engine.Image{
		ID: "sha256:" + strings.TrimPrefix(r.ID, "sha256:"), Labels: r.Labels,
		ImageFacts: environment.ImageFacts{
			Ref: ref, Env: map[string]string{}, User: r.User, Entrypoint: r.Config.Entrypoint, Cmd: r.Config.Cmd, Workdir: r.Config.WorkingDir,
			Volumes: slices.Sorted(maps.Keys(r.Config.Volumes)),
		},
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
	for _, kv := range r.Config.Env {
		k, v, _ := strings.Cut(kv, "=")
		im.Env[k] = v
	}
	return im, nil
}

// Pull fetches an image.
func (p *podman) Pull(ctx context.Context, ref string, log func(string)) error {
	r, err := p.send(ctx, "POST /images/pull", url.Values{"reference": {ref}}, "", nil)
	if err == nil {
		defer drain(r)
		err = engine.Messages(r, log, nil)
	}
	return engine.PullError(err)
}

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
	defer drain(r)
	if err := engine.Messages(r, log, nil); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", engine.ErrBuild, err)
	} else if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// Load reads an archive.
func (p *podman) Load(ctx context.Context, r io.Reader) ([]string, error) {
	answer, err := p.send(ctx, "POST /images/load", nil, "", r)
	if err != nil {
		return nil, err
	}
	defer drain(answer)
	var out struct{ Names []string }
	err = json.NewDecoder(answer).Decode(&out)
	return out.Names, err
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
	repo, tag := name, ""
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		repo, tag = name[:i], name[i+1:]
	}
	return p.call(ctx, "POST /images/"+url.PathEscape(ref)+"/tag", url.Values{"repo": {repo}, "tag": {cmp.Or(tag, "latest")}}, nil, nil)
}

// RemoveImage removes a name.
func (p *podman) RemoveImage(ctx context.Context, ref string) error {
	var report struct{ Errors []string }
	err := p.call(ctx, "DELETE /images/remove", url.Values{"images": {ref}}, nil, &report)
	if len(report.Errors) > 0 {
		err = errors.Join(err, errors.New(strings.Join(report.Errors, "\n")))
	}
	if err != nil && strings.Contains(err.Error(), "image not known") {
		return fmt.Errorf("%w: %w", engine.ErrAbsent, err)
	}
	if failed, ok := errors.AsType[*refusal](err); ok && failed.code == http.StatusConflict || err != nil && strings.Contains(err.Error(), "image is in use") {
		return fmt.Errorf("%w: %w", engine.ErrInUse, err)
	}
	return err
}

// Images lists images by labels. Podman 4.3 finds no image when it is asked for
// several labels at once, so that it is asked for one.
func (p *podman) Images(ctx context.Context, labels map[string]string) (all []engine.Listed, err error) {
	var list []struct {
		ID            string
		RepoTags      []string
		Labels        map[string]string
		Size, Created int64
	}
	one := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(labels))[:min(1, len(labels))] {
		one[name] = labels[name]
	}
	err = p.list(ctx, "/images/json", one, &list)
	for _, im := range list {
		if !has(im.Labels, labels) {
			continue
		}
		for _, tag := range im.RepoTags {
			all = append(all, engine.Listed{ID: im.ID, Name: tag, Labels: im.Labels, Size: im.Size, Created: time.Unix(im.Created, 0)})
		}
	}
	return all, err
}
