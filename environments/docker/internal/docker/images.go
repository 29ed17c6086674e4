package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/build"
	"github.com/moby/moby/client"
	"github.com/moby/moby/client/pkg/versions"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
)

// Inspect returns what an image says about itself.
func (d *docker) Inspect(ctx context.Context, ref string) (engine.Image, error) {
	r, err := d.api.ImageInspect(ctx, ref)
	if err != nil {
		return engine.Image{}, told(err)
	}
	im := engine.Image{ID: r.ID, ImageFacts: environment.ImageFacts{Ref: ref, Digest: r.ID, Env: map[string]string{}}}
	if len(r.RepoDigests) > 0 {
		im.Named = r.RepoDigests[0]
		im.Ref = im.Named
	} else if len(r.RepoTags) > 0 && strings.HasPrefix(ref, "sha256:") {
		im.Ref = r.RepoTags[0]
	}
	if c := r.Config; c != nil {
		im.Entrypoint, im.Cmd, im.User, im.Workdir, im.Labels = c.Entrypoint, c.Cmd, c.User, c.WorkingDir, c.Labels
		im.Volumes = slices.Sorted(maps.Keys(c.Volumes))
		for _, kv := range c.Env {
			k, v, _ := strings.Cut(kv, "=")
			im.Env[k] = v
		}
	}
	return im, nil
}

// Pull fetches an image.
func (d *docker) Pull(ctx context.Context, ref string, log func(string)) error {
	r, err := d.api.ImagePull(ctx, ref, client.ImagePullOptions{})
	if err == nil {
		defer drain(r)
		err = engine.Messages(r, log, nil)
	}
	return engine.PullError(err)
}

// Build makes an image with the daemon's classic builder, which every daemon
// has, and which pulls images by itself; with BuildKit if the Dockerfile needs it.
func (d *docker) Build(ctx context.Context, b engine.Build, log func(string)) error {
	builder := build.BuilderV1
	if b.Wants.BuildKit {
		builder = build.BuilderBuildKit
		if err := d.fetch(ctx, b.Wants.Images, log); err != nil {
			return err
		}
	}
	args := map[string]*string{}
	for name, value := range b.Args {
		args[name] = &value
	}
	r, err := d.api.ImageBuild(ctx, b.Context, client.ImageBuildOptions{
		Target: b.Target, BuildArgs: args, NetworkMode: b.Network,
		Tags: []string{b.Name}, Dockerfile: b.File, Labels: b.Labels, Remove: true, ForceRemove: true, Version: builder,
	})
	if err != nil {
		return err
	}
	defer drain(r.Body)
	if err := engine.Messages(r.Body, log, progress(log)); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%w: %w", engine.ErrBuild, err)
	} else if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// Load reads an archive.
func (d *docker) Load(ctx context.Context, r io.Reader) ([]string, error) {
	out, err := d.api.ImageLoad(ctx, r, client.ImageLoadWithQuiet(true))
	if err != nil {
		return nil, err
	}
	defer drain(out)
	var names []string
	err = engine.Messages(out, func(line string) {
		for _, said := range []string{"Loaded image: ", "Loaded image ID: "} {
			if name, ok := strings.CutPrefix(line, said); ok {
				names = append(names, strings.TrimSpace(name))
			}
		}
	}, nil)
	return names, err
}

// FindsLocal is false: Docker gives its own images names in the default
// registry.
func (d *docker) FindsLocal() bool { return false }

// Share is false: a daemon has one store.
func (d *docker) Share(context.Context, string, string) (bool, error) { return false, nil }

// LoadsOCI reports whether the daemon reads OCI archives, which it does since
// version 25.
func (d *docker) LoadsOCI() bool {
	return versions.GreaterThanOrEqualTo(d.api.ClientVersion(), "1.44")
}

// Tag gives an image another name.
func (d *docker) Tag(ctx context.Context, ref, name string) error {
	_, err := d.api.ImageTag(ctx, client.ImageTagOptions{Source: ref, Target: name})
	return told(err)
}

// RemoveImage removes a name.
func (d *docker) RemoveImage(ctx context.Context, ref string) error {
	_, err := d.api.ImageRemove(ctx, ref, client.ImageRemoveOptions{PruneChildren: true})
	if cerrdefs.IsConflict(err) {
		return fmt.Errorf("%w: %w", engine.ErrInUse, err)
	}
	return told(err)
}

// Images lists images by labels.
func (d *docker) Images(ctx context.Context, labels map[string]string) ([]engine.Listed, error) {
	r, err := d.api.ImageList(ctx, client.ImageListOptions{Filters: filters(labels)})
	if err != nil {
		return nil, err
	}
	var all []engine.Listed
	for i := range r.Items {
		im := &r.Items[i]
		for _, tag := range im.RepoTags {
			all = append(all, engine.Listed{ID: im.ID, Name: tag, Labels: im.Labels, Size: im.Size, Created: time.Unix(im.Created, 0)})
		}
	}
	return all, nil
}
