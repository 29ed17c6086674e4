// Package dockerapi is what Docker and Podman do alike: the part of [engine.Engine]
// that asks for and lists, through Docker's API, which Podman answers, too. It only
// converts and makes no decision about sandboxes.
package dockerapi

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/berth-eval/berth/environments/internal/engine"
	"github.com/berth-eval/berth/plugins/environment"
)

// Client is a daemon that answers Docker's API.
type Client struct{ API *client.Client }

// Dial returns the client of an address. It does not connect yet.
func Dial(address string) (*Client, error) {
	c, err := client.New(client.WithHost(address))
	if err != nil {
		return nil, fmt.Errorf("client of %s: %w", address, err)
	}
	return &Client{c}, nil
}

// Error converts an error to the errors of package engine.
func Error(err error) error {
	switch {
	case cerrdefs.IsNotFound(err):
		return fmt.Errorf("%w: %w", engine.ErrAbsent, err)
	case cerrdefs.IsConflict(err):
		return fmt.Errorf("%w: %w", engine.ErrInUse, err)
	}
	return err
}

// Drain reads the rest of a body, so that its connection is used again.
func Drain(r io.ReadCloser) { _, _ = io.Copy(io.Discard, io.LimitReader(r, 1<<20)); _ = r.Close() }

// Start starts a container.
func (c *Client) Start(ctx context.Context, name string) error {
	_, err := c.API.ContainerStart(ctx, name, client.ContainerStartOptions{})
	return Error(err)
}

// State returns the state of a container.
func (c *Client) State(ctx context.Context, name string) (engine.State, error) {
	r, err := c.API.ContainerInspect(ctx, name, client.ContainerInspectOptions{})
	if err != nil {
		return engine.State{}, Error(err)
	}
	s := r.Container.State
	if s == nil {
		return engine.State{}, fmt.Errorf("the engine returned no state for %s", name)
	}
	return engine.State{Running: s.Running, PID: s.Pid, ExitCode: s.ExitCode, OOM: s.OOMKilled, Error: s.Error}, nil
}

// Remove kills and removes a container.
func (c *Client) Remove(ctx context.Context, name string) error {
	_, err := c.API.ContainerRemove(ctx, name, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
	if cerrdefs.IsConflict(err) && strings.Contains(err.Error(), "already in progress") {
		return nil
	}
	return Error(err)
}

func filters(labels map[string]string) client.Filters {
	f := client.Filters{}
	for k, v := range labels {
		f.Add("label", k+"="+v)
	}
	return f
}

// has reports whether labels contain all wanted ones: old versions of Podman also list
// what has only some of them.
func has(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	return true
}

// Containers lists containers by labels.
func (c *Client) Containers(ctx context.Context, labels map[string]string) (all []engine.Listed, err error) {
	r, err := c.API.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: filters(labels)})
	for i := range r.Items {
		if c := &r.Items[i]; len(c.Names) > 0 && has(c.Labels, labels) {
			all = append(all, engine.Listed{Name: strings.TrimPrefix(c.Names[0], "/"), Labels: c.Labels, Image: c.ImageID})
		}
	}
	return all, err
}

// CreateVolume makes a named volume.
func (c *Client) CreateVolume(ctx context.Context, name string, labels map[string]string) error {
	_, err := c.API.VolumeCreate(ctx, client.VolumeCreateOptions{Name: name, Labels: labels})
	return Error(err)
}

// RemoveVolume removes a volume.
func (c *Client) RemoveVolume(ctx context.Context, name string) error {
	_, err := c.API.VolumeRemove(ctx, name, client.VolumeRemoveOptions{})
	return Error(err)
}

// Volumes lists volumes by labels.
func (c *Client) Volumes(ctx context.Context, labels map[string]string) (all []engine.Listed, err error) {
	r, err := c.API.VolumeList(ctx, client.VolumeListOptions{Filters: filters(labels)})
	for _, v := range r.Items {
		if has(v.Labels, labels) {
			all = append(all, engine.Listed{Name: v.Name, Labels: v.Labels})
		}
	}
	return all, err
}

// Inspect returns what an image says about itself.
func (c *Client) Inspect(ctx context.Context, ref string) (engine.Image, error) {
	r, err := c.API.ImageInspect(ctx, ref)
	if err != nil {
		return engine.Image{}, Error(err)
	}
	im := engine.Image{ID: r.ID, ImageFacts: environment.ImageFacts{Ref: ref, Digest: r.ID, Env: map[string]string{}}}
	registry := func(digest string) bool { return !strings.HasPrefix(digest, "localhost/") }
	if i := slices.IndexFunc(r.RepoDigests, registry); i >= 0 {
		im.Named = r.RepoDigests[i]
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
func (c *Client) Pull(ctx context.Context, ref string, log func(string)) error {
	r, err := c.API.ImagePull(ctx, ref, client.ImagePullOptions{})
	if err == nil {
		defer Drain(r)
		err = engine.Messages(r, log, nil)
	}
	return engine.PullError(err)
}

// Load reads an archive.
func (c *Client) Load(ctx context.Context, r io.Reader) (names []string, err error) {
	out, err := c.API.ImageLoad(ctx, r, client.ImageLoadWithQuiet(true))
	if err != nil {
		return nil, err
	}
	defer Drain(out)
	err = engine.Messages(out, func(line string) { names = append(names, Loaded(line)...) }, nil)
	return names, err
}

// Loaded returns the names or IDs of images that a line about a load names.
func Loaded(line string) (names []string) {
	what, all, ok := strings.Cut(line, ": ")
	if !ok || !strings.HasPrefix(what, "Loaded image") {
		return nil
	}
	for name := range strings.SplitSeq(all, ",") { // Podman names all of an archive at once
		names = append(names, strings.TrimSpace(name))
	}
	return names
}

// Tag gives an image another name.
func (c *Client) Tag(ctx context.Context, ref, name string) error {
	_, err := c.API.ImageTag(ctx, client.ImageTagOptions{Source: ref, Target: name})
	return Error(err)
}

// RemoveImage removes a name.
func (c *Client) RemoveImage(ctx context.Context, ref string) error {
	_, err := c.API.ImageRemove(ctx, ref, client.ImageRemoveOptions{PruneChildren: true})
	return Error(err)
}

// Images lists all images that have names.
func (c *Client) Images(ctx context.Context) (all []engine.Listed, err error) {
	r, err := c.API.ImageList(ctx, client.ImageListOptions{})
	for i := range r.Items {
		im := &r.Items[i]
		for _, tag := range im.RepoTags {
			all = append(all, engine.Listed{ID: im.ID, Name: tag, Labels: im.Labels, Size: im.Size, Created: time.Unix(im.Created, 0)})
		}
	}
	return all, err
}
